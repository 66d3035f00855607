from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from sobgnn import Graph
from sobgnn.baselines.attention import AttentionConv, AttentionNet, Kind
from sobgnn.baselines.edges import Edges, edges_of, own_edges
from sobgnn.baselines.networks import PaperHead
from sobgnn.propagation.attention import EdgePattern
from sobgnn.propagation.attention.walks import Long
from sobgnn.training import Schedule, Task, predict_members, train_members
from sobgnn.training.loop import initial_parameters
from sobgnn.training.state import forward_members
from tests.baselines.conftest import F, N

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
        own = slice(int(edges.pattern.indptr[node]), int(edges.pattern.indptr[node + 1]))
        loop = edges.pattern.weight[own][edges.pattern.sources[own] == node]
        incoming = dense[node][dense[node] > 0]
        assert loop.tolist() == pytest.approx([incoming.mean() if len(incoming) else 0.0])


def both_ways(pattern: EdgePattern) -> tuple[Tensor, Tensor]:
    """The weights of edges as a dense matrix [rows, nodes], by rows and by nodes; NaN where there is none."""
    shape = (len(pattern.indptr) - 1, len(pattern.t_indptr) - 1)
    by_row, by_node = torch.full(shape, torch.nan), torch.full(shape[::-1], torch.nan)
    for dense, (indptr, other, weight) in ((by_row, pattern[:3]), (by_node, pattern[3:])):
        dense[torch.arange(len(dense)).repeat_interleave(indptr.diff()), other.long()] = weight
    return by_row, by_node.T


