"""Claims about propagation on CPUs, in ratios of one run; each peer is warm and has its coefficients ready.

- peers: alpha = 4 orders in one pass are 3x as fast forward, and 2x forward + backward, as torch's sparse CSR product
  (MKL) once per order, its fastest peer; and 100x as fast as PyG's GCNConv on an edge list once per order.
- orders: one pass serves all orders: alpha = 4 costs at most 1.6x of alpha = 1 forward, 2.5x forward + backward. Time
  is O(alpha |E| h): per entry and order it grows neither with alpha nor with the number of edges.
- weights: the backward with gradients for edge weights takes at most 3x the time of the backward without them.
- epoch: a training epoch of a 2-layer S-SobGNN (alpha = 3, hidden 64) on Isolet's graph (7 797 nodes, 617 features,
  k = 30) is 8x as fast as the same model made of PyG's GCNConv, one for each power and layer. Where SOBGNN_DATA names
  no folder with Isolet, random points of its size stand for it: the work is the same.
- memory: operators add less than 10 % to the memory of their graph, and are built in time linear in its edges.

Run: python -m benchmarks.propagation [--cases peers,orders,weights,epoch,memory] [--nodes 100000]
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import copy_bandwidth, line, machine, medians
from sobgnn import Graph, SobolevOperators, SSobGNN, knn_graph
from sobgnn.propagation import SobolevCSR, propagate, propagate_sum, scales

K, WIDTH = 30, 32
FEATURES, CLASSES, HIDDEN, ALPHA = 617, 26, 64, 3  # of the epoch


def pattern(
    kind: str, nodes: int, k: int, *, device: str = "cpu", seed: int = 0, hub: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """CSR of a symmetric graph: ``kind`` "local" draws neighbors within 200 rows, "random" anywhere.

    ``hub`` links node 0 to that many others besides.
    """
    generator = torch.Generator(device).manual_seed(seed)
    i = torch.arange(nodes, device=device).repeat_interleave(k)
    if kind == "local":
        offset = torch.randint(1, 401, i.shape, device=device, generator=generator) - 200
        j = (i + offset).remainder(nodes)
    else:
        j = torch.randint(nodes, i.shape, device=device, generator=generator)
    if hub:
        other = torch.arange(1, min(hub + 1, nodes), device=device)
        i, j = torch.cat([i, torch.zeros_like(other)]), torch.cat([j, other])
    i, j = i[i != j], j[i != j]
    keys = torch.unique(torch.cat([i * nodes + j, j * nodes + i]))
    i, j = keys // nodes, keys % nodes
    # A weight from the pair alone, so that both directions have the same.
    low, high = torch.minimum(i, j), torch.maximum(i, j)
    weight = 0.05 + 0.95 * ((low * 7919 + high * 104729) % 10007).float() / 10007
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    indptr[1:] = torch.bincount(i, minlength=nodes).cumsum(0)
    return indptr, j.int(), weight


def csr_of(graph: tuple[Tensor, Tensor, Tensor], alpha: int) -> SobolevCSR:
    """The normalized operators of orders 1 .. alpha on that graph, with ε = 1."""
    return SobolevOperators(Graph(*graph), alpha).csr()


def matrices(operators: SobolevCSR) -> list[Tensor]:
    """Each order written out as torch's sparse CSR, self-loops included: what a peer multiplies by."""
    indptr, indices, weight = operators[:3]
    nodes = indptr.numel() - 1
    counts = indptr.diff()
    device = indptr.device
    i = torch.arange(nodes, device=device).repeat_interleave(counts)
    diagonal = torch.arange(nodes, device=device)
    i, j = torch.cat([i, diagonal]), torch.cat([indices.long(), diagonal])
    w = torch.cat([weight, weight.new_full((nodes,), operators.epsilon)]).double()
    order = torch.argsort(i * nodes + j)
    i, j, w = i[order], j[order], w[order]
    scale = operators.column_scale.double()
    base = w * (scale[i, 0] * scale[j, 0])
    starts = (indptr + torch.arange(nodes + 1, device=device)).int()
    result = []
    for rho in range(1, scale.shape[1]):
        values = (base**rho * scale[i, rho] * scale[j, rho]).float()
        result.append(torch.sparse_csr_tensor(starts, j.int(), values, (nodes, nodes)))
    return result


