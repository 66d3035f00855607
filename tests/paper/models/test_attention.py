from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from sobgnn import Graph
from sobgnn.paper.models.attention import AttentionConv, AttentionNet, Kind
from sobgnn.paper.models.edges import Edges, edges_of
from sobgnn.paper.models.layers import PaperHead
from sobgnn.training import Schedule, Task, predict_members, train_members
from sobgnn.training.loop import initial_parameters
from sobgnn.training.state import forward_members
from tests.paper.models.conftest import F, N

pytestmark = pytest.mark.trains

KINDS: list[Kind] = ["GAT", "SuperGAT", "Transformer"]
C, H = 5, 3


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
        conv = pyg.SuperGATConv(*size, concat=ours.concat, attention_type="MX")
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
    ours = AttentionConv(kind, F, C, H, concat=concat)
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


@pytest.mark.parametrize("kind", KINDS)
def test_members_mapped_at_once_predict_what_those_trained_one_by_one_do(graph: Graph, x: Tensor, kind: Kind) -> None:
    # Logits and not weights: a key's bias cannot change a softmax, so its gradient is rounding; Adam makes it a step.
    net = AttentionNet(kind, [F, 4, 3], heads=2, dropout=0.0).double()
    edges = edges_of(graph, loops=kind != "Transformer")
    call: tuple[Tensor, Edges, Edges] = (x.double(), edges, edges)
    target = torch.arange(N) % 3
    weight = torch.full((2, N), 1 / N)
    schedule = Schedule(epochs=4, lr=0.1, patience=None)
    both = train_members(net, call, Task(target, weight), [3, 4], schedule)
    together = predict_members(net, both.parameters, call)
    assert together.shape == (2, N, 3)
    assert (together[0] - together[1]).abs().max() > 0.1  # else one member could stand for the other
    for s, seed in enumerate((3, 4)):
        alone = train_members(net, call, Task(target, weight[:1]), [seed], schedule)
        torch.testing.assert_close(together[s], predict_members(net, alone.parameters, call)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("headed", [False, True], ids=["plain", "head=paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_members_dropout_does_not_depend_on_those_beside_it(
    graph: Graph, x: Tensor, kind: Kind, headed: bool
) -> None:
    net: nn.Module = AttentionNet(kind, [F, 4, 4, 3], heads=2, dropout=0.5)
    net = (PaperHead(net, 0.5) if headed else net).double()
    edges = edges_of(graph, loops=kind != "Transformer")
    call = ((x.double(), edges, edges), {})
    stacked = initial_parameters(net, [3, 4, 5], torch.device("cpu"))
    keys = torch.tensor([11, 12, 12])
    rates = {name: torch.tensor([0.3, 0.6, 0.6]) for name, _ in net.named_buffers()}
    together, _ = forward_members(net, stacked, rates, call, training=True, keys=keys)
    pick = slice(1, 2)
    alone, _ = forward_members(
        net,
        {name: value[pick] for name, value in stacked.items()},
        {name: value[pick] for name, value in rates.items()},
        call,
        training=True,
        keys=keys[pick],
    )
    torch.testing.assert_close(alone[0], together[1], rtol=1e-12, atol=1e-12)
    other, _ = forward_members(net, stacked, rates, call, training=True, keys=keys + 1)
    assert not torch.allclose(other[1], together[1])  # another step drops others


def test_self_loops_have_the_mean_weight_of_their_nodes_edges(graph: Graph) -> None:
    edges = edges_of(graph, loops=True)
    dense = graph.to_scipy().toarray()
    for node in (0, 5, N - 1):
        loop = edges.weight[(edges.targets == node) & (edges.sources == node)]
        incoming = dense[node][dense[node] > 0]
        assert loop.tolist() == pytest.approx([incoming.mean() if len(incoming) else 0.0])
