from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn import Graph, SobolevClassifier
from sobgnn.estimator.families.given import LinkedLinear, unit_pattern
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
    from sklearn.linear_model import LogisticRegression

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
