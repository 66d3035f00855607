from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor

from sobgnn import Graph
from sobgnn.paper.models.attention import LINK_WEIGHT, AttentionConv, AttentionNet
from sobgnn.paper.models.edges import edges_of
from sobgnn.paper.models.links import Links
from sobgnn.training import Schedule, Task, predict_members, train_members
from tests.paper.models.conftest import F as COLUMNS
from tests.paper.models.conftest import N

pytestmark = pytest.mark.trains

C, H = 5, 3


def test_the_loss_is_that_of_pygs_layer_on_the_same_pairs(graph: Graph, x: Tensor) -> None:
    torch.manual_seed(0)
    ours = AttentionConv("SuperGAT", COLUMNS, C, H, concat=True)
    theirs = pyg.SuperGATConv(COLUMNS, C, H, attention_type="MX", edge_sample_ratio=1.0)
    theirs.lin.weight.data.copy_(ours.weight[0].T)
    links = Links(edges_of(graph, loops=True))
    others = links.others(torch.tensor(7), 0)
    row, column = (others >= 0).nonzero().unbind(dim=1)
    theirs.train()
    theirs(x, graph.edges()[0], neg_edge_index=torch.stack([others[row, column], row]))
    edge = theirs.att_y == 1
    assert int(edge.sum()) == graph.num_edges + N
    parts = [
        F.binary_cross_entropy_with_logits(theirs.att_x.mean(dim=1)[is_one], theirs.att_y[is_one])
        for is_one in (edge, ~edge)
    ]
    torch.testing.assert_close(links.loss(ours.values(x), others), 2 / 3 * parts[0] + 1 / 3 * parts[1])


def test_other_pairs_have_no_edges_and_come_in_both_directions(graph: Graph) -> None:
    links = Links(edges_of(graph, loops=True))
    adjacent = torch.from_numpy(graph.to_scipy().toarray() > 0) | torch.eye(N, dtype=torch.bool)
    seen = torch.zeros(N, N)
    for key in range(200):
        others = links.others(torch.tensor(key), 1)
        drawn = torch.zeros(N, N)
        row, column = (others >= 0).nonzero().unbind(dim=1)
        drawn.index_put_((row, others[row, column]), torch.ones(len(row)), accumulate=True)
        assert torch.equal(drawn, drawn.T)
        seen += drawn
    assert not bool((seen.bool() & adjacent).any())
    assert bool((seen.bool() | adjacent).all())  # and none is left out for good
    assert not torch.equal(links.others(torch.tensor(1), 1), links.others(torch.tensor(1), 2))
    keys = torch.tensor([1, 2])
    both = links.others(keys, 1)
    assert torch.equal(both[1], links.others(keys[1], 1))
    assert others.shape[1] == 2 * round(0.2 * (graph.num_edges + N) / N)


def test_a_graph_that_has_every_edge_has_no_other_pairs() -> None:
    index = (1 - torch.eye(5)).nonzero().T
    links = Links(edges_of(Graph.from_edges(index, torch.ones(20), num_nodes=5), loops=True))
    others = links.others(torch.tensor(3), 0)
    assert bool((others == -1).all())
    value = torch.ones(5, 2, 3)
    torch.testing.assert_close(links.loss(value, others), 2 / 3 * F.softplus(torch.tensor(-3.0)))


def test_members_trained_together_are_those_trained_one_by_one(graph: Graph, x: Tensor) -> None:
    net = AttentionNet("SuperGAT", [COLUMNS, 4, 3], heads=2, dropout=0.5).double()
    edges = edges_of(graph, loops=True)
    call = (x.double(), edges, edges, Links(edges))
    target, weight = torch.arange(N) % 3, torch.full((2, N), 1 / N)
    schedule = Schedule(epochs=4, lr=0.1, patience=None)
    both = train_members(net, call, Task(target, weight), [3, 4], schedule)
    together = predict_members(net, both.parameters, call)
    alone = train_members(net, call, Task(target, weight[:1]), [4], schedule)
    torch.testing.assert_close(together[1], predict_members(net, alone.parameters, call)[0], rtol=1e-9, atol=1e-9)
    without = train_members(net, call[:3], Task(target, weight), [3, 4], schedule)
    assert (together - predict_members(net, without.parameters, call)).abs().max() > 0.01
    assert float(both.history["train_loss"].min()) > float(without.history["train_loss"].max())


def test_the_loss_is_given_in_training_alone_and_is_of_all_layers(graph: Graph, x: Tensor) -> None:
    net = AttentionNet("SuperGAT", [COLUMNS, 4, 3], heads=2, dropout=0.5)
    edges = edges_of(graph, loops=True)
    links, key = Links(edges), torch.tensor(5)
    logits, loss = net.train()(x, edges, edges, links, dropout_key=key)
    first, second = net._convs()
    hidden = net.dropout(first(x, edges).relu(), key, 1)
    want = links.loss(first.values(x), links.others(key, 0)) + links.loss(second.values(hidden), links.others(key, 1))
    torch.testing.assert_close(loss, LINK_WEIGHT * want)
    torch.testing.assert_close(logits, net(x, edges, edges, dropout_key=key))
    assert isinstance(net.eval()(x, edges, edges, links, dropout_key=key), Tensor)
