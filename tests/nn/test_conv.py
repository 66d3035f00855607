"""SobolevConv against the paper's equation, written densely."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn import GCNConv

from sobgnn import Graph, SobolevConv, SobolevOperators
from sobgnn.nn.filter_bank import shared_product
from tests.oracle import sobolev_operator


def dense_layer(layer: SobolevConv, graph: Graph, x: np.ndarray) -> np.ndarray:
    weight = layer.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if layer.bias is None else layer.bias.detach().double().numpy()
    filtered = []
    for branch in range(len(weight)):
        rho = branch if layer.self_branch else branch + 1
        moved = x if rho == 0 else sobolev_operator(graph, rho, layer.epsilon) @ x
        value = moved @ weight[branch] + bias[branch]
        filtered.append(np.maximum(value, 0) if layer.activation else value)
    if layer.combine == "linear":
        return sum(m * b for m, b in zip(layer.mu.detach().double().numpy(), filtered, strict=True))
    mix = layer.mix
    mixed = np.hstack(filtered) @ mix.weight.detach().double().numpy().T
    return mixed if mix.bias is None else mixed + mix.bias.detach().double().numpy()


def randomised(layer: SobolevConv) -> SobolevConv:
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    return layer


@pytest.mark.parametrize("channels", [(3, 5), (40, 2)])  # the second transforms before it aggregates
@pytest.mark.parametrize("combine", ["linear", "concat"])
@pytest.mark.parametrize("self_branch", [False, True])
@pytest.mark.parametrize(("activation", "bias"), [(False, True), (True, True), (True, False)])
def test_layer_is_the_equation(graph30, channels, combine, self_branch, activation, bias):
    layer = randomised(SobolevConv(*channels, 3, 0.7, combine, self_branch, activation=activation, bias=bias))
    assert bias == any("bias" in name for name, _ in layer.named_parameters())
    x = torch.randn(30, channels[0], generator=torch.Generator().manual_seed(0))
    out = layer(x, SobolevOperators(graph30, 3, 0.7))
    np.testing.assert_allclose(out.detach(), dense_layer(layer, graph30, x.double().numpy()), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("combine", ["linear", "concat"])
@pytest.mark.parametrize("signals", [(), (2,)])
def test_what_a_layer_returns_can_be_changed_in_place(graph30, combine, signals):
    """As ReLU(inplace=True) does after a layer of PyG's Sequential."""
    layer = randomised(SobolevConv(3, 5, combine=combine))
    x = torch.randn(*signals, 30, 3, generator=torch.Generator().manual_seed(0))
    operators = SobolevOperators(graph30)
    (expected,) = torch.autograd.grad((layer(x, operators) - 0.1).relu().square().sum(), layer.weight)
    (gradient,) = torch.autograd.grad(layer(x, operators).sub_(0.1).relu_().square().sum(), layer.weight)
    torch.testing.assert_close(gradient, expected)


@pytest.mark.filterwarnings("ignore:All edge weights are 1")
@pytest.mark.parametrize("way", ["plain", "export"])
def test_it_is_gcn_with_self_loops_repeated_edges_and_weights_of_zero_too(graph30, way):
    """A self-loop among the edges keeps its weight, weights of an edge listed twice are summed, one of 0 is none."""
    edge_index, edge_weight = graph30.edges()
    more = torch.tensor([[2, 5, 5, 1, 0], [2, 5, 0, 1, 5]])
    edge_index = torch.cat([edge_index, edge_index[:, :7], edge_index[:, :7].flip(0), more], dim=1)
    edge_weight = torch.cat([edge_weight, edge_weight[:7], edge_weight[:7], torch.tensor([0.3, 2.0, 0.0, 0.7, 0.0])])
    gcn, layer = GCNConv(4, 6), SobolevConv(4, 6, alpha=1, epsilon=1.0, activation=False)
    with torch.no_grad():
        layer.weight[0] = gcn.lin.weight.T
        gcn.bias.copy_(layer.bias[0])
        layer.mu.fill_(1)
    x, found = torch.randn(30, 4), []
    if way == "export":
        program = torch.export.export(layer, (x, edge_index, edge_weight))
        torch.testing.assert_close(program.module()(x, edge_index, edge_weight), gcn(x, edge_index, edge_weight))
        return
    for conv in (gcn, layer):
        weight = edge_weight.clone().requires_grad_()
        out = conv(x, edge_index, weight)
        (to_weight,) = torch.autograd.grad(out.square().sum(), weight)
        found.append((out.detach(), to_weight[weight.detach() > 0]))
    torch.testing.assert_close(found[1][0], found[0][0])
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-4, atol=1e-4)
    assert to_weight[edge_weight == 0].tolist() == [0.0, 0.0]  # of the layer


