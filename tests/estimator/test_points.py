from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph, SobolevClassifier, knn_graph
from sobgnn.estimator.placed import Placed, make_points
from sobgnn.estimator.points import GIVEN, NEIGHBORS
from tests.estimator.cases import neighbors, points_of

POINTS = np.random.default_rng(0).normal(size=(40, 5)) * [1, 10, 100, 1, 1]
CODES = np.where(np.arange(40) < 12, np.arange(40) % 3, -1)


def placed(X=POINTS, graph=None, **parameters) -> Placed:
    settings = SobolevClassifier(**{"scale": "standard", **parameters}).get_params()
    seen = []

    def report(*step):
        seen.append(step)
        return False

    found = make_points(settings, X, CODES, graph, np.random.default_rng(1), report, 1)
    assert seen == [("neighbors", 1, 1)]
    return found


def ring(weight: float) -> sp.csr_array:
    rows = np.arange(40)
    one_way = sp.coo_array((np.full(40, weight), (rows, (rows + 1) % 40)), shape=(40, 40))
    return sp.csr_array(one_way + one_way.T)


def test_neighbors_are_found_by_the_points_as_they_are_scaled():
    found = placed(k=4)
    scaled = (POINTS - POINTS.mean(axis=0)) / POINTS.std(axis=0)
    expected = knn_graph(scaled, k=4).to_scipy()
    near = found.points.graphs[NEIGHBORS].graph.to_scipy()
    np.testing.assert_allclose(near.toarray(), expected.toarray(), atol=1e-5)
    assert found.search.k == 4
    assert list(found.points.graphs) == [NEIGHBORS]
    assert (found.points.classes, found.points.rows) == (3, None)


@pytest.mark.parametrize(("alpha", "weight", "kept"), [(1, 1.0, True), (2, 1.0, False), (2, 0.5, True)])
def test_a_given_graph_comes_first_and_gets_weights_where_powers_of_its_own_would_all_be_the_same(alpha, weight, kept):
    found = placed(graph=Graph.from_scipy(ring(weight)), alpha=alpha)
    assert list(found.points.graphs) == [GIVEN, NEIGHBORS]
    given = found.points.graphs[GIVEN].graph.to_scipy()
    assert (abs(given - ring(weight)).max() < 1e-6) == kept
    assert found.points.rows is POINTS


def test_more_threads_find_the_same_neighbors():
    # Enough products for the threads to be used.
    X = np.random.default_rng(0).normal(size=(18_000, 32)).astype(np.float32)
    one, two = (neighbors(X, 5, threads) for threads in (1, 2))
    assert torch.equal(one.indices, two.indices)
    assert torch.equal(one.weight, two.weight)


def columns(numbers, categories, rows=300, seed=0):
    """Columns of measured numbers beside columns of yes and no."""
    generator = np.random.default_rng(seed)
    parts = [generator.normal(size=(rows, numbers)), generator.integers(0, 2, (rows, categories))]
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize(
    ("numbers", "categories", "many", "mostly"),
    [
        (2, 0, False, False),  # two measured columns, as of a plane
        (40, 0, True, False),  # pictures, sounds
        (40, 20, False, True),  # many numbers beside many categories
        (3, 1, False, False),
        (3, 2, False, True),
        (0, 30, False, True),
    ],
)
def test_what_columns_are(numbers, categories, many, mostly):
    points = points_of(columns(numbers, categories))
    assert (points.many_numbers, points.mostly_categories) == (many, mostly)


def test_columns_that_never_vary_do_not_count_and_few_numbers_are_categories():
    X = np.concatenate([columns(3, 0), np.ones((300, 50))], axis=1)
    assert not points_of(X).mostly_categories
    assert not points_of(np.ones((300, 4))).mostly_categories
    generator = np.random.default_rng(0)
    assert points_of(generator.integers(0, 5, (300, 6))).mostly_categories
    assert points_of(generator.integers(0, 5, (300, 64))).many_numbers
    assert not points_of(columns(8, 0, rows=10)).mostly_categories
    for count in (2400, 2500):  # every third row of hours has eight of them
        hour = np.arange(count) % 24
        assert not points_of(np.stack([hour, hour**2, columns(1, 0, count)[:, 0]], axis=1)).mostly_categories
