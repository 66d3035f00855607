"""Claim: on CPUs, a whole training epoch of a 2-layer S-SobGNN (alpha = 3, hidden 64) on Isolet's graph (7 797 nodes,
617 features, k = 30) is 8x as fast as the same model made of PyG's GCNConv, one for each power and layer.

An epoch is forward, loss on a tenth of the nodes, backward and Adam's step. The peer has its normalized weights ready.
Both start from the same weights, and their logits are compared before they are timed. Where SOBGNN_DATA names no folder
with Isolet, random points of its size stand for it: the work is the same.
"""

from __future__ import annotations

import os
import warnings
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.timing import line, machine, medians
from sobgnn import SobolevOperators, SSobGNN, knn_graph

NODES, FEATURES, CLASSES, HIDDEN, ALPHA, K = 7797, 617, 26, 64, 3, 30


def points() -> tuple[str, Tensor, Tensor]:
    """Name, features and labels."""
    if os.environ.get("SOBGNN_DATA"):
        from sobgnn.datasets import load

        data = load("isolet")
        return "Isolet", torch.from_numpy(np.ascontiguousarray(data.X, np.float32)), torch.from_numpy(data.y).long()
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(CLASSES, (NODES,), generator=generator)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    return "points like Isolet", centres[y] + torch.randn(NODES, FEATURES, generator=generator), y


def peer(model: SSobGNN) -> nn.Module:
    """The same model from PyG's layers, with the same weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.nn import GCNConv

    class Powers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [FEATURES, HIDDEN, CLASSES]
            self.layers = nn.ModuleList(
                nn.ModuleList(GCNConv(i, o, normalize=False) for _ in range(ALPHA)) for i, o in pairwise(sizes)
            )
            self.mu = nn.ParameterList(layer.mu.detach().clone() for layer in model.layers)
            with torch.no_grad():
                for mine, theirs in zip(self.layers, model.layers, strict=True):
                    for order, conv in enumerate(mine):
                        conv.lin.weight.copy_(theirs.weight[order].T)
                        conv.bias.copy_(theirs.bias[order])

        def forward(self, x: Tensor, edge_index: Tensor, weights: list[Tensor]) -> Tensor:
            for i, orders in enumerate(self.layers):
                if i > 0:
                    x = F.dropout(x, 0.5, self.training)
                parts = [conv(x, edge_index, w) for conv, w in zip(orders, weights, strict=True)]
                if i < len(self.layers) - 1:
                    parts = [part.relu() for part in parts]
                x = sum(mu * part for mu, part in zip(self.mu[i], parts, strict=True))
            return x

    return Powers()


def main() -> None:
    print(machine())
    name, x, y = points()
    graph = knn_graph(x.numpy(), k=K)
    operators = SobolevOperators(graph, alpha=ALPHA)
    torch.manual_seed(0)
    model = SSobGNN(FEATURES, HIDDEN, CLASSES, alpha=ALPHA)
    other = peer(model)
    orders = [operators.matrix(order).tocoo() for order in range(1, ALPHA + 1)]
    edge_index = torch.from_numpy(np.stack([orders[0].col, orders[0].row])).long()
    weights = [torch.from_numpy(order.data).float() for order in orders]
    propagated = operators.propagate(x)
    with torch.no_grad():
        difference = (model.eval()(x, operators) - other.eval()(x, edge_index, weights)).abs().max().item()
    print(f"largest difference of the two models' logits before training: {difference:.1e}")
    known = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))[: len(y) // 10]
    rows = operators.rows(known)
    ours, theirs = torch.optim.Adam(model.parameters(), 0.01), torch.optim.Adam(other.parameters(), 0.01)
    model.train()
    other.train()

    def epoch() -> None:
        ours.zero_grad()
        F.cross_entropy(model(x, operators, propagated=propagated, rows=rows), y[known]).backward()
        ours.step()

    def peer_epoch() -> None:
        theirs.zero_grad()
        F.cross_entropy(other(x, edge_index, weights)[known], y[known]).backward()
        theirs.step()

    seconds = medians({"S-SobGNN": epoch}, rounds=21) | medians({"GCNConv": peer_epoch}, rounds=3, warm=1)
    case = f"{name} n={len(x)} e={graph.num_edges / 1e6:.2f}M"
    print(f"{case:<34} S-SobGNN {1e3 * seconds['S-SobGNN']:.1f} ms  GCNConv {1e3 * seconds['GCNConv']:.0f} ms an epoch")
    print(line(case, "GCNConv per power, whole epoch", seconds["GCNConv"] / seconds["S-SobGNN"], 8.0))


if __name__ == "__main__":
    main()