def test_every_power_is_of_the_sum_of_an_edges_weights_and_of_given_self_loops(path5):
    edge_index, edge_weight = path5.edges()
    loops = torch.tensor([[1, 3], [1, 3]])
    twice = torch.cat([edge_index, edge_index, loops], dim=1)
    weight = torch.cat([0.25 * edge_weight, 0.75 * edge_weight, torch.tensor([0.2, 3.0])])
    layer = randomised(SobolevConv(4, 3, 3, 0.7))
    x = torch.randn(5, 4)
    matrix = np.asarray(path5.to_scipy().toarray(), np.float64) + np.diag([0.7, 0.2, 0.7, 3.0, 0.7])
    expected = 0.0
    for rho in (1, 2, 3):
        power = torch.from_numpy(matrix**rho).float()
        scale = power.sum(dim=1).rsqrt()
        moved = (scale[:, None] * power * scale) @ x @ layer.weight[rho - 1] + layer.bias[rho - 1]
        expected = expected + layer.mu[rho - 1] * moved.relu()
    torch.testing.assert_close(layer(x, twice, weight), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [4, (4, 6)])
def test_targets_without_rows_are_averages_of_their_sources(sizes):
    torch.manual_seed(0)
    conv = SobolevConv(sizes, 3, alpha=2, normalize="row", activation=False)
    x, edges = torch.randn(9, 4), torch.tensor([[0, 3, 8, 7, 3], [0, 0, 1, 4, 1]])
    weight = torch.tensor([0.5, 1.0, 0.25, 2.0, 0.1])
    adjacency = torch.zeros(5, 9).index_put((edges[1], edges[0]), weight)
    expected = 0.0
    for order in (1, 2):
        power = adjacency**order
        mean = power / power.sum(dim=1, keepdim=True).clamp_min(1e-30)
        expected = expected + conv.mu[order - 1] * (mean @ x @ conv.weight[order - 1] + conv.bias[order - 1])
    torch.testing.assert_close(conv((x, None), edges, weight, size=(9, 5)), expected, rtol=1e-4, atol=1e-5)
    matrix = torch.sparse_coo_tensor(edges.flip(0), weight, (5, 9))
    torch.testing.assert_close(conv((x, None), matrix), conv((x, None), edges, weight, size=(None, 5)))
    signals = torch.stack([x, 2 * x])
    torch.testing.assert_close(conv((signals, None), edges, weight, size=(9, 5))[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="number of targets"):
        conv((x, None), edges, weight)


@pytest.mark.parametrize("place", ["neither", "x", "weight", "both"])
def test_shared_product_mapped_over_members_is_the_plain_product(place):
    x = torch.randn(4, 7, 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(4, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    places = {"neither": (None, None), "x": (0, None), "weight": (None, 0), "both": (0, 0)}[place]
    given = [value if at == 0 else value[0] for value, at in zip((x, weight), places, strict=True)]
    plain = torch.einsum("...nai,...aio->...nao", *given)
    got = torch.vmap(shared_product, in_dims=places)(*given) if place != "neither" else shared_product(*given)
    torch.testing.assert_close(got, plain)
    for mine, theirs in zip(
        torch.autograd.grad(got.square().sum(), [x, weight]),
        torch.autograd.grad(plain.square().sum(), [x, weight]),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_no_self_loops_are_added_where_gcnconvs_option_says_so(graph30):
    layer, plain = SobolevConv(4, 3, add_self_loops=False), SobolevConv(4, 3, epsilon=0.0, normalize=True)
    plain.load_state_dict(layer.state_dict())
    edge_index, edge_weight = graph30.edges()
    loop = torch.cat([edge_index, torch.tensor([[2], [2]])], dim=1), torch.cat([edge_weight, torch.ones(1)])
    for edges in ((edge_index, edge_weight), loop):
        torch.testing.assert_close(layer(torch.eye(30)[:, :4], *edges), plain(torch.eye(30)[:, :4], *edges))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"improved": True}, r"`improved` is another weight of self-loops here\. Pass epsilon=2\.0"),
        ({"normalize": False}, '`normalize` must be "sym" or "row", but got False'),
        ({"combine": "sum"}, '`combine` must be "linear" or "concat"'),
        ({"learn_epsilon": True, "add_self_loops": False}, r"must start above 0, but got epsilon=0\.0"),
    ],
)
def test_options_without_a_meaning_here_say_what_to_use(options, message):
    with pytest.raises(ValueError, match=message):
        SobolevConv(4, 3, **options)


