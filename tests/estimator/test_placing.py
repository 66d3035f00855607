from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn import knn_graph
from sobgnn.estimator.placing import FOLDS, given_graph, neighbor_graph, scaled_points, shared_labels
from sobgnn.estimator.scaling import Scales
from sobgnn.runtime.ranks import Ranks

X = np.random.default_rng(0).normal(size=(40, 5)) * [1, 2, 3, 4, 5]


def test_equal_scalings_are_computed_once_and_others_apart():
    same = scaled_points(X, Scales("range", "range"), None, 0)
    assert same.place is same.features
    assert same.places is same.z
    apart = scaled_points(X, Scales("unit", "range"), None, 0)
    np.testing.assert_array_equal(apart.z, same.z)
    np.testing.assert_array_equal(apart.places, scaled_points(X, Scales("unit", "unit"), None, 0).z)


def test_new_points_are_joined_by_the_neighbours_own_scaling():
    points = scaled_points(X, Scales("unit", "range"), None, 0)
    _, attaching = neighbor_graph(points.places, 5, "euclidean", "auto", "mean", "union", Ranks())
    joined = points.attached(attaching, torch.device("cpu"))
    assert joined.features is points.place
    np.testing.assert_array_equal(joined.points, points.places)
    same = scaled_points(X, Scales("unit", "unit"), None, 0)
    assert same.attached(attaching, torch.device("cpu")) is attaching


@pytest.mark.parametrize(("k", "used"), [(5, 5), (100, 39)])
@pytest.mark.parametrize("bandwidth", ["mean", "local", 2.0])
def test_the_graph_is_that_of_knn_graph_and_new_points_get_its_bandwidth(k, used, bandwidth):
    graph, attaching = neighbor_graph(X.astype(np.float32), k, "euclidean", "auto", bandwidth, "union", Ranks())
    expected = knn_graph(X.astype(np.float32), k=used, bandwidth=bandwidth)
    np.testing.assert_allclose(graph.to_scipy().toarray(), expected.to_scipy().toarray(), rtol=1e-6)
    assert attaching.k == used
    assert (attaching.bandwidth is None) == (bandwidth == "local") == (attaching.reach is not None)


def test_a_given_graph_of_ones_gets_weights_where_powers_would_not_differ():
    edges = np.array([[0, 1, 2], [1, 2, 3]])
    for alpha, ones in ((1, True), (3, False)):
        graph, attaching = given_graph(edges, 5, alpha)
        assert attaching.k == 0
        assert bool((graph.weight == 1).all()) == ones


@pytest.mark.parametrize(("members", "held"), [(8, range(FOLDS)), (2, (0, 1))])
def test_labels_are_held_out_by_as_many_members_as_there_are(members, held):
    codes = np.where(np.arange(60) % 2 == 0, np.arange(60) % 3, -1)
    labels = shared_labels(codes, np.ones(30), True, members, np.random.default_rng(0))
    np.testing.assert_array_equal(labels.index, np.flatnonzero(codes >= 0))
    np.testing.assert_array_equal(labels.codes, codes[codes >= 0])
    assert set(labels.fold) - {-1} == set(held)
    assert len(labels.seeds) == members
    assert shared_labels(codes, np.ones(30), False, members, np.random.default_rng(0)).folds == 0
