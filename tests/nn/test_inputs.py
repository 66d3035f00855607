"""A graph in every form that PyG's users have it in gives the same layer."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch_geometric import EdgeIndex

from sobgnn import Graph, SobolevConv, SobolevOperators, SSobGNN
from sobgnn.operators import EdgeOperators


def layer(**options):
    torch.manual_seed(3)
    return SobolevConv(4, 3, alpha=2, **options)


@pytest.fixture
def nothing_compiled():
    """Compilations of other tests leave no traces here, and those of this one none there."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def x():
    return torch.randn(30, 4, generator=torch.Generator().manual_seed(0))


def test_edges_in_any_order_and_any_container_give_the_same(graph30, x):
    edge_index, edge_weight = graph30.edges()
    conv = layer()
    whole = conv(x, SobolevOperators(graph30, 2))
    order = torch.randperm(edge_index.shape[1], generator=torch.Generator().manual_seed(1))
    matrix = torch.sparse_coo_tensor(edge_index.flip(0), edge_weight, (30, 30))
    given = {
        "keyword": {"edge_index": edge_index, "edge_weight": edge_weight},
        "shuffled": {"edge_index": edge_index[:, order], "edge_weight": edge_weight[order]},
        "EdgeIndex": {"edge_index": EdgeIndex(edge_index, sparse_size=(30, 30)), "edge_weight": edge_weight},
        "COO": {"edge_index": matrix},
        "CSR": {"edge_index": matrix.coalesce().to_sparse_csr()},
        "Graph": {"edge_index": graph30},
    }
    for name, arguments in given.items():
        torch.testing.assert_close(conv(x=x, **arguments), whole, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize("sparse", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_sparse_features_of_any_type_and_under_autocast_give_what_dense_ones_give(graph30, dtype, sparse):
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).relu().to(dtype)
    for options in ({}, {"self_branch": True, "combine": "concat"}):
        conv = layer(**options)
        close = {"rtol": 0.02, "atol": 0.02}
        if dtype != torch.float64:
            with torch.autocast("cpu", dtype):
                torch.testing.assert_close(conv(sparse(x.float()), graph30), conv(x.float(), graph30), **close)
        conv = conv.to(dtype)
        torch.testing.assert_close(conv(sparse(x), graph30), conv(x, graph30), **close)


def test_one_way_edges_are_refused_with_the_ways_out_and_taken_by_both(graph30, x):
    edge_index, edge_weight = graph30.edges()
    one_way = edge_index[0] < edge_index[1]
    half, weight = edge_index[:, one_way], edge_weight[one_way]
    with pytest.raises(ValueError, match=r'symmetrize="union".*normalize="row"'):
        layer()(x, half, weight)
    whole = layer()(x, graph30)
    torch.testing.assert_close(layer(symmetrize="union")(x, half, weight), whole)
    assert layer(normalize="row")(x, half, weight).shape == (30, 3)


@pytest.mark.parametrize("self_branch", [False, True])
@pytest.mark.parametrize("sizes", [4, (4, 6)])
def test_edges_between_two_sets_of_nodes_read_sources_and_their_targets(x, self_branch, sizes):
    targets = torch.randn(5, 4 if sizes == 4 else 6, generator=torch.Generator().manual_seed(1))
    source, target = torch.tensor([0, 3, 29, 7, 3]), torch.tensor([0, 0, 1, 4, 4])
    weight = torch.tensor([0.5, 1.0, 0.25, 2.0, 0.1])
    torch.manual_seed(3)
    conv = SobolevConv(sizes, 3, 2, 0.5, self_branch=self_branch, normalize="row", activation=False)
    got = conv((x, targets), torch.stack([source, target]), weight, size=(30, 5))
    adjacency = torch.zeros(5, 30).index_put((target, source), weight)
    own = conv.weight if conv.weight_dst is None else conv.weight_dst
    expected = conv.mu[0] * (targets @ own[0] + conv.bias[0]) if self_branch else 0.0
    for order in (1, 2):
        branch = order - 1 + self_branch
        degree = (adjacency**order).sum(dim=1, keepdim=True) + 0.5**order
        moved = adjacency**order @ x @ conv.weight[branch] + 0.5**order * targets @ own[branch]
        expected = expected + conv.mu[branch] * (moved / degree + conv.bias[branch])
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    edge_index = torch.stack([source, target])
    for pair in ((x.to_sparse(), targets), (x, targets.to_sparse()), (x.to_sparse(), targets.to_sparse())):
        torch.testing.assert_close(conv(pair, edge_index, weight, size=(None, 5)), got)
        with torch.autocast("cpu", torch.float16):
            torch.testing.assert_close(conv(pair, edge_index, weight), got.half(), rtol=0.01, atol=0.01)
    with pytest.raises(ValueError, match="numbers of sources and targets"):
        conv((x, targets), edge_index, weight, size=(30, 6))
    with pytest.raises(ValueError, match=r"sparse_size of edge_index must be .* \(30, 5\), but got \(30, 6\)"):
        conv((x, targets), EdgeIndex(edge_index, sparse_size=(30, 6)), weight)
    operators = EdgeOperators(edge_index, weight, (30, 5), 2, 0.5, normalize="row")
    torch.testing.assert_close(conv((x, targets), operators), got)
    if sizes == 4:
        with pytest.raises(ValueError, match=r"\(30, 5\), but got \(5, 30\)"):
            conv((targets, x), operators)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda conv, x, i, w: conv(x, torch.cat([i, i[:, :1]], 1), torch.cat([w, w[:1]])), "must be symmetric"),
        (lambda conv, x, i, w: conv(x, torch.tensor([[0], [30]])), "num_nodes=30"),
        (lambda conv, x, i, w: conv(x, i, w[1:]), "one entry per edge"),
        (lambda conv, x, i, w: conv(x, i, -w), "finite and not negative"),
        (lambda conv, x, i, w: conv(x, i, w * float("nan")), "finite and not negative"),
        (lambda conv, x, i, w: conv(x, i, w / w.max() * 1e38), r"at most 8\.51e\+37"),
        (lambda conv, x, i, w: conv((x, x), i, w), 'normalize="row"'),
        (lambda conv, x, i, w: conv((x, None), i, w), "number of targets"),
        (
            lambda conv, x, i, w: conv(x, EdgeIndex(i, sparse_size=(31, 31)), w),
            r"sparse_size of edge_index must be .* \(30, 30\), but got \(31, 31\)",
        ),
        (lambda conv, x, i, w: conv(x, torch.eye(31).to_sparse()), r"row for each target .* \[30, 30\], but got \[31"),
    ],
)
@pytest.mark.filterwarnings("ignore:All edge weights are 1")
def test_edges_that_are_no_graph_are_refused_in_one_line(graph30, x, call, message):
    with pytest.raises(ValueError, match=message) as caught:
        call(layer(cached=True), x, *graph30.edges())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"cached": True}, {"normalize": "row"}, {"learn_epsilon": True}])
