"""Families for given graphs, by the definitions of what they regress on."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from sobgnn import Graph, SobolevClassifier
from sobgnn.estimator.families.given import (
    STRENGTH,
    LinkedLinear,
    PageRankLinear,
    logistic_regressions,
    spread,
    transition,
    unit_pattern,
)
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.points import PointGraph
from tests.estimator.cases import labels_of, points_of


def bipartite(count=160, hubs=8, seed=0):
    """Nodes of two classes that are joined to hubs of their own only, never to one another; features are noise."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    hub = count + 2 * generator.integers(0, hubs // 2, (count, 3)) + y[:, None]
    adjacency = sp.lil_array((count + hubs, count + hubs))
    for node, ends in enumerate(hub):
        adjacency[node, ends] = 1
        adjacency[ends, node] = 1
    # A hub is of the other class than the nodes that it is joined to.
    truth = np.concatenate([y, 1 - np.arange(hubs) % 2])
    return generator.normal(size=(count + hubs, 5)), truth, sp.csr_array(adjacency)


def test_rows_of_the_pattern_have_length_one_and_those_without_edges_are_zero():
    weighted = sp.csr_array(([5.0, 0.1, 5.0, 0.1], ([0, 1, 1, 2], [1, 2, 0, 1])), shape=(4, 4))
    pattern = unit_pattern(Graph.from_scipy(weighted)).toarray()
    np.testing.assert_allclose(np.linalg.norm(pattern, axis=1), [1, 1, 1, 0])
    np.testing.assert_allclose(pattern[1], [0.5**0.5, 0, 0.5**0.5, 0])


def test_probabilities_are_those_of_the_columns_written_out():
    X, truth, adjacency = bipartite()
    labels = labels_of(truth, 60)
    points = points_of(X, Graph.from_scipy(adjacency), 2, "given")
    learned = LinkedLinear("given").fit(points, labels)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    pattern = adjacency.toarray() / np.sqrt(np.maximum(adjacency.sum(axis=1), 1))[:, None]
    Z = np.hstack([unit, pattern @ unit, pattern])
    out_of_fold = np.full((60, 2), np.nan)
    for fold, share in enumerate(labels.shares()):
        rows, weight = labels.index[share > 0], share[share > 0]
        model = LogisticRegression(C=6.0, tol=1e-8, max_iter=2000).fit(Z[rows], truth[rows], weight * len(rows))
        out_of_fold[labels.fold == fold] = model.predict_proba(Z[labels.index])[labels.fold == fold]
    np.testing.assert_allclose(learned.fitted.predict(points), model.predict_proba(Z), atol=1e-4)
    np.testing.assert_allclose(learned.out_of_fold, out_of_fold, atol=1e-4)


@pytest.mark.parametrize("dense", [True, False])
def test_classes_that_never_touch_their_own_are_told_by_who_the_neighbors_are(dense):
    X, truth, adjacency = bipartite()
    given = np.where(np.arange(len(truth)) < 60, truth, -1)
    model = SobolevClassifier(k=5, epochs=20, random_state=0)
    X = X if dense else sp.csr_array(X)
    model.fit(X, given, graph=adjacency)
    nodes = slice(60, 160)
    assert (model.transduction_ == truth)[nodes].mean() > 0.95
    assert model.family_accuracy_["links (given)"] > 0.95
    # A new point that has a training point's edges, and noise of its own, is of its class.
    new = np.random.default_rng(1).normal(size=(100, 5))
    assert (model.predict(new, graph=adjacency[nodes]) == truth[nodes]).mean() > 0.9


def case(width):
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = generator.normal(size=(90, width)) + np.eye(3, width)[y]
    likely = np.where(y[:, None] == y, 0.15, 0.02)
    half = np.triu(generator.random((90, 90)) < likely, 1)
    graph = Graph.from_scipy(sp.csr_array((half + half.T).astype(float)))
    return points_of(X, graph, 3, "given"), labels_of(y, 30), y


def test_spreading_is_the_closed_form():
    points, _, _ = case(5)
    step = transition(points.graphs["given"].graph)
    found = spread(step, points.rows)
    exact = (1 - STRENGTH) * np.linalg.solve(np.eye(90) - STRENGTH * step.toarray(), points.rows)
    np.testing.assert_allclose(found, exact, atol=0.05)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_few_columns_are_spread_themselves_with_the_same_outcome(form):
    points, labels, y = case(5)
    # Columns of zeros change no product, and outnumber the labels: now only labeled rows are spread.
    wide = np.hstack([points.rows, np.zeros((90, 60))])
    few, many = (PageRankLinear("given").fit(replace(points, rows=form(rows)), labels) for rows in (points.rows, wide))
    whole = few.fitted.predict(points)
    np.testing.assert_allclose(whole, many.fitted.predict(points), atol=1e-4)
    np.testing.assert_allclose(few.out_of_fold, many.out_of_fold, atol=1e-4)
    np.testing.assert_allclose(few.fitted.weight, many.fitted.weight[:5], atol=1e-3)
    assert (whole.argmax(dim=1).numpy() == y)[30:].mean() > 0.7


def test_points_that_are_all_spread_alike_tell_nothing():
    points, labels, _ = case(4)
    ring = np.roll(np.eye(90), 1, axis=1)
    graphs = {"given": PointGraph(Graph.from_scipy(sp.csr_array(ring + ring.T)), 2, 0.5)}
    for width in (1, 60):  # columns spread themselves, and labeled rows alone
        rows = np.random.default_rng(0).uniform(1, 9, (90, 1)) * np.ones((1, width))
        learned = PageRankLinear("given").fit(replace(points, graphs=graphs, rows=rows), labels)
        assert float(np.abs(learned.fitted.weight).max()) == 0
        np.testing.assert_allclose(learned.fitted.predict(points), 1 / 3, atol=1e-3)


def regressed(classes, width, seed=0):
    generator = np.random.default_rng(seed)
    codes = np.arange(40) % classes
    Z = generator.normal(size=(40, width)) + 2 * np.eye(classes, width)[codes]
    return Z, with_folds(codes, np.linspace(0.5, 1.5, 40), classes, generator)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("width", [10, 200])
def test_every_signal_predicts_what_scikit_learn_does(classes, form, width):
    Z, labels = regressed(classes, width)
    weight, bias = logistic_regressions(form(Z), labels, 2.0)
    assert weight.shape == (width, labels.folds + 1, classes)
    for signal, share in enumerate(labels.shares()):
        used = share > 0
        # Of two classes scikit-learn penalizes the difference of their weights, which is twice as much.
        model = LogisticRegression(C=4.0 if classes == 2 else 2.0, tol=1e-9, max_iter=5000)
        model.fit(Z[used], labels.codes[used], share[used] * used.sum())
        logits = Z @ weight[:, signal] + bias[signal]
        found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, model.predict_proba(Z), atol=1e-3)


def test_equal_rows_and_rows_of_zeros_give_finite_weights():
    _, labels = regressed(2, 60)
    for Z in (np.zeros((40, 60)), np.ones((40, 60))):
        weight, bias = logistic_regressions(Z, labels, 2.0)
        assert np.isfinite(weight).all()
        assert np.isfinite(bias).all()
        np.testing.assert_allclose(weight[:, :, 0], -weight[:, :, 1])
