from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given
from safetensors.numpy import load_file, save_file
from torch_geometric import EdgeIndex
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_scipy_sparse_matrix

from sobgnn.graphs.graph import Graph
from tests.oracle import adjacency, graphs

EDGE = np.array([[0, 1], [1, 0]])


def assert_sound(graph: Graph) -> None:
    assert graph.indptr.dtype == torch.int64
    assert graph.indices.dtype == torch.int32
    assert graph.weight.dtype == torch.float32
    matrix = graph.to_scipy()
    assert matrix.has_canonical_format
    assert np.all(matrix.data > 0)
    assert np.all(np.isfinite(matrix.data))
    assert np.all(matrix.diagonal() == 0)
    np.testing.assert_array_equal(matrix.toarray(), matrix.toarray().T)


# -------------------------------------------------------------------------------------- round trips


@given(graph=graphs())
def test_scipy_pyg_and_torch_give_the_same_matrix_back(graph):
    assert_sound(graph)
    dense = adjacency(graph)
    edge_index, edge_weight = graph.edges()
    again = Graph.from_edges(edge_index, edge_weight, graph.num_nodes)
    np.testing.assert_array_equal(adjacency(Graph.from_scipy(graph.to_scipy())), dense)
    np.testing.assert_array_equal(adjacency(again), dense)
    np.testing.assert_array_equal(graph.to_torch().to_dense().numpy(), dense.astype(np.float32))
    pyg = to_scipy_sparse_matrix(edge_index, edge_weight, graph.num_nodes)
    np.testing.assert_array_equal(pyg.toarray(), dense.astype(np.float32))


def test_a_graph_shares_nothing_with_what_it_was_made_from_or_gives_out(graph30):
    matrix = graph30.to_scipy()
    graph = Graph.from_scipy(matrix)
    before = adjacency(graph)
    given_out = graph.to_scipy()
    for changed in (matrix, given_out):
        changed.data[::2] = 0
        changed.eliminate_zeros()  # in place, rows and columns too
    graph.edges()[1].mul_(20)
    graph.to_torch().values().mul_(20)
    np.testing.assert_array_equal(adjacency(graph), before)
    weight = torch.from_numpy(graph.to_scipy().data)
    again = graph.with_weight(weight)
    weight *= 20
    np.testing.assert_array_equal(adjacency(again), before)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "bsr", "dia"])
def test_stored_zeros_of_a_matrix_are_no_edges_and_stay_in_it(path5, form):
    matrix = sp.csr_array(adjacency(path5) + np.eye(5))
    matrix.setdiag(0)
    matrix = matrix.asformat(form)
    stored = matrix.nnz
    graph = Graph.from_scipy(matrix)
    np.testing.assert_array_equal(adjacency(graph), adjacency(path5))
    assert (graph.num_edges, matrix.nnz) == (8, stored)


def test_an_edge_index_that_knows_its_nodes_gives_their_number():
    edges = torch.tensor(EDGE)
    weight = torch.tensor([0.5, 0.5])
    assert Graph.from_edges(EdgeIndex(edges, sparse_size=(5, 5)), weight).num_nodes == 5
    assert Graph.from_edges(EdgeIndex(edges, sparse_size=(5, None)), weight.requires_grad_()).num_nodes == 5
    assert Graph.from_edges(EdgeIndex(edges)).num_nodes == 2
    assert Graph.from_edges(EdgeIndex(edges, sparse_size=(5, 5)), num_nodes=3).num_nodes == 3
    with pytest.raises(ValueError, match=r"one set of nodes.*\(2, 5\).*num_nodes"):
        Graph.from_edges(EdgeIndex(edges, sparse_size=(2, 5)))


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
def test_matrices_of_float16_and_for_reading_alone_are_read(path5, form):
    matrix = path5.to_scipy().asformat(form)
    expected = matrix.toarray()
    matrix.data = matrix.data.astype(np.float32)
    matrix.data.setflags(write=False)
    np.testing.assert_array_equal(adjacency(Graph.from_scipy(matrix)), expected)
    matrix.data = matrix.data.astype(np.float16)
    np.testing.assert_allclose(adjacency(Graph.from_scipy(matrix)), expected, rtol=1e-3)


def test_lists_arrays_and_tensors_of_edges_are_read_alike_and_weights_left_out_are_ones():
    for edges, weight in (
        (EDGE.tolist(), [0.5, 0.5]),
        (EDGE, np.array([0.5, 0.5])),
        (torch.from_numpy(EDGE), torch.tensor([[0.5], [0.5]])),
        (EDGE.astype(np.int32), torch.tensor([0.5, 0.5], dtype=torch.bfloat16)),
    ):
        graph = Graph.from_edges(edges, weight, 3)
        assert_sound(graph)
        assert (graph.num_nodes, graph.num_edges, graph.degree.tolist()) == (3, 2, [1, 1, 0])
        assert graph.weight.tolist() == [0.5, 0.5]

    assert Graph.from_edges(EDGE).weight.tolist() == [1.0, 1.0]


