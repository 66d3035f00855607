"""Operators that are kept belong to the graph they were made from, and to no other."""

from __future__ import annotations

import torch

from sobgnn import SobolevConv
from sobgnn.operators import EdgeOperators
from tests.oracle import random_graph


def test_the_same_edges_are_built_once_and_others_and_learned_ones_again(graph30, monkeypatch):
    built, original = [], EdgeOperators.__init__
    monkeypatch.setattr(EdgeOperators, "__init__", lambda *given, **named: built.append(1) or original(*given, **named))
    layer, x = SobolevConv(4, 3, cached=True), torch.randn(30, 4)
    edge_index, edge_weight = graph30.edges()
    first = layer(x, edge_index, edge_weight)
    assert torch.equal(layer(x, edge_index.clone(), edge_weight.clone()), first)
    assert len(built) == 1
    layer(x, *random_graph(seed=8, nodes=30, density=0.3).edges())
    assert len(built) == 2
    for _ in range(2):
        layer(x, edge_index, edge_weight.clone().requires_grad_()).sum().backward()
    assert len(built) == 4


def test_edges_changed_in_place_even_past_torch_and_other_types_are_noticed(graph30):
    layer, plain, x = SobolevConv(4, 3, cached=True), SobolevConv(4, 3), torch.randn(30, 4)
    plain.load_state_dict(layer.state_dict())
    edge_index, edge_weight = (tensor.clone() for tensor in graph30.edges())
    with torch.inference_mode():  # what is kept then serves training
        layer(x, edge_index, edge_weight)
    layer(x.requires_grad_(), edge_index, edge_weight).sum().backward()
    edge_weight.numpy()[:] *= 0.5  # torch's version counter does not see this
    torch.testing.assert_close(layer(x, edge_index, edge_weight), plain(x, edge_index, edge_weight))
    double = layer.double()(x.double(), edge_index, edge_weight)
    torch.testing.assert_close(double.float(), plain(x, edge_index, edge_weight))
