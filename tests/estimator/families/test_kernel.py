from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sobgnn.estimator.families import kernel
from sobgnn.estimator.families.kernel import (
    KernelRegression,
    ObliqueKernelRegression,
    gradients,
    learned,
    merged,
)
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.problem import Problem


def two_classes(rule, columns=8, rows=60, seed=0):
    """Rows of normal columns, indicators of two classes by the sign of ``rule``, and weights."""
    z = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    target = torch.nn.functional.one_hot((rule(z) > 0).long(), 2).double()
    return z, target, torch.ones(rows, dtype=torch.float64)


def alike(width, oblique=False):
    """The metric of columns that count alike."""
    return torch.eye(width, dtype=torch.float64) if oblique else torch.ones(width, dtype=torch.float64)


def problem_of(X, y, labelled):
    codes = np.where(np.arange(len(y)) < labelled, y, -1)
    labels = with_folds(codes, np.ones(labelled), int(y.max()) + 1, np.random.default_rng(0))
    X = X.astype(np.float32)
    return Problem(torch.from_numpy(X), X, {}, labels.classes, rows=X), labels


@pytest.mark.parametrize("oblique", [False, True])
def test_gradients_are_those_of_the_regression(oblique):
    z, target, weight = two_classes(lambda z: z[:, 0])
    _, fitted = learned(z, target, weight, torch.arange(60), alike(8, oblique), 3)
    metric = fitted.stretch @ fitted.stretch.T if oblique else fitted.stretch.square()
    distance = torch.cdist(fitted.rows, fitted.rows)
    pull = torch.exp(-distance / fitted.bandwidth) / (fitted.bandwidth * distance.fill_diagonal_(torch.inf))
    some = torch.tensor([3, 17, 40])
    found = gradients(z, pull[some], fitted.dual, some, metric)
    for place, row in enumerate(some):
        others = torch.arange(60) != row  # at its own row a kernel has no gradient
        x = z[row].clone().requires_grad_()
        moved = (x - z[others]) @ fitted.stretch if oblique else (x - z[others]) * fitted.stretch
        f = torch.exp(-moved.norm(dim=1) / fitted.bandwidth) @ fitted.dual[others]
        for c in range(2):
            wanted = torch.autograd.grad(f[c], x, retain_graph=True)[0]
            np.testing.assert_allclose(found[c, place], wanted, atol=1e-10)


