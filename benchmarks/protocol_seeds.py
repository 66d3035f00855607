"""Claim: 50 seeds of S-SobGNN trained as one batch take at most a tenth of the time of 50 trainings one by one.

One by one is the usual way: PyG's layers (for S-SobGNN GCNConv with each order's normalized weights), torch's Adam, a
validation every 5 steps. Both sides make the same steps; a few trainings one by one are timed and stand for all.
--models all prints the factor of every model of the table.

Run: python -m benchmarks.protocol_seeds [--data FOLDER] [--dataset isolet] [--models S-SobGNN,GAT] [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import (
    ChebConv,
    ClusterGCNConv,
    GATConv,
    GCNConv,
    SGConv,
    SuperGATConv,
    TransformerConv,
)

from sobgnn import SobolevOperators
from sobgnn.paper.protocol import data as datafiles
from sobgnn.paper.protocol.evaluate import DatasetRunner, Limits
from sobgnn.paper.protocol.plan import Batch, Cell, Member

SETTING: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 32, "layers": 2, "alpha": 3, "epsilon": 1.0,
    "combine": "linear", "terms": 2, "hops": 2, "heads": 4,
}  # fmt: skip
ATTENTION = ("GAT", "SuperGAT", "Transformer")
MODELS = ("S-SobGNN", "GCN", "SIGN", "SGC", "Cheby", "ClusterGCN", *ATTENTION, "MLP")


class Orders(nn.Module):
    """S-SobGNN from PyG's layers, one for each order."""

    def __init__(self, sizes: list[int], weights: list[Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(GCNConv(a, b, normalize=False) for _ in weights) for a, b in pairwise(sizes)
        )
        self.mu = nn.ParameterList(torch.full((len(weights),), 1 / len(weights)) for _ in self.layers)
        self.weights = weights

    def forward(self, x: Tensor, edge_index: Tensor, _: Tensor) -> Tensor:
        for i, orders in enumerate(self.layers):
            parts = [conv(x, edge_index, w) for conv, w in zip(orders, self.weights, strict=True)]
            if i < len(self.layers) - 1:
                parts = [part.relu() for part in parts]
            x = sum(m * part for m, part in zip(self.mu[i], parts, strict=True))
            if i < len(self.layers) - 1:
                x = F.dropout(x, SETTING["dropout"], self.training)
        return x


class Layers(nn.Module):
    """PyG's layers with ReLU and dropout between them."""

    def __init__(self, layers: list[nn.Module], call: Callable[[nn.Module, Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.layers, self.call = nn.ModuleList(layers), call

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = self.call(
                layer, x if i == 0 else F.dropout(x.relu(), SETTING["dropout"], self.training), edge_index, weight
            )
        return x


class Hops(nn.Module):
    """SIGN as its users write it: a map for each hop of the features, which are computed beforehand, and one on top."""

    def __init__(self, hops: list[Tensor], classes: int) -> None:
        super().__init__()
        hidden = SETTING["hidden"]
        self.hops, self.maps = hops, nn.ModuleList(nn.Linear(x.shape[1], hidden) for x in hops)
        self.top = nn.Linear(hidden * len(hops), classes)

    def forward(self, x: Tensor, edge_index: Tensor, weight: Tensor) -> Tensor:
        parts = [
            F.dropout(m(x).relu(), SETTING["dropout"], self.training) for m, x in zip(self.maps, self.hops, strict=True)
        ]
        return self.top(torch.cat(parts, dim=1))


def plain(model: str, lab: DatasetRunner) -> Callable[[], nn.Module]:
    """Builds the model from PyG's layers."""
    hidden, heads, classes = SETTING["hidden"], SETTING["heads"], lab.data.num_classes
    sizes = [lab.source.X.shape[1], hidden, classes]

    def two(make: Callable[[int, int], nn.Module], call: Any) -> Callable[[], nn.Module]:
        return lambda: Layers([make(a, b) for a, b in pairwise(sizes)], call)

    def attention(kind: Any, call: Any, **more: Any) -> Callable[[], nn.Module]:
        return lambda: Layers(
            [
                kind(sizes[0], hidden, heads=heads, concat=True, **more),
                kind(heads * hidden, classes, heads=heads, concat=False, **more),
            ],
            call,
        )

    weighted = lambda layer, x, edges, weight: layer(x, edges, weight)  # noqa: E731
    unweighted = lambda layer, x, edges, weight: layer(x, edges)  # noqa: E731
    attributed = lambda layer, x, edges, weight: layer(x, edges, edge_attr=weight.unsqueeze(1))  # noqa: E731
    if model == "S-SobGNN":
        operators = SobolevOperators(lab.data.graph, SETTING["alpha"], SETTING["epsilon"])
        matrices = [operators.matrix(rho).tocoo() for rho in range(1, SETTING["alpha"] + 1)]
        weights = [torch.from_numpy(m.data).float().to(lab.device) for m in matrices]
        return lambda: Orders(sizes, weights)
    if model == "SIGN":
        hops = lab.source.powers("adjacency", SETTING["hops"])
        return lambda: Hops(hops, classes)
    return {
        "GCN": two(lambda a, b: GCNConv(a, b, cached=True), weighted),
        "SGC": lambda: Layers([SGConv(sizes[0], classes, K=SETTING["layers"], cached=True)], weighted),
        "Cheby": two(lambda a, b: ChebConv(a, b, SETTING["terms"]), weighted),
        "ClusterGCN": two(ClusterGCNConv, unweighted),
        "GAT": attention(GATConv, attributed, edge_dim=1),
        "SuperGAT": attention(SuperGATConv, unweighted, is_undirected=True, attention_type="MX"),
        "Transformer": attention(TransformerConv, attributed, edge_dim=1),
        "MLP": two(nn.Linear, lambda layer, x, edges, weight: layer(x)),
    }[model]


def one_by_one(lab: DatasetRunner, model: str, seeds: list[int], epochs: int) -> list[float]:
    """Train the seeds one after another; their validation accuracies."""
    if model == "S-SobGNN":  # with the diagonal, as its operators have it
        matrix = SobolevOperators(lab.data.graph, 1, SETTING["epsilon"]).matrix(1).tocoo()
        edge_index = torch.from_numpy(np.stack([matrix.col, matrix.row])).long().to(lab.device)
        weight = torch.from_numpy(matrix.data).float().to(lab.device)
    else:
        edge_index, weight = (part.to(lab.device) for part in lab.data.graph.edges())
    build = plain(model, lab)
    x, y = lab.source.X, torch.from_numpy(lab.data.y).to(lab.device)
    scores = []
    for seed in seeds:
        torch.manual_seed(seed)
        split = lab.split("10%", seed)
        train, validation = (torch.from_numpy(part).to(lab.device) for part in split)
        network = build().to(lab.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=SETTING["lr"], weight_decay=SETTING["weight_decay"])
        best = 0.0
        for epoch in range(1, epochs + 1):
            network.train()
            optimizer.zero_grad()
            F.cross_entropy(network(x, edge_index, weight)[train], y[train]).backward()
            optimizer.step()
            if epoch % 5 == 0:
                network.eval()
                with torch.no_grad():
                    right = network(x, edge_index, weight)[validation].argmax(dim=1) == y[validation]
                best = max(best, float(right.float().mean()))
        scores.append(best)
    return scores


def batched(lab: DatasetRunner, model: str, seeds: list[int]) -> list[float]:
    """Train the seeds as one batch; their validation accuracies."""
    cell = Cell("benchmark", lab.data.name, model, setting=dict(SETTING))
    batch = Batch(cell, "search", tuple(Member(-1, dict(SETTING), seed) for seed in seeds), 1.0)
    return [record.validation_accuracy or 0.0 for record in lab.run(batch)]


def compare(lab: DatasetRunner, model: str, seeds: int, timed: int, epochs: int) -> float:
    """Print both sides; how many times as fast the batch is."""
    short = DatasetRunner(lab.data, lab.device, Limits(5, 5))
    batched(short, model, list(range(seeds)))  # set-up of libraries and compilation of kernels
    one_by_one(lab, model, [0], 5)
    start = time.perf_counter()
    ours = batched(lab, model, list(range(seeds)))
    together = time.perf_counter() - start
    start = time.perf_counter()
    theirs = one_by_one(lab, model, list(range(timed)), epochs)
    if lab.device.type == "cuda":
        torch.cuda.synchronize()
    each = (time.perf_counter() - start) / timed
    ratio = each * seeds / together
    print(
        f"{model:12} one by one {each:6.2f} s each ({timed} timed)   {seeds} as one {together:6.2f} s   "
        f"ratio {ratio:6.1f}   validation {100 * np.mean(theirs):.1f} and {100 * np.mean(ours[:timed]):.1f} %",
        flush=True,
    )
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="isolet")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--models", default="S-SobGNN")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--timed", type=int, default=3, help="trainings timed one by one")
    parser.add_argument("--epochs", type=int, default=200)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    torch.set_float32_matmul_precision("high")  # both sides alike
    lab = DatasetRunner(datafiles.load(chosen.dataset, chosen.data), device, Limits(chosen.epochs, chosen.epochs))
    print(__doc__.splitlines()[0])
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    print(f"{chosen.dataset}, {where}, {chosen.epochs} steps", flush=True)
    models = MODELS if chosen.models == "all" else chosen.models.split(",")
    for model in models:
        ratio = compare(lab, model, chosen.seeds, chosen.timed, chosen.epochs)
        least = 10 if model == "S-SobGNN" else 0
        if least:
            print(f"at least {least}: {'holds' if ratio >= least else 'MISSES'}", flush=True)


if __name__ == "__main__":
    main()