def signals(nodes: int, alpha: int) -> tuple[Tensor, Tensor]:
    """x [N, h] and g [N, alpha, h]."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(nodes, WIDTH, generator=generator), torch.randn(nodes, alpha, WIDTH, generator=generator)


def peers(nodes: int, alpha: int = 4) -> None:
    """MKL and PyG. The graph is symmetric, so MKL's backward multiplies by the same matrices."""
    from torch_geometric.nn import GCNConv

    bandwidth = copy_bandwidth()
    layer = GCNConv(WIDTH, WIDTH, bias=False, normalize=False)
    layer.lin = nn.Identity()
    for kind in ("local", "random"):
        graph = pattern(kind, nodes, K)
        operators, edges = csr_of(graph, alpha), graph[1].numel()
        case = f"{kind} n={nodes} e={edges / 1e6:.1f}M h={WIDTH}"
        x, g = signals(nodes, alpha)
        slices, leaf = [g[:, order].contiguous() for order in range(alpha)], x.clone().requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            orders = matrices(operators)
        targets = torch.arange(nodes).repeat_interleave(orders[0].crow_indices().diff())
        edge_index, values = torch.stack([orders[0].col_indices().long(), targets]), [m.values() for m in orders]

        def pyg(leaf=leaf, edge_index=edge_index, values=values):
            return [layer(leaf, edge_index, value) for value in values]

        quick = {
            "propagate": lambda s=operators, x=x: propagate(s, x),
            "propagate_sum": lambda s=operators, g=g: propagate_sum(s, g),
            "MKL": lambda m=orders, x=x: [order @ x for order in m],
            "MKL back": lambda m=orders, g=slices: sum(order @ part for order, part in zip(m, g, strict=True)),
        }
        slow = {"PyG": pyg, "PyG both": lambda leaf=leaf, g=slices, pyg=pyg: torch.autograd.grad(pyg(), leaf, g)}
        seconds = medians(quick, rounds=11) | medians(slow, rounds=3, warm=1)
        print(f"{case:<34} " + "  ".join(f"{name} {1e3 * value:.1f} ms" for name, value in seconds.items()))
        forward, both = seconds["propagate"], seconds["propagate"] + seconds["propagate_sum"]
        print(line(case, "MKL x alpha, forward", seconds["MKL"] / forward, 3.0))
        print(line(case, "MKL x alpha, forward + backward", (seconds["MKL"] + seconds["MKL back"]) / both, 2.0))
        print(line(case, "GCNConv x alpha, forward", seconds["PyG"] / forward, 100.0))
        print(line(case, "GCNConv x alpha, forward + backward", seconds["PyG both"] / both, 100.0))
        # What must move: each index, weight, scale and row once, the output written and, before that, read.
        fixed = 8 * edges + 8 * nodes + 2 * 4 * nodes * (alpha + 1)
        for name, rows in (("propagate", 1 + 2 * alpha), ("propagate_sum", alpha + 2)):
            share = (fixed + 4 * WIDTH * nodes * rows) / seconds[name] / bandwidth
            print(f"{case:<34} {name}: {share:.0%} of the copy bandwidth, counting each row once")


