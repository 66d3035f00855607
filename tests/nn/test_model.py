from __future__ import annotations

import pytest
import torch
from torch_geometric.nn import GCNConv

from sobgnn import SobolevOperators, SSobGNN


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_some_rows_are_rows_of_the_whole(graph30, layers):
    model = SSobGNN(5, 8, 3, num_layers=layers, self_branch=True).eval()
    operators = SobolevOperators(graph30)
    x, index = torch.randn(30, 5), torch.tensor([3, 17, 4])
    whole = model(x, operators)
    torch.testing.assert_close(model(x, operators, rows=operators.rows(index)), whole[index])
    field = operators.receptive_field(index, layers)
    torch.testing.assert_close(model(x[field[0].columns], operators, rows=field), whole[index])
    known = field[0].propagate(x[field[0].columns])
    torch.testing.assert_close(model(x[field[0].columns], operators, rows=field, propagated=known), whole[index])
    with pytest.raises(ValueError, match=f"one entry per layer, {layers}, but got {layers + 1}"):
        model(x, operators, rows=[*field, field[-1]])


def test_one_order_with_unit_loops_is_a_gcn_network(graph30):
    model = SSobGNN(4, 6, 3, alpha=1, epsilon=1.0).eval()
    first, second = GCNConv(4, 6), GCNConv(6, 3)
    with torch.no_grad():
        for layer, gcn in zip(model.layers, (first, second), strict=True):
            layer.weight[0] = gcn.lin.weight.T
            layer.bias[0].normal_()
            gcn.bias.copy_(layer.bias[0])
            layer.mu.fill_(1)
    x, edges = torch.randn(30, 4), graph30.edges()
    torch.testing.assert_close(model(x, *edges), second(first(x, *edges).relu(), *edges))


def test_logits_may_be_negative_and_dropout_is_for_training_alone(graph30):
    model = SSobGNN(4, 32, 3)
    operators, x = SobolevOperators(graph30), torch.randn(30, 4)
    assert (model.eval()(x, operators) < 0).any()
    torch.testing.assert_close(model(x, operators), model(x, operators), rtol=0, atol=0)
    model.train()
    assert not torch.equal(model(x, operators), model(x, operators))


def test_the_papers_form_has_relu_on_every_filter_of_the_last_layer_too(graph30):
    model = SSobGNN(4, 8, 3, alpha=2, last_activation=True).eval()
    operators, x = SobolevOperators(graph30, alpha=2), torch.randn(30, 4)
    hidden = model.layers[0](x, operators)
    last = model.layers[1]
    filters = (operators.propagate(hidden).unsqueeze(2) @ last.weight).squeeze(2) + last.bias
    torch.testing.assert_close(model(x, operators), (filters.relu() * last.mu[:, None]).sum(dim=1))
    assert (filters < 0).any()  # else ReLU changes nothing