@pytest.mark.parametrize("combine", ["linear", "concat"])
def test_filter_weights_are_shares_and_follow_the_filter_that_counts(combine):
    layer = SobolevConv(3, 2, alpha=3, combine=combine)
    with torch.no_grad():
        if combine == "linear":
            layer.mu.copy_(torch.tensor([0.1, -2.0, 0.1]))
        else:
            layer.mix.weight.zero_()
            layer.mix.weight[:, 2:4] = -2.0
    share = layer.filter_weights()
    assert share.sum() == pytest.approx(1)
    assert share.argmax() == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, ops: layer(torch.randn(30, 5), ops), "shape"),
        (lambda layer, ops: layer(torch.randn(30, 4), SobolevOperators(ops.graph, 3)), "alpha=2"),
        (lambda layer, ops: layer(torch.randn(30, 4), ops, ops.graph.weight), "edge_weight"),
        (lambda layer, ops: layer(torch.randn(30, 4), None), "propagated"),
        *(
            (lambda layer, ops, known=known: layer(torch.randn(30, 4), ops, propagated=known), r"\[30, 2, 4\], but got")
            for known in (torch.randn(29, 2, 4), torch.randn(30, 1, 4), torch.randn(30, 4))
        ),
        (lambda layer, ops: layer(torch.ones(31, 4), None, propagated=torch.randn(30, 2, 4)), r"\[31, 2, 4\], but got"),
        (lambda layer, ops: layer(torch.randn(30, 4), ops, size=(30, 31)), r"size must be .* \(30, 30\), but got"),
        (lambda layer, ops: layer(torch.randn(30, 4), ops.graph, size=30), "a pair"),
        (lambda layer, ops: layer((torch.randn(15, 4), torch.randn(15, 4)), ops), "the edges between them"),
        (lambda layer, ops: layer(np.ones((30, 4)), ops), "x must be a torch tensor, but got ndarray"),
        (lambda layer, ops: layer([[1.0] * 4] * 30, ops), "x must be a torch tensor, but got list"),
        *(
            (
                lambda layer, ops, form=form: layer(torch.randn(30, 4), form(ops.graph)),
                "must be a tensor, a sobgnn.Graph",
            )
            for form in (Graph.to_scipy, lambda graph: graph.edges()[0].numpy(), lambda graph: 1)
        ),
    ],
)
@pytest.mark.parametrize("self_branch", [False, True])
def test_wrong_calls_say_what_is_wrong(graph30, call, message, self_branch):
    with pytest.raises((TypeError, ValueError), match=message):
        call(SobolevConv(4, 3, alpha=2, self_branch=self_branch), SobolevOperators(graph30, 2))


def test_a_layer_of_unknown_size_saves_and_loads_as_pygs_do(graph30):
    x = torch.randn(30, 7)
    unknown = {name: type(value) for name, value in SobolevConv(-1, 3).state_dict().items()}
    assert unknown == {"weight": UninitializedParameter, "bias": torch.Tensor, "mu": torch.Tensor}
    for channels, lazy, width in ((7, -1, 5), ((7, 7), (-1, -1), 5), ((7, 7), (7, -1), 7)):
        options = {"normalize": "row"}
        full = SobolevConv(channels, 3, **options)
        layer = SobolevConv(lazy, 3, **options)
        layer.load_state_dict(full.state_dict())
        assert layer.in_channels == channels
        torch.testing.assert_close(layer(x, graph30), full(x, graph30))
        for other in (layer, SobolevConv(lazy, 3, **options)):  # what is unknown is so again
            other.load_state_dict(SobolevConv(lazy, 3, **options).state_dict())
            assert other.in_channels == lazy
            assert other(x[:, :width], graph30).shape == (30, 3)


@pytest.mark.parametrize("combine", ["linear", "concat"])
@pytest.mark.parametrize("channels", [(3, 4), (9, 2)])
def test_layer_passes_gradcheck(path5, channels, combine):
    layer = randomised(SobolevConv(*channels, 2, 0.7, combine, self_branch=True)).double()
    operators = SobolevOperators(path5, 2, 0.7)
    names, parameters = zip(*layer.named_parameters(), strict=True)
    x = torch.randn(5, channels[0], dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def run(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x, operators))

    leaves = [value.detach().clone().requires_grad_() for value in (x, *parameters)]
    assert torch.autograd.gradcheck(run, leaves)
