from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sobgnn.graphs.knn import graph_from_neighbors, knn_graph
from tests.oracle import adjacency

LINE = np.array([[0.0], [1.0], [3.0], [7.0]])  # nearest neighbors: 0-1, 1-0, 2-1, 3-2 at 1, 1, 2, 4


def dense_knn(X, k, bandwidth="mean", symmetrize="union", metric="euclidean"):
    """The definition: all distances, the k smallest (ties by index), the kernel, one symmetric matrix."""
    if metric == "cosine":
        unit = X / np.linalg.norm(X, axis=1, keepdims=True)
        distance = np.maximum(1 - unit @ unit.T, 0)
    else:
        distance = np.linalg.norm(X[:, None] - X[None, :], axis=2)
    n = len(X)
    chosen = np.zeros((n, n), dtype=bool)
    reach = np.zeros(n)
    for i in range(n):
        order = [j for j in np.lexsort((np.arange(n), distance[i])) if j != i][:k]
        chosen[i, order] = True
        reach[i] = distance[i, order[-1]]
    if bandwidth == "mean":
        square = distance[chosen].mean() ** 2
    elif bandwidth == "local":
        square = np.outer(reach, reach)
    else:
        square = bandwidth**2
    weight = np.exp(-(distance**2) / square)
    kept = chosen | chosen.T if symmetrize == "union" else chosen & chosen.T
    return np.where(kept, weight, 0.0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("bandwidth", ["mean", "local", 0.7])
@pytest.mark.parametrize("symmetrize", ["union", "mutual"])
def test_the_graph_is_that_of_the_definition(metric, bandwidth, symmetrize):
    X = np.random.default_rng(0).standard_normal((40, 5))
    graph = knn_graph(X, 6, metric, bandwidth, symmetrize)
    np.testing.assert_allclose(adjacency(graph), dense_knn(X, 6, bandwidth, symmetrize, metric), rtol=1e-5)


@pytest.mark.parametrize("bandwidth", ["mean", "local"])
@given(exponent=st.integers(-60, 60), seed=st.integers(0, 20))
def test_weights_do_not_change_with_the_units_of_the_points(bandwidth, exponent, seed):
    X = np.random.default_rng(seed).standard_normal((20, 3))
    graph, scaled = knn_graph(X, 4, bandwidth=bandwidth), knn_graph(X * 2.0**exponent, 4, bandwidth=bandwidth)
    np.testing.assert_array_equal(scaled.indices, graph.indices)
    np.testing.assert_allclose(scaled.weight, graph.weight, rtol=1e-5)


@pytest.mark.parametrize("bandwidth", ["mean", "local", 3.0])
def test_equal_points_have_zero_bandwidth_and_weight_one(bandwidth):
    for metric in ("euclidean", "cosine"):
        graph = knn_graph(np.full((6, 2), 2.5), 3, metric, bandwidth)
        assert graph.num_edges > 0
        assert torch.all(graph.weight == 1)


def test_an_outlier_stays_joined_to_its_neighbors_though_its_weight_vanishes():
    X = np.concatenate([np.random.default_rng(0).random((30, 2)), [[1e6, 1e6]]])
    graph = knn_graph(X, 3, bandwidth=0.1)
    assert graph.degree[30] >= 3
    assert float(graph.weight.min()) == np.finfo(np.float32).tiny
    assert knn_graph(X, 3).describe().isolated == 0


@pytest.mark.parametrize("bandwidth", [0, -1.0, np.nan, np.inf, "median", None, True])
def test_a_bad_bandwidth_is_refused(bandwidth):
    with pytest.raises(ValueError, match="`bandwidth` must be"):
        knn_graph(LINE, 1, bandwidth=bandwidth)


@pytest.mark.cuda
def test_points_on_cuda_give_a_graph_on_cuda():
    X = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    graph = knn_graph(X.cuda(), 5)
    assert graph.device.type == "cuda"
    np.testing.assert_allclose(adjacency(graph.to("cpu")), adjacency(knn_graph(X, 5)), rtol=1e-5)


# ------------------------------------------------------------------------------------ neighbors already found


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, np.ndarray.tolist])
def test_found_neighbors_give_the_graph_of_the_points(kind):
    indices, distances = np.array([[1], [0], [1], [2]]), np.array([[1], [1], [2], [4]], dtype=np.float32)
    graph = graph_from_neighbors(kind(indices), kind(distances), neighbor_recall=0.9)
    np.testing.assert_allclose(adjacency(graph), adjacency(knn_graph(LINE, 1)), rtol=1e-6)
    assert graph.neighbor_recall == 0.9


@pytest.mark.parametrize(
    ("indices", "distances", "message"),
    [
        ([[1], [0]], [[1.0, 2.0], [1.0, 2.0]], r"both have shape \[N, k\], but got \(2, 1\) and \(2, 2\)"),
        ([[1], [2]], [[1.0], [1.0]], r"must lie in \[0, 2\), but got 1 to 2"),
        ([[-1], [0]], [[1.0], [1.0]], r"must lie in \[0, 2\), but got -1 to 0"),
        ([[0], [0]], [[1.0], [1.0]], "among its own neighbors. Leave it out"),
        ([[1, 1], [0, 2], [0, 1]], np.ones((3, 2)), "lists a neighbor twice"),
        ([[1], [0]], [[np.nan], [1.0]], "distances must be finite and at least 0"),
        ([[1], [0]], [[np.inf], [1.0]], "distances must be finite and at least 0"),
        ([[1], [0]], [[-1.0], [1.0]], "distances must be finite and at least 0"),
        ([[1.0], [0.0]], [[1.0], [1.0]], "indices must hold integers, but got float64"),
        ([[1], [0]], [["1"], ["1"]], "distances must hold real numbers, but got <U1"),
    ],
)
def test_neighbors_that_do_not_fit_are_refused(indices, distances, message):
    with pytest.raises((ValueError, TypeError), match=message):
        graph_from_neighbors(indices, distances)


def test_an_unknown_way_to_symmetrize_is_refused():
    for call in (
        lambda **how: knn_graph(LINE, 1, **how),
        lambda **how: graph_from_neighbors([[1], [0]], [[1], [1]], **how),
    ):
        with pytest.raises(ValueError, match='`symmetrize` must be "union"'):
            call(symmetrize="max")
