from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn.graphs.convert import as_edges, as_graph


def test_edges_of_new_points_are_summed_and_sorted_in_a_copy():
    given = sp.csr_array((np.array([1.0, 2.0, 3.0], np.float32), [2, 0, 2], [0, 3]), shape=(1, 3))
    assert as_edges(given, 1, 3).toarray().tolist() == [[2.0, 0.0, 4.0]]
    assert given.indices.tolist() == [2, 0, 2]


@pytest.mark.parametrize("weight", [-1.0, np.nan, 1e-50, 1e-40, 1e38, 1e300])
def test_weights_of_new_points_have_the_range_of_a_graphs(weight):
    with pytest.raises(ValueError, match="Edge weights must be finite and at least"):
        as_edges(sp.csr_array([[weight, 1.0]]), 1, 2)


class Drawn:
    """As networkx has graphs."""

    adj, nodes = {}, ()


class Loaded:
    """As PyG has them."""

    edge_index = np.zeros((2, 3), int)


@pytest.mark.parametrize(
    "given",
    [Drawn(), Loaded(), np.eye(4), [(0, 1), (2, 3)], ((0, 1), (2, 3)), ((0, 1), (1, 2), (2, 3)), "edges"],
    ids=["networkx", "PyG", "dense", "pairs", "two pairs", "three pairs", "text"],
)
def test_another_form_of_graph_is_named_with_what_to_pass_instead(given):
    with pytest.raises(ValueError, match=f"^graph must be a sobgnn.Graph, .* got {type(given).__name__}") as caught:
        as_graph(given, 4)
    for way in ("to_scipy_sparse_array", "data.edge_index", "csr_array(matrix)", "numpy.array(pairs).T"):
        assert way in str(caught.value)


def test_entries_of_zero_are_no_edges_and_gradients_are_left_behind():
    matrix = sp.csr_array(([0.5, 0.5, 0.0, 0.0], ([0, 1, 1, 2], [1, 0, 2, 1])), shape=(3, 3))
    assert as_graph(matrix, 3).num_edges == 2
    assert matrix.nnz == 4
    assert as_edges(sp.csr_array(([0.5, 0.0], ([0, 0], [1, 2])), shape=(1, 3)), 1, 3).nnz == 1
    weight = torch.tensor([0.5, 0.5], requires_grad=True)
    assert not as_graph((torch.tensor([[0, 1], [1, 0]]), weight), 2).weight.requires_grad


def test_repeated_entries_of_a_coo_matrix_are_summed_as_scipy_means_them():
    rows, columns = [0, 0, 1, 1, 2, 3], [1, 1, 0, 0, 3, 2]
    graph = as_graph(sp.coo_array((np.ones(6), (rows, columns)), shape=(4, 4)), 4)
    np.testing.assert_array_equal(graph.to_scipy().toarray()[:2, :2], [[0, 2], [2, 0]])


@pytest.mark.parametrize("given", [sp.eye_array(3) * 0, np.array([[0, 1], [1, 0]])], ids=["matrix", "edges"])
def test_a_graph_has_one_node_per_row(given):
    assert as_graph(given, 3).num_nodes == 3
    with pytest.raises(ValueError, match="one node per row of X, but got 3 for 5 rows"):
        as_graph(as_graph(given, 3), 5)
