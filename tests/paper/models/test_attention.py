from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from torch import Tensor, nn

from sobgnn import Graph
from sobgnn.paper.models import MODELS
from sobgnn.paper.models.attention import LINK_WEIGHT, AttentionConv, Kind, Links, edges_of
from sobgnn.training import forward_members, initial_parameters
from tests.paper.conftest import F as COLUMNS
from tests.paper.conftest import N

pytestmark = pytest.mark.trains

KINDS: list[Kind] = ["GAT", "SuperGAT", "Transformer"]
C, H = 5, 3
SETTING: dict[str, Any] = {"hidden": 4, "layers": 3, "heads": 2, "dropout": 0.5}


def pyg_layer(ours: AttentionConv) -> nn.Module:
    """PyG's layer with the weights of ours."""
    size = (ours.weight.shape[1], ours.out_channels, ours.heads)
    if ours.kind == "GAT":
        conv = pyg.GATConv(*size, concat=ours.concat, edge_dim=1)
        # Its score of an edge feature is a product of two vectors: one of them is set to 1 / c.
        pairs: list[tuple[Tensor, Tensor]] = [
            (conv.att_src, ours.source[None]), (conv.att_dst, ours.target[None]), (conv.lin.weight, ours.weight[0].T),
            (conv.lin_edge.weight, ours.edge_score.repeat_interleave(C)[:, None] / C),
            (conv.att_edge, torch.ones(1, H, C)),
        ]  # fmt: skip
    elif ours.kind == "SuperGAT":
        conv = pyg.SuperGATConv(*size, concat=ours.concat, attention_type="MX", edge_sample_ratio=1.0)
        pairs = [(conv.att_l, ours.source[None]), (conv.att_r, ours.target[None]), (conv.lin.weight, ours.weight[0].T)]
    else:
        conv = pyg.TransformerConv(*size, concat=ours.concat, edge_dim=1)
        pairs = [(conv.lin_skip.weight, ours.skip[0].T), (conv.lin_edge.weight, ours.edge.reshape(-1, 1))]
        for i, lin in enumerate((conv.lin_query, conv.lin_key, conv.lin_value)):
            pairs += [(lin.weight, ours.weight[i].T), (lin.bias, ours.map_bias[i])]
    pairs.append((conv.lin_skip.bias if ours.kind == "Transformer" else conv.bias, ours.bias))
    for target, value in pairs:
        target.data.copy_(value.detach())
    return conv


@pytest.mark.parametrize("rows", [None, torch.tensor([39, 3, 20, 7])], ids=["all nodes", "some rows"])
@pytest.mark.parametrize("concat", [True, False], ids=["concat", "mean"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_and_its_gradients_are_pygs(
    graph: Graph, x: Tensor, kind: Kind, concat: bool, rows: Tensor | None
) -> None:
    torch.manual_seed(0)
    ours = AttentionConv(kind, COLUMNS, C, H, concat=concat)
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs = pyg_layer(ours).eval()
    edge_index, weight = graph.edges()
    features = [x.clone().requires_grad_() for _ in range(2)]
    got = ours(features[0], edges_of(graph, rows, loops=kind != "Transformer"))
    want = theirs(features[1], edge_index, **({} if kind == "SuperGAT" else {"edge_attr": weight[:, None]}))
    want = want if rows is None else want[rows]
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    probe = torch.randn(got.shape)
    (got * probe).sum().backward()
    (want * probe).sum().backward()
    torch.testing.assert_close(features[0].grad, features[1].grad, rtol=1e-4, atol=1e-4)
    lin = theirs.lin_query if kind == "Transformer" else theirs.lin
    torch.testing.assert_close(ours.weight.grad[0].T, lin.weight.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "head", "links"),
    [*((kind, head, False) for kind in KINDS for head in ("plain", "paper")), ("SuperGAT", "plain", True)],
)
def test_a_members_loss_and_gradient_do_not_depend_on_those_beside_it(
    graph: Graph, x: Tensor, kind: Kind, head: str, links: bool
) -> None:
    net = MODELS[kind].build(COLUMNS, 3, {**SETTING, "head": head}).double()
    edges = edges_of(graph, loops=kind != "Transformer")
    call = ((), {"x": x.double(), "graphs": [edges] * 3, "loss": Links(edges) if links else None})
    stacked = initial_parameters(net, [3, 4, 5], torch.device("cpu"))
    rates = {name: torch.tensor([0.3, 0.6, 0.6]) for name, _ in net.named_buffers()}

    def trained(members: slice, keys: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        own = {name: value[members].clone().requires_grad_() for name, value in stacked.items()}
        buffers = {name: value[members] for name, value in rates.items()}
        logits, loss = forward_members(net, own, buffers, call, training=True, keys=keys[members])
        total = logits.square().sum() + (loss.sum() if loss is not None else 0)
        (gradient,) = torch.autograd.grad(total, next(iter(own.values())))
        return logits[-1], (loss if loss is not None else logits.sum((1, 2)))[-1], gradient[-1]

    keys = torch.tensor([11, 12, 12])
    for alone, together in zip(trained(slice(1, 2), keys), trained(slice(0, 2), keys), strict=True):
        torch.testing.assert_close(alone, together, rtol=1e-12, atol=1e-12)
    for other, together in zip(trained(slice(0, 2), keys + 1), trained(slice(0, 2), keys), strict=True):
        assert not torch.allclose(other, together)  # another step drops others


def test_the_link_loss_is_that_of_pygs_layer_on_the_same_pairs(graph: Graph, x: Tensor) -> None:
    torch.manual_seed(0)
    ours = AttentionConv("SuperGAT", COLUMNS, C, H, concat=True)
    theirs, links = pyg_layer(ours).train(), Links(edges_of(graph, loops=True))
    others = links.others(torch.tensor(7), 0)
    row, column = (others >= 0).nonzero().unbind(dim=1)
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
    assert torch.equal(seen.bool(), ~adjacent)  # and none is left out for good
    assert others.shape[1] == 2 * round(0.2 * (graph.num_edges + N) / N)


def test_the_link_loss_is_given_in_training_alone_and_is_of_all_layers(graph: Graph, x: Tensor) -> None:
    net = MODELS["SuperGAT+links"].build(COLUMNS, 3, {**SETTING, "layers": 2})
    edges = edges_of(graph, loops=True)
    links, key = Links(edges), torch.tensor(5)
    logits, loss = net.train()(x, [edges, edges], links, dropout_key=key)
    first, second = net.layers
    hidden = net.dropout(first(x, edges).relu(), key, 1)
    want = links.loss(first.values(x), links.others(key, 0)) + links.loss(second.values(hidden), links.others(key, 1))
    torch.testing.assert_close(loss, LINK_WEIGHT * want)
    torch.testing.assert_close(logits, net(x, [edges, edges], dropout_key=key))
    assert isinstance(net.eval()(x, [edges, edges], links, dropout_key=key), Tensor)