@pytest.mark.parametrize("form", ["none", "ones", "sparse", "Graph", "model"])
def test_weights_of_one_warn_in_every_form_and_at_the_callers_line(graph30, x, form, options):
    edge_index, ones = graph30.edges()[0], torch.ones(graph30.num_edges)
    given = {
        "none": (edge_index,),
        "sparse": (torch.sparse_coo_tensor(edge_index, ones, (30, 30)),),
        "Graph": (Graph.from_edges(edge_index, ones),),
    }.get(form, (edge_index, ones))
    conv = SSobGNN(4, 3, 2, alpha=2, **options) if form == "model" else layer(**options)
    text = "self-loops alone" if "learn_epsilon" in options else "alpha > 1 adds nothing"
    with pytest.warns(UserWarning, match=f"All edge weights are 1.*{text}") as caught:
        conv(x, *given)
    assert {warning.filename for warning in caught} == {__file__}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        conv(x, edge_index, ones * 0.5)


@pytest.mark.parametrize("options", [{}, {"normalize": "row"}])
def test_weights_of_a_model_have_the_gradient_of_the_graphs(graph30, x, options):
    edge_index, edge_weight = graph30.edges()
    torch.manual_seed(0)
    model = SSobGNN(4, 6, 3, alpha=2, **options).eval()
    gradients = []
    for make in (
        lambda w: (edge_index, w),
        lambda w: (Graph.from_edges(edge_index, w, 30),),
        lambda w: (SobolevOperators(Graph.from_edges(edge_index, w, 30), 2),),
        lambda w: (SobolevOperators(graph30.with_weight(w), 2),),
    ):
        leaf = edge_weight.clone().requires_grad_()
        model(x, *make(leaf)).square().sum().backward()
        gradients.append(leaf.grad)
    # PyG's edge from j to i is the entry [i, j], a graph's edge (i, j) is the entry [i, j].
    reverse = torch.argsort(edge_index[1] * 30 + edge_index[0])
    for gradient in gradients[1:]:
        torch.testing.assert_close(gradient, gradients[0][reverse], rtol=1e-4, atol=1e-4)
    assert gradients[0].abs().min() > 0


