"""Operators that are kept belong to the graph they were made from, and to no other."""

from __future__ import annotations

import torch

from sobgnn import SobolevConv
from sobgnn.nn import conv as conv_module
from tests.oracle import random_graph


def counted(monkeypatch):
    """How often operators are built."""
    built = []
    original = conv_module.EdgeOperators.__init__
    monkeypatch.setattr(
        conv_module.EdgeOperators, "__init__", lambda *given, **options: built.append(1) or original(*given, **options)
    )
    return built


def test_the_same_edges_are_built_once_and_others_again(graph30, monkeypatch):
    built = counted(monkeypatch)
    layer, x = SobolevConv(4, 3, cached=True), torch.randn(30, 4)
    edge_index, edge_weight = graph30.edges()
    first = layer(x, edge_index, edge_weight)
    assert torch.equal(layer(x, edge_index.clone(), edge_weight.clone()), first)
    assert len(built) == 1
    other = random_graph(seed=8, nodes=30, density=0.3)
    layer(x, *other.edges())
    assert len(built) == 2


def test_edges_changed_in_place_even_past_torch_are_noticed(graph30):
    layer, plain, x = SobolevConv(4, 3, cached=True), SobolevConv(4, 3), torch.randn(30, 4)
    plain.load_state_dict(layer.state_dict())
    edge_index, edge_weight = (tensor.clone() for tensor in graph30.edges())
    layer(x, edge_index, edge_weight)
    edge_weight.numpy()[:] *= 0.5  # torch's version counter does not see this
    torch.testing.assert_close(layer(x, edge_index, edge_weight), plain(x, edge_index, edge_weight))
    layer(x[:, :4].double().float(), edge_index, edge_weight)
    double = layer.double()(x.double(), edge_index, edge_weight)
    torch.testing.assert_close(double.float(), plain(x, edge_index, edge_weight))


def test_learned_weights_are_never_kept(graph30, monkeypatch):
    built = counted(monkeypatch)
    layer, x = SobolevConv(4, 3, cached=True), torch.randn(30, 4)
    edge_index, edge_weight = graph30.edges()
    weight = edge_weight.clone().requires_grad_()
    for _ in range(2):
        layer(x, edge_index, weight).sum().backward()
    assert len(built) == 2


def test_what_was_kept_in_inference_serves_training(graph30):
    layer, x = SobolevConv(4, 3, cached=True), torch.randn(30, 4)
    with torch.inference_mode():
        layer(x, *graph30.edges())
    layer(x.requires_grad_(), *graph30.edges()).sum().backward()
    assert x.grad is not None