def orders(nodes: int) -> None:
    """The number of orders and of edges."""
    for kind in ("local", "random"):
        work, counts = {}, {}
        for k in (K // 2, K):
            graph = pattern(kind, nodes, k)
            counts[k] = graph[1].numel()
            for alpha in (1, 2, 4, 8):
                operators, (x, g) = csr_of(graph, alpha), signals(nodes, alpha)
                work[k, alpha, "propagate"] = lambda s=operators, x=x: propagate(s, x)
                work[k, alpha, "propagate_sum"] = lambda s=operators, g=g: propagate_sum(s, g)
        seconds = medians(work, rounds=7)
        each = {}
        for k, alpha, name in work:
            each[k, alpha, name] = 1e9 * seconds[k, alpha, name] / (counts[k] * alpha)
        for k, count in counts.items():
            case = f"{kind} n={nodes} e={count / 1e6:.1f}M h={WIDTH}"
            for name in ("propagate", "propagate_sum"):
                found = "  ".join(f"alpha={alpha} {each[k, alpha, name]:.2f}" for alpha in (1, 2, 4, 8))
                print(f"{case:<34} {name}: ns per entry and order  {found}")
        case = f"{kind} n={nodes} h={WIDTH}"
        one, four = ([seconds[K, alpha, name] for name in ("propagate", "propagate_sum")] for alpha in (1, 4))
        print(line(case, "alpha = 4 over alpha = 1, forward", four[0] / one[0], 1.6, at_most=True))
        print(line(case, "alpha = 4 over alpha = 1, fwd + bwd", sum(four) / sum(one), 2.5, at_most=True))
        both = {
            at: each[(*at, "propagate")] + each[(*at, "propagate_sum")]
            for at in [(k, a) for k in counts for a in (2, 4, 8)]
        }
        print(line(case, "ns: alpha = 8 over alpha = 2", both[K, 8] / both[K, 2], 1.25, at_most=True))
        print(line(case, "ns: 2 |E| over |E|, alpha = 4", both[K, 4] / both[K // 2, 4], 1.25, at_most=True))


def weights(nodes: int, alpha: int = 4) -> None:
    """The backward of one propagation, its forward done once: to x, and to learned weights."""
    for kind in ("local", "random"):
        indptr, indices, weight = graph = pattern(kind, nodes, K)
        x, g = signals(nodes, alpha)
        leaf, x = weight.clone().requires_grad_(), x.requires_grad_()
        scale = scales(indptr, leaf, alpha, 1.0)
        learned = propagate(SobolevCSR(indptr, indices, leaf, *graph, scale, scale, 1.0), x)
        plain = propagate(csr_of(graph, alpha), x)
        work = {
            "without": lambda x=x, g=g, out=plain: torch.autograd.grad(out, [x], g, retain_graph=True),
            "with": lambda x=x, w=leaf, g=g, out=learned: torch.autograd.grad(out, [x, w], g, retain_graph=True),
        }
        seconds = medians(work, rounds=7)
        case = f"{kind} n={nodes} e={weight.numel() / 1e6:.1f}M h={WIDTH}"
        print(f"{case:<34} " + "  ".join(f"{name} {1e3 * value:.1f} ms" for name, value in seconds.items()))
        print(line(case, "backward with weights / without", seconds["with"] / seconds["without"], 3.0, at_most=True))


def points() -> tuple[str, Tensor, Tensor]:
    """Name, features and labels."""
    if os.environ.get("SOBGNN_DATA"):
        from sobgnn.datasets import load

        data = load("isolet")
        return "Isolet", torch.from_numpy(np.ascontiguousarray(data.X, np.float32)), torch.from_numpy(data.y).long()
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (7797,), generator=generator)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    return "points like Isolet", centres[y] + torch.randn(7797, FEATURES, generator=generator), y


class PowersGCN(nn.Module):
    """S-SobGNN from PyG's layers, one for each order and layer; with one order, GCN."""

    def __init__(self, sizes: Sequence[int], orders: int) -> None:
        from torch_geometric.nn import GCNConv

        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(GCNConv(i, o, normalize=False) for _ in range(orders)) for i, o in pairwise(sizes)
        )
        self.mu = nn.ParameterList(torch.full((orders,), 1 / orders) for _ in self.layers)

    def copy_(self, model: SSobGNN) -> PowersGCN:
        """With the weights of ours."""
        with torch.no_grad():
            for mine, theirs, mu in zip(self.layers, model.layers, self.mu, strict=True):
                mu.copy_(theirs.mu)
                for order, conv in enumerate(mine):
                    conv.lin.weight.copy_(theirs.weight[order].T)
                    conv.bias.copy_(theirs.bias[order])
        return self

    def forward(self, x: Tensor, edge_index: Tensor, weights: list[Tensor]) -> Tensor:
        for i, orders in enumerate(self.layers):
            x = F.dropout(x, 0.5, self.training and i > 0)
            parts = [conv(x, edge_index, w) for conv, w in zip(orders, weights, strict=True)]
            last = i == len(self.layers) - 1
            x = sum(mu * (part if last else part.relu()) for mu, part in zip(self.mu[i], parts, strict=True))
        return x


def edges_of(operators: SobolevOperators, device: torch.device | str = "cpu") -> tuple[Tensor, list[Tensor]]:
    """What PowersGCN reads: the edges, self-loops among them, and their weights in each order."""
    orders = [operators.matrix(rho).tocoo() for rho in range(1, operators.alpha + 1)]
    edge_index = torch.from_numpy(np.stack([orders[0].col, orders[0].row])).long().to(device)
    return edge_index, [torch.from_numpy(order.data).float().to(device) for order in orders]


def epoch(nodes: int) -> None:
    """An epoch: forward, loss on a tenth of the nodes, backward and Adam's step, both models from the same weights."""
    name, x, y = points()
    graph = knn_graph(x.numpy(), k=K)
    operators = SobolevOperators(graph, alpha=ALPHA)
    torch.manual_seed(0)
    model = SSobGNN(FEATURES, HIDDEN, CLASSES, alpha=ALPHA)
    other = PowersGCN([FEATURES, HIDDEN, CLASSES], ALPHA).copy_(model)
    edge_index, weights = edges_of(operators)
    propagated = operators.propagate(x)
    with torch.no_grad():
        difference = (model.eval()(x, operators) - other.eval()(x, edge_index, weights)).abs().max().item()
    print(f"largest difference of the two models' logits before training: {difference:.1e}")
    known = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[: len(y) // 10]
    rows = operators.rows(known)
    ours, theirs = torch.optim.Adam(model.parameters(), 0.01), torch.optim.Adam(other.parameters(), 0.01)
    model.train()
    other.train()

    def our_epoch() -> None:
        ours.zero_grad()
        F.cross_entropy(model(x, operators, propagated=propagated, rows=rows), y[known]).backward()
        ours.step()

    def peer_epoch() -> None:
        theirs.zero_grad()
        F.cross_entropy(other(x, edge_index, weights)[known], y[known]).backward()
        theirs.step()

    seconds = medians({"S-SobGNN": our_epoch}, rounds=21) | medians({"GCNConv": peer_epoch}, rounds=3, warm=1)
    case = f"{name} n={len(x)} e={graph.num_edges / 1e6:.2f}M"
    print(f"{case:<34} S-SobGNN {1e3 * seconds['S-SobGNN']:.1f} ms  GCNConv {1e3 * seconds['GCNConv']:.0f} ms an epoch")
    print(line(case, "GCNConv per power, whole epoch", seconds["GCNConv"] / seconds["S-SobGNN"], 8.0))


def memory(nodes: int, alpha: int = 6) -> None:
    """What operators add to their graph, and how the time to build them grows with its edges."""
    graphs = [Graph(*pattern("random", size, K)) for size in (nodes // 4, nodes // 2, nodes)]
    seconds = [medians({"": partial(SobolevOperators, graph, alpha)}, rounds=3, warm=1)[""] for graph in graphs]
    slope = float(np.polyfit(np.log([graph.num_edges for graph in graphs]), np.log(seconds), 1)[0])
    case = f"random n={nodes} e={graphs[-1].num_edges / 1e6:.1f}M alpha={alpha}"
    print(f"{case:<34} built in {seconds[-1]:.2f} s")
    added = SobolevOperators(graphs[-1], alpha).nbytes / graphs[-1].nbytes
    print(line(case, "memory added / graph", added, 0.1, at_most=True))
    print(line(case, "time ~ edges to the power of", slope, 1.15, at_most=True))


CASES = {"peers": peers, "orders": orders, "weights": weights, "epoch": epoch, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--nodes", type=int, default=100_000)
    options = parser.parse_args()
    print(machine())
    for name in options.cases.split(","):
        CASES[name](options.nodes)


if __name__ == "__main__":
    main()
