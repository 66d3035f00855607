"""Claim: 50 seeds of S-SobGNN trained as one batch take at most a tenth of the time of 50 trainings one by one.

One by one is the usual way: PyG's gather-scatter layer for each order and layer (GCNConv with the order's normalised
weights), torch's Adam, a validation every 5 steps. Both sides make the same steps; a few trainings one by one are
timed and stand for all. Run: python -m benchmarks.protocol_seeds [--data FOLDER] [--dataset isolet] [--device cuda]
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv

from sobgnn import SobolevOperators
from sobgnn.protocol import data as datafiles
from sobgnn.protocol.evaluate import Laboratory, Limits
from sobgnn.protocol.plan import Batch, Cell, Member

SETTING = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 32, "layers": 2, "alpha": 3, "epsilon": 1.0,
    "combine": "linear",
}  # fmt: skip


class Plain(nn.Module):
    """S-SobGNN from PyG's layers, one for each order."""

    def __init__(self, sizes: list[int], alpha: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleList(GCNConv(a, b, normalize=False) for _ in range(alpha)) for a, b in pairwise(sizes)
        )
        self.mu = nn.ParameterList(torch.full((alpha,), 1 / alpha) for _ in self.layers)
        self.dropout = dropout

    def forward(self, x: Tensor, edge_index: Tensor, weights: list[Tensor]) -> Tensor:
        for i, orders in enumerate(self.layers):
            parts = [conv(x, edge_index, w) for conv, w in zip(orders, weights, strict=True)]
            if i < len(self.layers) - 1:
                parts = [part.relu() for part in parts]
            x = sum(m * part for m, part in zip(self.mu[i], parts, strict=True))
            if i < len(self.layers) - 1:
                x = F.dropout(x, self.dropout, self.training)
        return x


def one_by_one(lab: Laboratory, seeds: list[int], epochs: int) -> list[float]:
    """Train the seeds after another; their validation accuracies."""
    operators = SobolevOperators(lab.data.graph, SETTING["alpha"], SETTING["epsilon"])
    matrices = [operators.matrix(rho).tocoo() for rho in range(1, SETTING["alpha"] + 1)]
    edge_index = torch.from_numpy(np.stack([matrices[0].col, matrices[0].row])).long().to(lab.device)
    weights = [torch.from_numpy(m.data).float().to(lab.device) for m in matrices]
    x, y = lab.source.X, torch.from_numpy(lab.data.y).to(lab.device)
    scores = []
    for seed in seeds:
        torch.manual_seed(seed)
        split = lab.split("10%", seed)
        train, validation = (torch.from_numpy(part).to(lab.device) for part in split)
        sizes = [x.shape[1], SETTING["hidden"], lab.data.num_classes]
        model = Plain(sizes, SETTING["alpha"], SETTING["dropout"]).to(lab.device)
        optimizer = torch.optim.Adam(model.parameters(), lr=SETTING["lr"], weight_decay=SETTING["weight_decay"])
        best = 0.0
        for epoch in range(1, epochs + 1):
            model.train()
            optimizer.zero_grad()
            F.cross_entropy(model(x, edge_index, weights)[train], y[train]).backward()
            optimizer.step()
            if epoch % 5 == 0:
                model.eval()
                with torch.no_grad():
                    right = model(x, edge_index, weights)[validation].argmax(dim=1) == y[validation]
                best = max(best, float(right.float().mean()))
        scores.append(best)
    return scores


def batched(lab: Laboratory, seeds: list[int]) -> list[float]:
    cell = Cell("benchmark", lab.data.name, "S-SobGNN", setting=dict(SETTING))
    batch = Batch(cell, "search", tuple(Member(-1, dict(SETTING), seed) for seed in seeds), 1.0)
    return [record.validation_accuracy or 0.0 for record in lab.run(batch)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="isolet")
    parser.add_argument("--data", type=Path, default=None)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--timed", type=int, default=3, help="trainings timed one by one")
    parser.add_argument("--epochs", type=int, default=200)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    torch.set_float32_matmul_precision("high")  # both sides alike
    lab = Laboratory(datafiles.load(chosen.dataset, chosen.data), device, Limits(chosen.epochs, chosen.epochs))
    short = Laboratory(lab.data, device, Limits(5, 5))
    batched(short, list(range(chosen.seeds)))  # set-up of libraries and compilation of kernels
    one_by_one(lab, [0], 5)

    print(__doc__.splitlines()[0])
    start = time.perf_counter()
    ours = batched(lab, list(range(chosen.seeds)))
    together = time.perf_counter() - start
    start = time.perf_counter()
    theirs = one_by_one(lab, list(range(chosen.timed)), chosen.epochs)
    if device.type == "cuda":
        torch.cuda.synchronize()
    each = (time.perf_counter() - start) / chosen.timed
    ratio = each * chosen.seeds / together
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    print(f"{chosen.dataset}, {where}, {chosen.epochs} steps, {chosen.seeds} seeds")
    print(f"one by one  {each:8.2f} s each, {each * chosen.seeds:8.1f} s for all ({chosen.timed} timed)")
    print(f"as one      {together:8.2f} s for all   ratio {ratio:.1f}   {'holds' if ratio >= 10 else 'MISSES'}")
    both = f"{np.mean(theirs):.4f} and {np.mean(ours[: chosen.timed]):.4f}"
    print(f"validation accuracy, seeds 0-{chosen.timed - 1}: {both}")


if __name__ == "__main__":
    main()
