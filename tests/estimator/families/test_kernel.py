from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sobgnn.estimator.families.kernel import (
    GaussianRegression,
    KernelRegression,
    Scaling,
    first_metric,
    learned,
    solved,
)
from tests.estimator.cases import labels_of, points_of


def two_classes(rule, columns=8, rows=60, seed=0):
    """Rows of normal columns, indicators of two classes by the sign of ``rule``, and weights."""
    z = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    target = torch.nn.functional.one_hot((rule(z) > 0).long(), 2).double()
    return z, target, torch.ones(rows, dtype=torch.float64)


def case(X, y, labeled, weight=None):
    return points_of(X, classes=int(y.max()) + 1), labels_of(y, labeled, weight)


def test_the_column_that_tells_the_classes_counts_more_than_all_others():
    z, target, weight = two_classes(lambda z: z[:, 2], columns=12)
    fitted = learned(z, target, weight, torch.arange(60), torch.ones(12).double())
    share = np.square(fitted.stretch) / np.square(fitted.stretch).sum()
    assert int(share.argmax()) == 2
    assert float(share[2]) > 0.5


def test_noise_in_other_columns_hardly_matters():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 20))
    y = ((X[:, 0] > 0).astype(int) + (X[:, 1] > 0)) % 2
    problem, labels = case(X, y, 160)
    found = KernelRegression().fit(problem, labels).fitted.predict(problem).argmax(dim=1).numpy()
    distance = np.square(X[160:, None] - X[None, :160]).sum(axis=2)
    near = y[distance.argsort(axis=1)[:, :5]].mean(axis=1) > 0.5
    assert (found == y)[160:].mean() > (near == y[160:]).mean() + 0.2


def test_the_metric_begins_with_the_columns_that_trees_split_by():
    X = np.random.default_rng(0).normal(size=(200, 10))
    # A box along two columns, of which neither tells the classes by its mean.
    y = ((np.abs(X[:, 3]) < 0.7) & (np.abs(X[:, 7]) < 1)).astype(int)
    problem, labels = case(X, y, 200)
    share = labels.shares()[-1]
    first = first_metric(problem, labels, share, np.random.default_rng(1)).numpy()
    assert set(first.argsort()[-2:]) == {3, 7}
    assert first.mean() == pytest.approx(1)
    of_one_class = replace(labels, codes=np.zeros_like(labels.codes))
    np.testing.assert_allclose(first_metric(problem, of_one_class, share, np.random.default_rng(1)), 1)
    # Splits that gain nothing: each of two rows is of both classes equally often.
    problem, labels = case(np.repeat([[0.0, 0.0], [1.0, 1.0]], 40, axis=0), np.arange(80) % 2, 80)
    first = first_metric(problem, labels, labels.shares()[-1], np.random.default_rng(1))
    np.testing.assert_allclose(first, 1)


def test_equal_rows_of_different_classes_give_finite_numbers():
    z = torch.zeros(6, 3, dtype=torch.float64)
    target = torch.nn.functional.one_hot(torch.arange(6) % 2).double()
    fitted = learned(z, target, torch.ones(6, dtype=torch.float64), torch.arange(6), torch.ones(3).double())
    np.testing.assert_allclose(fitted(z), 0.5, atol=1e-9)


def around(count, seed=0):
    """A class that surrounds another, in 20 columns, whose units differ."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    X = generator.normal(size=(count, 20)) * np.where(y == 0, 2.0, 1.0)[:, None]
    return X * np.logspace(-3, 3, 20), y


def test_the_gaussian_regression_is_that_of_its_definition():
    generator = np.random.default_rng(0)
    X = np.hstack([generator.normal(size=(50, 3)), np.full((50, 1), 7.0)])  # the last column does not vary
    weight = generator.uniform(0.5, 1.5, 20)
    points, labels = case(X, np.arange(50) % 3, 20, weight)
    learned = GaussianRegression().fit(points, labels)
    Z = (X[:, :3] - X[:, :3].mean(axis=0)) / X[:, :3].std(axis=0)
    kernel = np.exp(-np.square(Z[:, None] - Z[None, :20]).sum(axis=2) / 3)
    for fold, share in enumerate(labels.shares()):
        used = np.flatnonzero(share)
        count = len(used)
        system = np.ones((count + 1, count + 1))
        system[:-1, :-1] = kernel[np.ix_(used, used)] + np.diag(0.1 / (share[used] * count))
        system[-1, -1] = 0
        solution = np.linalg.solve(system, np.vstack([np.eye(3)[labels.codes[used]], np.zeros((1, 3))]))
        logits = 5 * (kernel[:, used] @ solution[:-1] + solution[-1])
        wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        held = np.flatnonzero(labels.fold == fold)
        np.testing.assert_allclose(learned.out_of_fold[held], wanted[labels.index[held]], atol=1e-4)
    np.testing.assert_allclose(learned.fitted.predict(points), wanted, atol=1e-4)


def test_ten_labels_find_a_class_that_surrounds_another():
    X, y = around(600)
    points, labels = case(X, y, 10)
    assert GaussianRegression.worth_it(points, labels)
    found = GaussianRegression().fit(points, labels).fitted.predict(points).argmax(dim=1).numpy()
    assert (found == y)[10:].mean() > 0.85


def by_definition(similarity, penalty, target):
    """The dual weights and the constant by the dense system that defines them."""
    count = len(target)
    system = torch.ones(count + 1, count + 1, dtype=torch.float64)
    system[:-1, :-1] = similarity + penalty
    system[-1, -1] = 0
    solution = torch.linalg.solve(system, torch.cat([target, torch.zeros(1, target.shape[1], dtype=torch.float64)]))
    return solution[:-1], solution[-1]


def test_the_error_is_that_of_rows_left_out_one_by_one():
    z = torch.randn(20, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.nn.functional.one_hot((z[:, 0] + z[:, 1] > 0).long(), 2).double()
    weight = torch.linspace(0.5, 1.5, 20, dtype=torch.float64)
    similarity = torch.exp(-torch.cdist(z, z) / 3)
    penalty = torch.diag(0.03 / weight)
    dual, constant, error = solved(similarity, target, weight, 0.03)
    wanted = by_definition(similarity, penalty, target)
    np.testing.assert_allclose(dual, wanted[0], atol=1e-10)
    np.testing.assert_allclose(constant, wanted[1], atol=1e-10)
    left_out = []
    for i in range(20):
        rest = torch.arange(20) != i
        own, base = by_definition(similarity[rest][:, rest], penalty[rest][:, rest], target[rest])
        left_out.append(weight[i] * (similarity[i, rest] @ own + base - target[i]).square().sum())
    assert error == pytest.approx(float(torch.stack(left_out).mean()))


def test_a_few_huge_cells_leave_the_others_of_their_column_apart():
    columns = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    clean = Scaling.of(columns)
    columns[7, 0] = 1e6
    found = Scaling.of(columns)
    assert found.deviation[0] == pytest.approx(clean.deviation[0], rel=0.1)
    assert abs(found.center[0] - clean.center[0]) < 0.1
    assert (found.center[1], found.deviation[1]) == (clean.center[1], clean.deviation[1])
