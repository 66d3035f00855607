"""SSobGNN in the form of PyG's BasicGNN: norm, act, jk, residual; and through torch's compilers."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import to_hetero

from sobgnn import SobolevOperators, SSobGNN


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "batch_norm"},
        {"norm": "layer_norm", "act": "elu"},
        pytest.param({"norm": nn.LayerNorm, "act": torch.tanh}, id="callables"),
        {"jk": "cat"},
        {"jk": "max"},
        {"jk": "lstm"},
        {"jk": "last"},
        {"residual": True},
        {"learn_epsilon": True},
        {"normalize": "row"},
        {"cached": True},
        {"norm": "layer_norm", "act": "relu", "jk": "cat", "residual": True, "learn_epsilon": True},
    ],
    ids=str,
)
def test_each_option_runs_forward_and_backward_and_resets(graph30, options):
    torch.manual_seed(0)
    model = SSobGNN(4, 8, 3, num_layers=3, alpha=2, **options)
    out = model(torch.randn(30, 4), *graph30.edges())
    assert out.shape == (30, 3)
    out.square().sum().backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not unused
    model.reset_parameters()


def test_a_residual_adds_the_input_and_a_map_where_sizes_differ(graph30):
    torch.manual_seed(0)
    model = SSobGNN(4, 8, 3, num_layers=3, alpha=2, residual=True).eval()
    x, operators = torch.randn(30, 4), SobolevOperators(graph30, 2)
    first, second, last = model.layers
    h = first(x, operators) + x @ model.skips[0].weight.T
    h = second(h, operators) + h
    torch.testing.assert_close(model(x, operators), last(h, operators))
    index = torch.tensor([3, 9])
    field = operators.receptive_field(index, 3)
    torch.testing.assert_close(model(x[field[0].columns], operators, rows=field), model(x, operators)[index])


def test_jumping_knowledge_reads_every_layer(graph30):
    torch.manual_seed(0)
    model = SSobGNN(4, 8, 3, num_layers=2, alpha=2, jk="cat").eval()
    x, operators = torch.randn(30, 4), SobolevOperators(graph30, 2)
    first = model.layers[0](x, operators)
    second = model.layers[1](first, operators)
    torch.testing.assert_close(model(x, operators), model.lin(torch.cat([first, second], dim=1)))
    with pytest.raises(ValueError, match="Leave `rows` out"):
        model(x, operators, rows=operators.rows(torch.tensor([1])))


def test_a_model_exports_whole_and_runs_on_graphs_of_other_sizes(graph30, path5):
    torch.manual_seed(0)
    model = SSobGNN(4, 8, 3, alpha=2).eval()
    n, e = torch.export.Dim("n", max=2**20), torch.export.Dim("e", max=2**20)
    shapes = {"x": {0: n}, "edge_index": {1: e}, "edge_weight": {0: e}}
    program = torch.export.export(model, (torch.randn(30, 4), *graph30.edges()), dynamic_shapes=shapes)
    for graph in (graph30, path5):
        x = torch.randn(graph.num_nodes, 4)
        torch.testing.assert_close(program.module()(x, *graph.edges()), model(x, *graph.edges()))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch's own
def test_a_model_compiles_as_one_graph_from_edges_and_says_nothing(graph30, caplog):
    torch.manual_seed(0)
    torch._dynamo.reset()
    model, x = SSobGNN(4, 8, 3, alpha=2).eval(), torch.randn(30, 4)
    edge_index, edge_weight = graph30.edges()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    gradients = []
    torch.testing.assert_close(compiled(x, graph30), model(x, graph30))
    for run in (model, compiled):
        leaf = edge_weight.clone().requires_grad_()
        run(x, edge_index, leaf).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(gradients[1], gradients[0])
    with caplog.at_level(logging.WARNING):
        torch._dynamo.reset()
        plain = torch.compile(model, backend="aot_eager")
        for given in ((edge_index, edge_weight), (SobolevOperators(graph30, 2),), (graph30,)):
            torch.testing.assert_close(plain(x, *given), model(x, *given))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("norm", ["layer_norm", "graph_norm", "instance_norm", "pair_norm", "batch_norm"])
def test_norms_by_graph_keep_the_graphs_of_a_batch_apart(graph30, path5, norm):
    torch.manual_seed(0)
    model = SSobGNN(4, 6, 2, alpha=2, norm=norm).eval()
    graphs = [(torch.randn(graph.num_nodes, 4), *graph.edges()) for graph in (graph30, path5)]
    data = Batch.from_data_list([Data(x, edge_index, edge_weight=weight) for x, edge_index, weight in graphs])
    apart = torch.cat([model(*graph) for graph in graphs])
    for size in (None, 2):
        got = model(data.x, data.edge_index, data.edge_weight, batch=data.batch, batch_size=size)
        torch.testing.assert_close(got, apart, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norm", [None, "layer_norm", "batch_norm"])
@pytest.mark.parametrize("options", [{}, {"residual": True}, {"jk": "lstm"}, {"learn_epsilon": True}])
def test_signals_of_one_graph_are_the_model_of_each(graph30, norm, options):
    torch.manual_seed(0)
    model = SSobGNN(4, 6, 2, alpha=2, norm=norm, **options).eval()
    x = torch.randn(3, 30, 4)
    got = model(x, *graph30.edges())
    torch.testing.assert_close(got, torch.stack([model(signal, graph30) for signal in x]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"norm": "layer_norm", "residual": True}, {"norm": "batch_norm"}, {"jk": "cat", "act": "elu"}]
)
@pytest.mark.filterwarnings("ignore:All edge weights are 1")
def test_a_model_goes_through_to_hetero_and_drops_in_training_alone(options):
    kinds = (["a", "b"], [("a", "to", "b"), ("b", "back", "a"), ("a", "own", "a")])
    edges = {kind: torch.tensor([[0, 1], [2, 0]]) for kind in kinds[1]}
    x = {name: torch.randn(3, 4) for name in kinds[0]}
    model = to_hetero(SSobGNN(4, 32, 2, alpha=2, normalize="row", **options), kinds)
    weight = {kind: torch.tensor([0.5, 0.2]) for kind in kinds[1]}
    for call in ((x, edges), (x, edges, weight)):
        assert {name: list(out.shape) for name, out in model(*call).items()} == {"a": [3, 2], "b": [3, 2]}
    assert not torch.equal(model(x, edges)["a"], model(x, edges)["a"])
    model.eval()
    assert torch.equal(model(x, edges)["a"], model(x, edges)["a"])
    assert not torch.equal(model(x, edges)["a"], model(x, edges, weight)["a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jk": "first"}, r'`jk` must be "last", "cat", "max", "lstm" or None, but got \'first\''),
        ({"num_layers": 2.0}, "`num_layers` must be an integer, but got 2.0"),
        ({"num_layers": 0}, "`num_layers` must be at least 1"),
        ({"dropout": 1.0}, "`dropout` must be in"),
        ({"num_layers": True}, "`num_layers` must be an integer, but got True"),
    ],
)
def test_options_that_are_none_are_refused_in_one_line(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        SSobGNN(4, 6, 2, **options)