def test_symmetrised_weights_have_gradients_in_the_direction_that_counts():
    weight = torch.tensor([0.5, 2.0, 1.0], requires_grad=True)
    edge_index = torch.tensor([[0, 1, 1], [1, 0, 2]])
    graph = Graph.from_edges(edge_index, weight, 3, symmetrize="union")
    assert graph.weight.tolist() == [2.0, 2.0, 1.0, 1.0]
    (gradient,) = torch.autograd.grad(graph.weight.sum(), weight)
    assert gradient.tolist() == [0.0, 2.0, 2.0]
    mutual = Graph.from_edges(edge_index, weight, 3, symmetrize="mutual")
    assert mutual.weight.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("options", [{}, {"combine": "concat"}, {"normalize": "row"}, {"learn_epsilon": True}])
def test_forward_mode_is_refused_rather_than_zero(options):
    edge_index, weight = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([0.5, 0.5, 0.8, 0.8])
    layer, x = SobolevConv(5, 4, alpha=2, **options), torch.ones(3, 5)
    with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        torch.func.jvp(lambda z: layer(z, edge_index, weight), (x,), (x,))
    with pytest.raises(NotImplementedError, match="no forward-mode derivatives"):
        torch.func.jvp(lambda w: layer(x, edge_index, w), (weight,), (weight,))


@pytest.mark.parametrize(
    ("options", "call", "message"),
    [
        ({"learn_epsilon": True}, lambda x: (x, torch.tensor([[0, 1], [1, 2]])), "must be symmetric"),
        ({"normalize": "row"}, lambda x: (x, torch.tensor([[0], [3]])), "targets from 3 to 3 for num_nodes=3"),
        ({"normalize": "row"}, lambda x: ((x, x[:2]), torch.tensor([[3], [1]])), "sources from 3 to 3 for num_nodes=3"),
        ({"normalize": "row"}, lambda x: ((x, x[:2]), torch.tensor([[2], [2]])), "targets from 2 to 2 for num_nodes=2"),
    ],
)
@pytest.mark.filterwarnings("ignore:All edge weights are 1", "ignore:.*should not be instantiated:DeprecationWarning")
def test_a_compiled_layer_refuses_what_the_layer_refuses(options, call, message, nothing_compiled):
    layer = SobolevConv(5, 4, alpha=2, **options)
    for one in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        with pytest.raises(ValueError, match=message):
            one(*call(torch.ones(3, 5)))


@pytest.mark.parametrize("how", ["union", "mutual"])
def test_repeated_edges_are_added_up_and_those_of_weight_zero_dropped_before_they_are_symmetrized(how):
    edges, weight = torch.tensor([[0, 0, 1, 1, 2]]).repeat(2, 1), torch.tensor([0.5, 0.2, 0.3, 0.9, 0.0])
    edges[1] = torch.tensor([1, 1, 2, 0, 0])
    once = torch.tensor([[0, 1, 1], [1, 2, 0]]), torch.tensor([0.7, 0.3, 0.9])
    torch.manual_seed(0)
    conv, x = SobolevConv(5, 4, symmetrize=how), torch.rand(3, 5)
    torch.testing.assert_close(conv(x, edges, weight), conv(x, Graph.from_edges(*once, 3, symmetrize=how)))


