from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph, SobolevClassifier, knn_graph
from sobgnn.estimator.placing import Placed, device_for, neighbor_graph, place
from sobgnn.estimator.problem import GIVEN, NEIGHBORS

POINTS = np.random.default_rng(0).normal(size=(40, 5)) * [1, 10, 100, 1, 1]
CODES = np.where(np.arange(40) < 12, np.arange(40) % 3, -1)


def placed(X=POINTS, graph=None, **parameters) -> Placed:
    settings = SobolevClassifier(**{"scale": "standard", **parameters}).get_params()
    told = []

    def tell(*step):
        told.append(step)
        return False

    found = place(settings, X, CODES, graph, np.random.default_rng(1), tell, torch.device("cpu"), 1)
    assert told == [("neighbors", 1, 1)]
    return found


def ring(weight: float) -> sp.csr_array:
    rows = np.arange(40)
    one_way = sp.coo_array((np.full(40, weight), (rows, (rows + 1) % 40)), shape=(40, 40))
    return sp.csr_array(one_way + one_way.T)


def test_neighbors_are_found_by_the_points_as_they_are_scaled():
    found = placed(k=4)
    scaled = (POINTS - POINTS.mean(axis=0)) / POINTS.std(axis=0)
    expected = knn_graph(scaled, k=4).to_scipy()
    near = found.problem.views[NEIGHBORS].graph.to_scipy()
    np.testing.assert_allclose(near.toarray(), expected.toarray(), atol=1e-5)
    assert found.attaching.k == 4
    assert list(found.problem.views) == [NEIGHBORS]
    assert found.problem.classes == 3
    assert found.problem.rows is None


def test_there_are_at_most_as_many_neighbors_as_other_points():
    assert placed(X=POINTS, k=100).attaching.k == 39


def test_neighbors_and_networks_may_read_points_in_scales_of_their_own():
    found = placed(scale=("range", "standard"))
    assert found.scales == ("range", "standard")
    np.testing.assert_array_equal(found.places, found.maps.neighbors(POINTS))
    np.testing.assert_array_equal(found.problem.points.numpy(), found.maps.networks(POINTS))
    assert not np.allclose(found.places, found.problem.points.numpy())


@pytest.mark.parametrize(("alpha", "weight", "kept"), [(1, 1.0, True), (2, 1.0, False), (2, 0.5, True)])
def test_a_given_graph_comes_first_and_gets_weights_where_powers_of_its_own_would_all_be_the_same(alpha, weight, kept):
    found = placed(graph=Graph.from_scipy(ring(weight)), alpha=alpha)
    assert list(found.problem.views) == [GIVEN, NEIGHBORS]
    given = found.problem.views[GIVEN].graph.to_scipy()
    assert (abs(given - ring(weight)).max() < 1e-6) == kept
    assert found.problem.rows is POINTS


def test_networks_have_the_estimators_parameters():
    networks = placed(n_members=7, hidden_channels=9, epsilon=0.25, lr=0.5).problem.networks
    assert (networks.members, networks.hidden_channels, networks.epsilon, networks.lr) == (7, 9, 0.25, 0.5)


def test_only_a_large_table_goes_to_a_gpu_by_itself(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    small, large = np.empty((1000, 10)), sp.csr_array((20_000, 100))
    assert [device_for(option, small) for option in (None, "auto", "cuda:1")] == ["cpu", "cpu", "cuda:1"]
    assert [device_for(option, large) for option in (None, "auto", "cpu")] == ["cpu", "cuda", "cpu"]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert device_for("auto", large) == "cpu"


def test_more_threads_find_the_same_neighbors():
    # Enough products for the threads to be used.
    X = np.random.default_rng(0).normal(size=(18_000, 32)).astype(np.float32)
    one, two = (
        neighbor_graph(X, 5, "euclidean", "exact", "mean", "union", torch.device("cpu"), threads)[0]
        for threads in (1, 2)
    )
    assert torch.equal(one.indices, two.indices)
    assert torch.equal(one.weight, two.weight)