def around(count, seed=0):
    """A class that lies around another, in 20 columns: KEEL's "ring" is like this."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    return generator.normal(size=(count, 20)) * np.where(y == 0, 2.0, 1.0)[:, None], y


def test_a_class_that_lies_around_another_is_told_by_being_far():
    X, y = around(1000)
    problem, labels = problem_of(X, y, 60)
    fitted = ObliqueKernelRegression().fit(problem, labels)
    assert (fitted.probabilities()[-1].argmax(dim=1).numpy() == y)[60:].mean() > 0.9
    # Of 60 labels no metric can be learned here; a refit, which holds nothing out, must not begin to.
    assert fitted.rounds == 0
    everything = replace(labels, fold=np.full(60, -1))
    again = ObliqueKernelRegression().refit(problem, everything, fitted)
    np.testing.assert_allclose(again.probabilities()[-1], fitted.probabilities()[-1], atol=1e-6)


@pytest.mark.parametrize("family", [KernelRegression, ObliqueKernelRegression])
@pytest.mark.parametrize("learn", [False, True])
def test_a_signal_does_not_see_the_labels_of_its_fold(family, learn, monkeypatch):
    monkeypatch.setattr(kernel, "clearly_better", lambda *_: not learn)  # which all held-out labels decide together
    X = np.random.default_rng(0).normal(size=(120, 5))
    problem, labels = problem_of(X, (X[:, 0] > 0).astype(int), 60)
    codes = labels.codes.copy()
    codes[labels.fold == 1] = codes[labels.fold == 1][::-1]  # the same number of each class: only who has which
    before, after = (family().fit(problem, each).probabilities() for each in (labels, replace(labels, codes=codes)))
    np.testing.assert_allclose(after[1], before[1], atol=1e-6)
    assert not np.allclose(after[0], before[0], atol=1e-3)


def test_the_metric_is_learned_where_out_of_fold_labels_do_not_speak_against_it():
    X = np.random.default_rng(0).normal(size=(200, 12))
    problem, labels = problem_of(X, (X[:, 2] > 0).astype(int), 80)
    for family in (KernelRegression(), ObliqueKernelRegression()):
        assert family.fit(problem, labels).rounds == family.rounds


def test_the_column_that_tells_the_classes_counts_more_than_all_others():
    z, target, weight = two_classes(lambda z: z[:, 2], columns=12)
    _, fitted = learned(z, target, weight, torch.arange(60), alike(12), 3)
    share = fitted.stretch.square() / fitted.stretch.square().sum()
    assert int(share.argmax()) == 2
    assert float(share[2]) > 0.5


def test_the_direction_that_tells_the_classes_counts_most():
    z, target, weight = two_classes(lambda z: z[:, 0] - z[:, 1], rows=120)
    _, fitted = learned(z, target, weight, torch.arange(120), alike(8, oblique=True), 3)
    values, vectors = torch.linalg.eigh(fitted.stretch @ fitted.stretch.T)
    wanted = torch.zeros(8, dtype=torch.float64)
    wanted[:2] = torch.tensor([1.0, -1.0]) / 2**0.5
    assert abs(float(vectors[:, -1] @ wanted)) > 0.95
    assert float(values[-1]) > 3 * float(values[-2])


@pytest.mark.parametrize("family", [KernelRegression, ObliqueKernelRegression])
def test_noise_in_other_columns_hardly_matters(family):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 20))
    y = ((X[:, 0] > 0).astype(int) + (X[:, 1] > 0)) % 2
    problem, labels = problem_of(X, y, 160)
    found = family().fit(problem, labels).probabilities()[-1].argmax(dim=1).numpy()
    distance = np.square(X[160:, None] - X[None, :160]).sum(axis=2)
    near = y[distance.argsort(axis=1)[:, :5]].mean(axis=1) > 0.5
    assert (found == y)[160:].mean() > (near == y[160:]).mean() + (0.1 if family is ObliqueKernelRegression else 0.2)


def test_the_metric_begins_with_the_columns_that_trees_split_by():
    X = np.random.default_rng(0).normal(size=(200, 10))
    # A box along two columns, of which neither tells the classes by its mean.
    y = ((np.abs(X[:, 3]) < 0.7) & (np.abs(X[:, 7]) < 1)).astype(int)
    problem, labels = problem_of(X, y, 200)
    share = labels.shares()[-1]
    family = KernelRegression()
    first = family._first_metric(problem, labels, share, np.random.default_rng(1)).numpy()
    assert set(first.argsort()[-2:]) == {3, 7}
    assert first.mean() == pytest.approx(1)
    of_one_class = replace(labels, codes=np.zeros_like(labels.codes))
    np.testing.assert_allclose(family._first_metric(problem, of_one_class, share, np.random.default_rng(1)), 1)
    # Splits that gain nothing: each of two rows is of both classes equally often.
    problem, labels = problem_of(np.repeat([[0.0, 0.0], [1.0, 1.0]], 40, axis=0), np.arange(80) % 2, 80)
    first = family._first_metric(problem, labels, labels.shares()[-1], np.random.default_rng(1))
    np.testing.assert_allclose(first, 1)


def test_a_row_is_judged_without_its_copies():
    z, target, weight = two_classes(lambda z: z[:, 0], rows=30)
    _, alone = learned(z, target, weight, torch.arange(30), alike(8), 3)
    copies = (torch.cat([z, z]), torch.cat([target, target]), torch.cat([weight, weight]) / 2, torch.arange(60))
    rows, means, weights, some = merged(*copies)
    assert (weights == 1).all()
    assert torch.equal(some, torch.arange(30))
    order = torch.tensor([int((z == row).all(dim=1).nonzero()) for row in rows])
    np.testing.assert_array_equal(means, target[order])
    _, found = learned(rows, means, weights, some, alike(8), 3)
    np.testing.assert_allclose(found.stretch, alone.stretch, rtol=1e-6)


def test_copies_are_one_row_of_the_regression():
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = (X[:, 0] > 0).astype(int)
    problem, labels = problem_of(np.concatenate([X, X]), np.concatenate([y, y]), 60)
    assert len(KernelRegression().fit(problem, labels).regression.rows) == 30


def test_rows_of_which_most_are_equal_have_the_bandwidth_of_the_others():
    distance = torch.full((5, 5), 1e-8, dtype=torch.float64)
    distance[4], distance[:, 4] = 3, 3
    assert float(kernel._typical(distance.fill_diagonal_(0))) == pytest.approx(3)


def test_a_regression_without_a_bandwidth_is_refused():
    problem, labels = problem_of(np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2, 60)
    arrays = KernelRegression().fit(problem, labels).arrays()
    with pytest.raises(ValueError, match="has no bandwidth"):
        KernelRegression().restore(arrays | {"bandwidth": torch.zeros(1)}, problem)


@pytest.mark.parametrize("oblique", [False, True])
def test_equal_rows_of_different_classes_give_finite_numbers(oblique):
    z = torch.zeros(6, 3, dtype=torch.float64)
    target = torch.nn.functional.one_hot(torch.arange(6) % 2).double()
    for fitted in learned(z, target, torch.ones(6, dtype=torch.float64), torch.arange(6), alike(3, oblique), 3):
        np.testing.assert_allclose(fitted(z), 0.5, atol=1e-9)


def test_it_takes_part_where_labels_are_enough_and_work_is_little():
    X = np.random.default_rng(0).normal(size=(200, 4))
    y = np.arange(200) % 2
    assert not KernelRegression.worth_it(*problem_of(X, y, 38))
    assert KernelRegression.worth_it(*problem_of(X, y, 40))
    wide = np.zeros((200, 151))
    assert KernelRegression.worth_it(*problem_of(wide, y, 40))
    assert not ObliqueKernelRegression.worth_it(*problem_of(wide, y, 40))
    long = np.zeros((100_000, 300))
    assert not KernelRegression.worth_it(*problem_of(long, np.arange(100_000) % 2, 200))