def test_no_edges_at_all_are_a_graph():
    empty = Graph.from_edges(np.zeros((2, 0), dtype=int), num_nodes=4)
    assert (empty.num_nodes, empty.num_edges) == (4, 0)
    assert_sound(empty)
    assert empty.describe().isolated == 4


@pytest.mark.parametrize(
    ("how", "expected"), [("union", [[0, 3, 2], [3, 0, 0], [2, 0, 0]]), ("mutual", [[0, 1, 0], [1, 0, 0], [0, 0, 0]])]
)
def test_one_way_edges_are_symmetrised_on_request(how, expected):
    graph = Graph.from_edges([[0, 1, 0], [1, 0, 2]], [1.0, 3.0, 2.0], 3, symmetrize=how)
    np.testing.assert_array_equal(adjacency(graph), expected)
    assert_sound(graph)


def test_weights_that_rounding_alone_tells_apart_are_symmetric(graph30):
    edge_index, edge_weight = gcn_norm(*graph30.edges(), add_self_loops=False)
    given = sp.coo_array((edge_weight.numpy(), edge_index.numpy())).toarray()
    assert not np.array_equal(given, given.T)  # else the test proves nothing
    graph = Graph.from_edges(edge_index, edge_weight)
    assert_sound(graph)
    np.testing.assert_array_equal(adjacency(graph), np.maximum(given, given.T))
    assert_sound(graph30.with_weight(edge_weight))
    edge_weight[0] *= 1 + 1e-6
    with pytest.raises(ValueError, match="must be symmetric"):
        Graph.from_edges(edge_index, edge_weight)


def test_duplicates_are_summed_on_request():
    edges, weight = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]]), torch.tensor([1.0, 2.0, 1.5, 1.5], requires_grad=True)
    assert adjacency(Graph.from_edges(edges, weight.detach(), sum_duplicates=True)).tolist() == [[0, 3], [3, 0]]
    learned = Graph.from_edges(edges, weight, sum_duplicates=True).weight
    assert learned.tolist() == [3, 3]
    assert torch.autograd.grad(learned @ torch.tensor([1.0, 10.0]), weight)[0].tolist() == [1, 1, 10, 10]


# --------------------------------------------------------------------------------------- its own methods


@given(graph=graphs())
def test_permuting_moves_node_order_i_to_i(graph):
    order = np.random.default_rng(0).permutation(graph.num_nodes)
    permuted = graph.permute(order)
    assert_sound(permuted)
    np.testing.assert_array_equal(adjacency(permuted), adjacency(graph)[np.ix_(order, order)])
    np.testing.assert_array_equal(adjacency(permuted.permute(np.argsort(order))), adjacency(graph))
    with pytest.raises(ValueError, match="order must be a permutation of 0"):
        graph.permute(np.append(order, 0))
    with pytest.raises(TypeError, match="order must hold integers, but got"):
        graph.permute(order + 0.5)


def test_other_weights_on_the_same_pattern_are_checked(path5):
    doubled = path5.with_weight(path5.weight * 2)
    np.testing.assert_array_equal(adjacency(doubled), 2 * adjacency(path5))
    with pytest.raises(ValueError, match=r"weight must have shape \[8\], but got \[7\]"):
        path5.with_weight(path5.weight[:7])
    with pytest.raises(ValueError, match="must be the same for both directions"):
        path5.with_weight(torch.arange(1.0, 9.0))
    with pytest.raises(ValueError, match="finite and at least"):
        path5.with_weight(torch.zeros(8))
    searched = Graph(path5.indptr, path5.indices, path5.weight, neighbor_recall=0.9)
    assert searched.with_weight([2.0] * 8).neighbor_recall == 0.9


def test_a_saved_graph_comes_back_the_same(path5, tmp_path):
    graph = Graph(path5.indptr, path5.indices, path5.weight, neighbor_recall=0.97)
    graph.save(tmp_path / "graph.safetensors")
    for mmap in (True, False):
        again = Graph.load(tmp_path / "graph.safetensors", mmap=mmap)
        assert again.neighbor_recall == 0.97
        assert_sound(again)
        np.testing.assert_array_equal(adjacency(again), adjacency(path5))


@pytest.mark.parametrize(
    ("name", "entry", "value"),
    [
        ("indices", 0, 10**6),
        ("indices", 3, -1),
        ("indices", 2, 0),  # twice in a row
        ("indices", slice(1, 3), [2, 0]),  # a row that descends
        ("indptr", 2, 9),
        ("indptr", 0, 1),
        ("weight", 1, np.nan),
        ("weight", 1, 0),
    ],
)
def test_a_damaged_file_is_not_a_graph(path5, tmp_path, name, entry, value):
    path5.save(tmp_path / "graph.safetensors")
    arrays = load_file(tmp_path / "graph.safetensors")
    arrays[name][entry] = value
    save_file(arrays, tmp_path / "graph.safetensors")
    for mmap in (True, False):
        with pytest.raises(ValueError, match="does not hold a graph"):
            Graph.load(tmp_path / "graph.safetensors", mmap=mmap)