def test_own_edges_are_each_members_rows_of_the_graph(graph: Graph) -> None:
    shared = edges_of(graph, torch.tensor([39, 3, 20, 7, 11]), loops=True)
    rows = torch.tensor([[4, 0], [2, 1], [0, 3]])
    own = own_edges(shared, rows)
    whole, _ = both_ways(shared.pattern)
    for dense in both_ways(own.pattern):
        apart = dense.view(2, 3, N, 3)  # row, member, node, member
        for i in range(2):
            for s in range(3):
                torch.testing.assert_close(apart[i, s, :, s], whole[rows[s, i]], equal_nan=True)
                assert apart[i, s].isfinite().sum() == whole[rows[s, i]].isfinite().sum()
    assert (own.nodes // 3).view(2, 3).T.tolist() == shared.nodes[rows].tolist()
    assert own.own_members(3).tolist() == own.nodes.tolist()
    assert shared.own_members(3).tolist() == [3 * node + s for node in (39, 3, 20, 7, 11) for s in range(3)]


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_layers_on_cuda_are_those_on_the_cpu(graph: Graph, x: Tensor, kind: Kind) -> None:
    torch.manual_seed(0)
    net = AttentionNet(kind, [F, 16, C], heads=3, dropout=0.0)
    edges, there = (edges_of(graph.to(device), loops=kind != "Transformer") for device in ("cpu", "cuda"))
    want = net(x, edges, edges)
    got = net.to("cuda")(x.cuda(), there, there)
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("headed", [False, True], ids=["plain", "head=paper"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_at_once_on_cuda_are_the_forward_mapped_over_them(
    graph: Graph, x: Tensor, kind: Kind, headed: bool, precision: str
) -> None:
    net: nn.Module = AttentionNet(kind, [F, 16, 8, C], heads=3, dropout=0.5)
    net = PaperHead(net, 0.5) if headed else net
    seeds, keys = [3, 4], torch.tensor([12345, 999])
    start = initial_parameters(net, seeds, torch.device("cpu"))
    rates = {name: torch.tensor([0.3, 0.6]) for name, _ in net.named_buffers()}
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        there = graph.to(device)
        edges = [edges_of(there, rows, loops=kind != "Transformer") for rows in (None, torch.tensor([39, 3, 20, 7]))]
        edges = [Edges(e.pattern, None if e.index is None else e.index.to(device)) for e in edges]
        stacked = {name: value.to(device, dtype).requires_grad_() for name, value in start.items()}
        buffers = {name: value.to(device) for name, value in rates.items()}
        call = ((x.to(device, dtype), *edges), {})
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision(precision)
        try:
            for training in (True, False):
                own = keys.to(device) if training else None
                logits, _ = forward_members(net.to(device), stacked, buffers, call, training=training, keys=own)
                probe = torch.arange(logits.numel(), device=device).view(logits.shape).sin() * 1e-5
                to = torch.autograd.grad((logits * probe).sum(), list(stacked.values())) if training else ()
                results.append([logits.detach(), *to])
        finally:
            torch.set_float32_matmul_precision(before)
    for want, got in zip(results[:2], results[2:], strict=True):
        for part in (slice(1), slice(1, None)):  # logits; all gradients, some of which are small sums of large terms
            theirs, ours = (torch.cat([v.flatten().double().cpu() for v in (*side[part], torch.ones(1) * 1e-9)])
                            for side in (want, got))  # fmt: skip
            assert (ours - theirs).norm() / theirs.norm() < (1e-5 if precision == "highest" else 5e-3)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("sizes", [[F, 16, C], [F, 8, 40], [F, C]], ids=["narrow", "wide", "one layer"])
@pytest.mark.parametrize("kind", KINDS)
def test_members_trained_on_their_own_rows_have_the_gradients_of_all_rows(
    graph: Graph, x: Tensor, kind: Kind, sizes: list[int], precision: str
) -> None:
    net = AttentionNet(kind, sizes, heads=3, dropout=0.5).cuda()
    stacked = {n: v.requires_grad_() for n, v in initial_parameters(net, [3, 4, 5], torch.device("cuda")).items()}
    edges = edges_of(graph.to("cuda"), loops=kind != "Transformer")
    generator = torch.Generator().manual_seed(0)
    weight = torch.rand(3, N, generator=generator) * (torch.rand(3, N, generator=generator) < 0.3)
    weight[1, weight[1].argmax()] = 0  # not all members have equally many
    task = Task((torch.arange(N) % sizes[-1]).cuda(), weight.cuda())
    rows = task.trained_rows()
    inputs = (x.cuda(), edges, edges)
    own = net.own_rows(rows, *inputs)
    assert own is not None
    assert rows.shape[1] < N
    keys, results = torch.tensor([12345, 999, 7]).cuda(), []
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for call, part in ((inputs, task), (own, task.at(rows))):
            logits, _ = forward_members(net, stacked, {}, (call, {}), training=True, keys=keys)
            losses = logits.logsumexp(2) - logits.gather(2, part.target.expand(logits.shape[:2])[..., None])[..., 0]
            total = (losses * part.train_weight).sum()
            results.append([total, *torch.autograd.grad(total, list(stacked.values()))])
    finally:
        torch.set_float32_matmul_precision(before)
    for want, got in zip(*results, strict=True):
        assert (got - want).norm() <= (1e-5 if precision == "highest" else 5e-3) * want.norm() + 1e-6


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_many_edges_have_the_results_and_gradients_of_others(
    graph: Graph, x: Tensor, kind: Kind, precision: str
) -> None:
    net, seeds = AttentionNet(kind, [F, 32, 16, C], heads=3, dropout=0.5).cuda(), range(3, 19)
    stacked = {n: v.requires_grad_() for n, v in initial_parameters(net, seeds, torch.device("cuda")).items()}
    keys, results = (torch.arange(len(seeds)) * 77 + 12345).cuda(), []
    own = [torch.randperm(N, generator=torch.Generator().manual_seed(s))[:24] for s in seeds]
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        for most in (256, 3):
            edges = edges_of(graph.to("cuda"), loops=kind != "Transformer")
            last = own_edges(edges, torch.stack(own).cuda())
            for each in (edges, last):
                each.__dict__["long"] = Long.of(each.pattern, most, segment=2)
            logits, _ = forward_members(net, stacked, {}, ((x.cuda(), edges, last), {}), training=True, keys=keys)
            probe = torch.arange(logits.numel(), device="cuda").view(logits.shape).sin()
            results.append([logits, *torch.autograd.grad((logits * probe).sum(), list(stacked.values()))])
            assert all((cut is None) == (most == 256) for each in (edges, last) for cut in each.long[:2])
    finally:
        torch.set_float32_matmul_precision(before)
    found = zip(*([value.flatten(1) for value in each] for each in results), strict=True)
    errors = torch.stack([(got - want).norm(dim=1) / (want.norm(dim=1) + 1e-9) for want, got in found]).amax(dim=0)
    if precision == "highest":
        assert errors.max() <= 1e-5
    else:
        # Where float16 rounds a value to the other side of a ReLU's zero, all gradients of that member jump.
        assert errors.median() <= 1e-3


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_members_at_once_give_the_same_bits_every_time_and_whoever_trains_beside_them(
    graph: Graph, x: Tensor, kind: Kind
) -> None:
    net = AttentionNet(kind, [F, 16, C], heads=2, dropout=0.5)
    edges = edges_of(graph.to("cuda"), loops=kind != "Transformer")
    call = (x.cuda(), edges, edges)
    target, weight = (torch.arange(N) % C).cuda(), torch.full((2, N), 1 / N, device="cuda")
    schedule = Schedule(epochs=3, patience=None)
    first, again = (train_members(net, call, Task(target, weight), [3, 4], schedule).parameters for _ in range(2))
    assert all(torch.equal(value, again[name]) for name, value in first.items())
    alone = train_members(net, call, Task(target, weight[:1]), [4], Schedule(epochs=1, patience=None))
    beside = train_members(net, call, Task(target, weight), [3, 4], Schedule(epochs=1, patience=None))
    own = predict_members(net.cuda(), alone.parameters, call)[0]
    torch.testing.assert_close(own, predict_members(net, beside.parameters, call)[1], rtol=1e-3, atol=1e-3)