@pytest.mark.parametrize(("width", "out"), [(5, 4), (9, 2)])  # aggregated first, transformed first
@pytest.mark.parametrize("options", [{}, {"combine": "concat", "self_branch": True}, {"normalize": "row"}])
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
def test_signals_of_one_graph_are_the_layer_of_each_compiled_too(graph30, width, out, options, nothing_compiled):
    torch.manual_seed(0)
    conv, x = SobolevConv(width, out, alpha=2, **options), torch.randn(3, 30, width)
    edge_index, weight = graph30.edges()
    expected = torch.stack([conv(signal, edge_index, weight) for signal in x])
    torch.testing.assert_close(conv(x, edge_index, weight).view(-1, out), expected.flatten(0, 1))
    assert conv(x[:, :0], edge_index[:, :0], weight[:0]).shape == (3, 0, out)
    if "normalize" not in options:
        rows = torch.tensor([7, 1])
        torch.testing.assert_close(conv(x, SobolevOperators(graph30, 2).rows(rows)), expected[:, rows])
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index, weight), expected)


@pytest.mark.parametrize("width", [5, 9])
def test_signals_use_what_is_known_of_their_propagation_and_say_its_shape(graph30, width):
    torch.manual_seed(0)
    conv, x, operators = SobolevConv(width, 2, alpha=2), torch.randn(3, 30, width), SobolevOperators(graph30, 2)
    known = torch.stack([operators.propagate(signal) for signal in x])
    expected = conv(x, operators)
    for given in (operators, None):
        torch.testing.assert_close(conv(x, given, propagated=known), expected)
    torch.testing.assert_close(conv(x, operators, propagated=2 * known), conv(2 * x, operators))
    for wrong in (known[0], known[:2], known[:, :, :1], known[:, 1:]):
        with pytest.raises(ValueError, match="propagated must be what the operators make of"):
            conv(x, operators, propagated=wrong)


def test_signals_of_two_sets_of_nodes_are_the_layer_of_each():
    torch.manual_seed(0)
    conv = SobolevConv((4, 6), 3, alpha=2, normalize="row", self_branch=True)
    sources, targets = torch.randn(3, 9, 4), torch.randn(3, 5, 6)
    edges, weight = torch.tensor([[0, 3, 8, 7], [0, 0, 1, 4]]), torch.tensor([0.5, 1.0, 0.25, 2.0])
    expected = torch.stack([conv(pair, edges, weight) for pair in zip(sources, targets, strict=True)])
    torch.testing.assert_close(conv((sources, targets), edges, weight, size=(9, 5)), expected)
    with pytest.raises(ValueError, match="as many of the targets as of the sources"):
        conv((sources, targets[:2]), edges, weight)


def test_a_layer_by_rows_refuses_operators_of_another_alpha_epsilon_or_normalization(graph30, x):
    conv = layer(normalize="row")
    torch.testing.assert_close(conv(x, SobolevOperators(graph30, 2)), conv(x, graph30))
    with pytest.raises(ValueError, match="alpha=2, but have alpha=3"):
        conv(x, SobolevOperators(graph30, 3))
    with pytest.raises(ValueError, match=r"epsilon=1\.0 of the graph, but got operators of epsilon=5\.0"):
        conv(x, SobolevOperators(graph30, 2, 5.0))
    symmetric = EdgeOperators(*graph30.edges(), 30, 2, 1.0)
    for options, operators in (({"normalize": "row"}, symmetric), ({"learn_epsilon": True}, symmetric)):
        with pytest.raises(ValueError, match=r"normalize='row', but have 'sym'|needs the graph"):
            layer(**options)(x, operators)


@pytest.mark.parametrize("options", [{"normalize": "row"}, {"symmetrize": "union"}])
def test_edges_go_from_targets_to_sources_where_the_flow_says_so(graph30, x, options):
    edge_index, edge_weight = graph30.edges()
    kept = edge_index[0] < edge_index[1]
    half, weight = edge_index[:, kept], edge_weight[kept]
    conv = layer(**options)
    expected = conv(x, half, weight)
    conv.flow = "target_to_source"
    torch.testing.assert_close(conv(x, half.flip(0), weight), expected)
    torch.testing.assert_close(conv(x, EdgeIndex(half.flip(0)), weight), expected)
    with pytest.raises(ValueError, match="Pass the edges reversed"):
        conv(x, torch.eye(30).to_sparse_coo())
    conv.flow = "both"
    with pytest.raises(ValueError, match="`flow` must be"):
        conv(x, half, weight)