def test_a_truncated_or_foreign_file_is_one_clear_error(graph30, tmp_path):
    graph30.save(tmp_path / "graph.safetensors")
    whole = (tmp_path / "graph.safetensors").read_bytes()
    for content in (b"", whole[:7], whole[:100], whole[:-40], b"PK" + whole):
        (tmp_path / "graph.safetensors").write_bytes(content)
        with pytest.raises(ValueError, match="does not hold a graph"):
            Graph.load(tmp_path / "graph.safetensors")
    save_file({"indptr": np.arange(3)}, tmp_path / "graph.safetensors")
    with pytest.raises(ValueError, match="does not hold a graph"):
        Graph.load(tmp_path / "graph.safetensors")
    with pytest.raises(FileNotFoundError):
        Graph.load(tmp_path / "none.safetensors")


# ---------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("weight", [-1.0, 0.0, np.nan, np.inf, -np.inf, 1e-40, 1e38, 1e39])
def test_weights_outside_the_positive_floats_are_refused(weight):
    with pytest.raises(ValueError, match=r"finite and at least 1\.18e-38"):
        Graph.from_edges(EDGE, [weight, weight])
    if weight == 0:  # which in a matrix is no edge
        return
    with pytest.raises(ValueError, match="Drop those edges or rescale"):
        Graph.from_scipy(sp.csr_array(([weight, weight], EDGE), shape=(2, 2)))


@pytest.mark.parametrize(
    ("edges", "weight", "options", "error", "message"),
    [
        ([[0, 0, 1], [1, 1, 0]], None, {}, ValueError, "1 are repeated. Pass sum_duplicates=True"),
        ([[0], [1]], None, {}, ValueError, 'must be symmetric.*symmetrize="union"'),
        (EDGE, [1.0, 2.0], {}, ValueError, "must be symmetric"),
        ([[0, 1, 1], [1, 0, 1]], None, {}, ValueError, "no self-loops, but got 1. Remove them"),
        (EDGE, [1.0], {}, ValueError, "one entry per edge, but got 1 for 2 edges"),
        (EDGE, ["a", "b"], {}, TypeError, "must be real numbers"),
        (EDGE, [1j, 1j], {}, TypeError, "must be real numbers, but got complex128"),
        (EDGE, None, {"num_nodes": 1}, ValueError, r"must lie in \[0, num_nodes\), but got entries from 0 to 1"),
        (-EDGE, None, {"num_nodes": 2}, ValueError, r"must lie in \[0, num_nodes\), but got entries from -1 to 0"),
        (EDGE.astype(float), None, {}, TypeError, "must hold integers, but got float64. Cast it to int64"),
        ([[0, 1], [1, 0], [0, 0]], None, {}, ValueError, r"shape \[2, E\], but got \[3, 2\]"),
        ([0, 1], None, {}, ValueError, r"shape \[2, E\], but got \[2\]"),
        (EDGE, None, {"symmetrize": "both"}, ValueError, "`symmetrize` must be .*, but got 'both'"),
        ([[0, 1], [1]], None, {}, ValueError, "edge_index must be one array"),
        (EDGE, [[1.0], [1.0, 2.0]], {}, ValueError, "edge_weight must be one array"),
        (sp.eye_array(2), None, {}, TypeError, "edge_index must be dense"),
        (torch.eye(2).to_sparse(), None, {}, TypeError, "edge_index must be dense"),
        (EDGE, None, {"num_nodes": 2.0}, ValueError, r"`num_nodes` must be an integer .* 2\.0"),
        (EDGE, None, {"num_nodes": "2"}, ValueError, "`num_nodes` must be an integer .* '2'"),
        (np.empty((2, 0)), None, {"num_nodes": -1}, ValueError, "`num_nodes` must be an integer .* -1"),
    ],
)
def test_bad_edges_are_refused(edges, weight, options, error, message):
    with pytest.raises(error, match=message) as caught:
        Graph.from_edges(edges, weight, **options)
    assert "\n" not in str(caught.value)


def test_what_is_no_square_sparse_matrix_is_refused():
    with pytest.raises(TypeError, match=r"must be a scipy sparse matrix, but got ndarray\. Wrap it in"):
        Graph.from_scipy(np.eye(2))
    with pytest.raises(ValueError, match=r"must be square, but got shape \(2, 3\)"):
        Graph.from_scipy(sp.csr_array((2, 3)))


@pytest.mark.cuda
def test_a_graph_goes_to_cuda_and_back(graph30):
    back = graph30.to("cuda").to("cpu")
    np.testing.assert_array_equal(adjacency(back), adjacency(graph30))
    assert Graph.from_edges(*(t.cuda() for t in graph30.edges()), 30).device.type == "cuda"
