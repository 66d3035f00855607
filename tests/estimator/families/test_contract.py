"""Every family keeps the same contract."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sobgnn.estimator.families import FAMILIES, make_family
from sobgnn.estimator.families.contract import Refits
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.placing import neighbor_graph, view_of
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.estimator.settings import Networks
from sobgnn.operators.attached import attach

NAMES = list(FAMILIES)


def case(seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, 120)
    X = (generator.normal(size=(3, 5))[y] * 2 + generator.normal(size=(120, 5))).astype(np.float32)
    codes = np.where(np.arange(120) < 45, y, -1)
    labels = with_folds(codes, np.ones(45), 3, generator)
    networks = Networks(alpha=2, epsilon=0.5, hidden_channels=16, members=5, epochs=40, lr=0.02)
    graph, _ = neighbor_graph(X, 6, "euclidean", "exact", "mean", "union", torch.device("cpu"))
    views = {"neighbors": view_of(graph, 2, 0.5, torch.device("cpu"))}
    return Problem(torch.from_numpy(X), X, views, 3, networks, X, seed=1), labels, y


def new_points(problem, rows):
    edges = problem.views["neighbors"].graph.to_scipy()[rows]
    joined = {"neighbors": attach(problem.views["neighbors"].operators, edges)}
    return NewPoints(problem.points[rows], problem.columns[rows], joined, problem.points, problem.rows[rows])


@pytest.mark.parametrize("name", NAMES)
def test_every_signal_has_probabilities_of_every_point_that_beat_guessing(name):
    problem, labels, y = case()
    probabilities = make_family(name, "neighbors").fit(problem, labels).probabilities()
    assert probabilities.shape == (labels.folds + 1, 120, 3)
    np.testing.assert_allclose(probabilities.sum(dim=2), 1, atol=1e-4)
    assert float((probabilities[-1].argmax(dim=1).numpy() == y)[45:].mean()) > 0.7


# All held-out labels together choose one thing of these: when the paper's network and boosting stop, a penalty, whether
# a metric is learned. They see that much; the tests of the last three hold it fixed.
CHOOSING = ("s-sobgnn", "boosting", "logistic", "kernel", "oblique")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in CHOOSING])
def test_a_signal_does_not_see_the_labels_of_its_fold(name):
    problem, labels, _ = case()
    family = make_family(name, "neighbors")
    before = family.fit(problem, labels).probabilities()
    held = labels.fold == 1
    codes = labels.codes.copy()
    codes[held] = codes[held][::-1]  # the same number of each class: only who has which
    after = family.fit(problem, replace(labels, codes=codes)).probabilities()
    np.testing.assert_allclose(after[1], before[1], atol=2e-4)
    assert not np.allclose(after[0], before[0], atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_restored_from_its_arrays_it_predicts_the_same(name):
    problem, labels, _ = case()
    family = make_family(name, "neighbors")
    fitted = family.fit(problem, labels)
    new = new_points(problem, np.arange(50, 70))
    # Row by row, as files hold them.
    again = family.restore(
        {k: v.clone(memory_format=torch.contiguous_format) for k, v in fitted.arrays().items()}, problem
    )
    np.testing.assert_array_equal(again.predict(new), fitted.predict(new))  # to the last bit
    assert fitted.predict(new).shape == (20, 3)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_another_shape_are_refused(name):
    problem, labels, _ = case()
    family = make_family(name, "neighbors")
    arrays = family.fit(problem, labels).arrays()
    key = "value" if "value" in arrays else next(iter(arrays))
    arrays[key] = arrays[key][..., :-1]
    with pytest.raises(ValueError):
        family.restore(arrays, problem)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "s-sobgnn"])
def test_one_thread_and_two_give_the_same_bits(name):
    problem, labels, _ = case()
    before = torch.get_num_threads()
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(make_family(name, "neighbors").fit(problem, labels).probabilities())
        finally:
            torch.set_num_threads(before)
    assert torch.equal(*found)


REFITS = [name for name in NAMES if isinstance(make_family(name, "neighbors"), Refits)]


def without_folds(labels, codes=None):
    fold = np.full_like(labels.fold, -1)
    return replace(labels, fold=fold, codes=labels.codes if codes is None else codes)


@pytest.mark.parametrize("name", REFITS)
def test_a_chain_of_refits_forgets_the_labels_of_the_fit(name):
    problem, labels, y = case()
    problem = replace(problem, networks=replace(problem.networks, epochs=200, lr=0.03))
    family = make_family(name, "neighbors")
    fitted = family.fit(problem, labels)
    other = without_folds(labels, (labels.codes + 1) % 3)
    for _ in range(4):
        fitted = family.refit(problem, other, fitted)
    probabilities = fitted.probabilities()
    assert probabilities.shape == (1, 120, 3)
    np.testing.assert_allclose(probabilities.sum(dim=2), 1, atol=1e-4)
    assert float((probabilities[-1].argmax(dim=1).numpy() == (y + 1) % 3)[45:].mean()) > 0.7


@pytest.mark.parametrize("name", REFITS)
def test_after_a_refit_new_points_are_predicted_as_the_training_points_are(name):
    problem, labels, _ = case()
    family = make_family(name, "neighbors")
    fitted = family.fit(problem, labels)
    for _ in range(2):
        fitted = family.refit(problem, without_folds(labels), fitted)
    found, expected = fitted.predict(new_points(problem, np.arange(120))), fitted.probabilities()[-1]
    # A new point joined to the graph reads its neighbors only, not itself through them.
    np.testing.assert_allclose(found, expected, atol=0.15 if name == "sobolev" else 1e-5)


def test_a_refit_of_forests_keeps_three_quarters_of_the_trees():
    problem, labels, _ = case()
    family = make_family("forests")
    fitted = family.fit(problem, labels)
    again = family.refit(problem, without_folds(labels), fitted)
    size = len(fitted.trees.root) // 2
    assert len(again.trees.root) == 2 * size
    for start in (0, size):
        old, new = fitted.trees.part(start + size // 4, start + size), again.trees.part(start, start + 3 * size // 4)
        np.testing.assert_array_equal(new.threshold, old.threshold)
        np.testing.assert_array_equal(new.value, old.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_new_point_is_predicted_the_same_wherever_it_stands_among_others(name):
    problem, labels, _ = case()
    fitted = make_family(name, "neighbors").fit(problem, labels)
    rows, order = np.arange(45, 82), np.random.default_rng(0).permutation(37)
    together, moved = fitted.predict(new_points(problem, rows)), fitted.predict(new_points(problem, rows[order]))
    # The paper's network and logistic regression are products in float32, whose last bit depends on the place.
    several = name in ("s-sobgnn", "linear", "pagerank")
    torch.testing.assert_close(moved, together[torch.from_numpy(order)], rtol=0, atol=1e-6 if several else 2e-8)
