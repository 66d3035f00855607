from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph, reweight
from tests.oracle import adjacency, normalized_adjacency


def test_normalized_weights_are_the_normalized_adjacency(islands, graph30):
    for graph in (islands, graph30):
        np.testing.assert_allclose(adjacency(reweight(graph)), normalized_adjacency(graph), rtol=1e-6)


def test_feature_weights_are_half_of_one_plus_cosine(path5):
    X = np.random.default_rng(0).normal(size=(5, 3))
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    expected = np.where(adjacency(path5) > 0, (1 + unit @ unit.T) / 2, 0)
    np.testing.assert_allclose(adjacency(reweight(path5, "features", X)), expected, rtol=1e-6)


def test_nodes_of_opposite_features_stay_joined(path5):
    graph = reweight(path5, "features", (-1.0) ** np.arange(5)[:, None])
    assert graph.num_edges == path5.num_edges
    assert graph.weight.unique().tolist() == [np.finfo(np.float32).tiny]


def test_pagerank_weights_are_those_of_the_closed_form(ring8):
    T = (adjacency(ring8) + np.eye(8)) / 3
    closed = 0.2 * np.linalg.inv(np.eye(8) - 0.8 * T)
    np.fill_diagonal(closed, 0)
    got = adjacency(reweight(ring8, "pagerank", teleport=0.2))
    np.testing.assert_allclose(got, closed, atol=1e-6)


def test_pagerank_keeps_an_edge_where_either_end_has_it_among_its_top(graph30):
    shifted = adjacency(graph30) + np.eye(30)
    root = np.sqrt(shifted.sum(axis=1))
    closed = 0.15 * np.linalg.inv(np.eye(30) - 0.85 * shifted / root[:, None] / root[None, :])
    np.fill_diagonal(closed, 0)
    kth = np.sort(closed, axis=0)[-4]  # the fourth largest of each column
    assert (kth - np.sort(closed, axis=0)[-5] > 1e-5).all()  # else a rounding decides which one is kept
    among = closed >= kth - 1e-9
    expected = np.where(among | among.T, closed, 0)
    graph = reweight(graph30, "pagerank", teleport=0.15, top_k=4)
    np.testing.assert_array_equal(adjacency(graph) > 0, expected > 0)
    np.testing.assert_allclose(adjacency(graph), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("spectral",), "how"),
        (("features",), "needs X with 5 rows"),
        (("features", np.ones((4, 2))), "needs X with 5 rows"),
        (("features", np.ones(5)), "needs X with 5 rows"),
        (("features", np.ones((5, 2, 2))), "needs X with 5 rows"),
        (("features", [["a"]] * 5), "real numbers"),
        (("features", np.full((5, 1), np.nan)), "finite X"),
        (("pagerank", None, 1.0), "`teleport` must be"),
        (("pagerank", None, "0.1"), "`teleport` must be"),
        (("pagerank", None, 0.1, 0), "`top_k` must be"),
        (("pagerank", None, 0.1, 1.5), "`top_k` must be"),
    ],
)
def test_wrong_arguments_say_what_is_wrong(path5, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        reweight(path5, *arguments[:2], **dict(zip(("teleport", "top_k"), arguments[2:], strict=False)))


@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, torch.tensor, sp.csr_array])
def test_features_may_have_rows_of_any_size_and_be_of_any_kind(path5, kind):
    X = np.random.default_rng(0).normal(size=(5, 3))
    scale = np.array([[1.0], [1e-300], [1e300], [1e-10], [0.0]])
    expected = reweight(path5, "features", X * (scale > 0)).weight
    torch.testing.assert_close(reweight(path5, "features", kind(X * scale)).weight, expected)


@pytest.mark.parametrize("nodes", [0, 1, 3])
@pytest.mark.parametrize("how", ["normalized", "pagerank", "features"])
def test_graphs_without_edges_stay_without(nodes, how):
    graph = reweight(Graph.from_edges(np.empty((2, 0)), num_nodes=nodes), how, np.ones((nodes, 2)))
    assert (graph.num_nodes, graph.num_edges) == (nodes, 0)
