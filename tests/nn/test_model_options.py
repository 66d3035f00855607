"""SSobGNN in the form of PyG's BasicGNN: norm, act, jk, residual; and through torch's compilers."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

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
    torch.testing.assert_close(model(x, operators), model.classify(torch.cat([first, second], dim=1)))
    with pytest.raises(ValueError, match="Leave `rows` out"):
        model(x, operators, rows=operators.rows(torch.tensor([1])))


def test_unknown_channels_come_from_the_first_input(graph30):
    model = SSobGNN(-1, 8, 3, alpha=2, residual=True)
    assert model(torch.randn(30, 7), *graph30.edges()).shape == (30, 3)
    assert model.layers[0].in_channels == 7


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
