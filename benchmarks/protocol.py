"""Claims about the paper's protocol: many seeds as one batch, and prepared files in float16.

    python -m benchmarks.protocol seeds [--data FOLDER] [--dataset isolet] [--model GCN] [--device cuda]
    python -m benchmarks.protocol float16 --data FOLDER [--dataset isolet] [--model S-SobGNN]

seeds: 50 seeds of S-SobGNN trained as one batch take at most a tenth of the time of 50 trainings one by one, which is
the usual way: PyG's layers (for S-SobGNN GCNConv with each order's normalized weights), torch's Adam, a validation
every 5 steps. Both sides make the same steps; a few trainings one by one are timed and stand for all.

float16: prepared files, whose features are float16, give the accuracies of the data in full precision: the same seeds
are trained on the features as they are and on those from the file, over the same graph.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from benchmarks.propagation import PowersGCN, edges_of
from sobgnn import SobolevOperators
from sobgnn.paper import data as datafiles
from sobgnn.paper.results import bootstrap
from sobgnn.paper.run import DatasetRunner
from sobgnn.paper.studies import BASES, OURS, Batch, Cell, Member

SETTING: dict[str, Any] = {
    "lr": 0.01, "weight_decay": 5e-4, "dropout": 0.5, "hidden": 32, "layers": 2, "alpha": 3, "epsilon": 1.0,
    "combine": "linear",
}  # fmt: skip


def one_by_one(lab: DatasetRunner, model: str, seeds: list[int], epochs: int) -> list[float]:
    """Train the seeds one after another; their validation accuracies."""
    alpha = SETTING["alpha"] if model == "S-SobGNN" else 1
    operators = SobolevOperators(lab.data.graph, alpha, SETTING["epsilon"])
    edge_index, weights = edges_of(operators, lab.device)
    x, y = lab.source.X, torch.from_numpy(lab.data.y).to(lab.device)
    scores = []
    for seed in seeds:
        torch.manual_seed(seed)
        train, validation = (torch.from_numpy(part).to(lab.device) for part in lab.split("10%", seed))
        network = PowersGCN([x.shape[1], SETTING["hidden"], lab.data.num_classes], alpha).to(lab.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=SETTING["lr"], weight_decay=SETTING["weight_decay"])
        best = 0.0
        for epoch in range(1, epochs + 1):
            network.train()
            optimizer.zero_grad()
            F.cross_entropy(network(x, edge_index, weights)[train], y[train]).backward()
            optimizer.step()
            if epoch % 5 == 0:
                with torch.no_grad():
                    right = network.eval()(x, edge_index, weights)[validation].argmax(dim=1) == y[validation]
                best = max(best, float(right.float().mean()))
        scores.append(best)
    return scores


def batched(lab: DatasetRunner, model: str, setting: dict[str, Any], seeds: list[int], stage: str) -> list[Any]:
    """The records of seeds that train as one batch."""
    cell = Cell("benchmark", lab.data.name, model, setting=dict(setting))
    return list(lab.run(Batch(cell, stage, tuple(Member(-1, dict(setting), seed) for seed in seeds))))


def seeds(chosen: argparse.Namespace) -> None:
    torch.set_float32_matmul_precision("high")  # both sides alike
    data, device, every = datafiles.load(chosen.dataset, chosen.data), torch.device(chosen.device), list(range(50))
    lab, short = (DatasetRunner(data, device, epochs, patience=epochs) for epochs in (chosen.epochs, 5))
    batched(short, chosen.model, SETTING, every, "search")  # set-up of libraries and compilation of kernels
    one_by_one(lab, chosen.model, [0], 5)
    start = time.perf_counter()
    ours = [record.validation_accuracy or 0.0 for record in batched(lab, chosen.model, SETTING, every, "search")]
    together, start = time.perf_counter() - start, time.perf_counter()
    theirs = one_by_one(lab, chosen.model, every[: chosen.timed], chosen.epochs)
    if device.type == "cuda":
        torch.cuda.synchronize()
    each = (time.perf_counter() - start) / chosen.timed
    ratio = each * len(every) / together
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"cpu, {torch.get_num_threads()} threads"
    print(f"{chosen.dataset}, {chosen.model}, {where}, {chosen.epochs} steps")
    print(f"one by one {each:.2f} s each ({chosen.timed} timed)   {len(every)} as one {together:.2f} s", end="   ")
    print(f"validation {100 * np.mean(theirs):.1f} and {100 * np.mean(ours[: chosen.timed]):.1f} %")
    print(f"ratio {ratio:.1f}, at least 10: {'holds' if ratio >= 10 else 'MISSES'}")


def float16(chosen: argparse.Namespace) -> None:
    stored, whole = datafiles.load(chosen.dataset, chosen.data), datafiles.prepare(chosen.dataset)
    scores = []
    for data in (whole, stored):
        lab = DatasetRunner(data, torch.device(chosen.device), chosen.epochs)
        records = batched(lab, chosen.model, BASES[OURS], list(range(1000, 1005)), "test")
        scores.append([100 * (record.test_accuracy or 0.0) for record in records])
    interval = bootstrap([one - other for one, other in zip(*scores, strict=True)])
    same = (whole.graph.to_scipy() != stored.graph.to_scipy()).nnz == 0
    error = float(abs(whole.X - stored.X).max())
    print(f"{chosen.dataset}, {chosen.model}: same graph: {same}; features differ by at most {error:.1e}")
    means = [sum(each) / len(each) for each in scores]
    verdict = "holds" if same and abs(interval.mean) < 0.1 else "MISSES"
    print(
        f"float32 {means[0]:.3f} %   float16 {means[1]:.3f} %   difference {interval.mean:+.3f} "
        f"[{interval.low:+.3f}, {interval.high:+.3f}] points over {len(scores[0])} seeds   {verdict}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("claim", choices=("seeds", "float16"))
    parser.add_argument("--dataset", default="isolet")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--model", default="S-SobGNN", help="S-SobGNN or GCN")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--timed", type=int, default=3, help="trainings timed one by one")
    parser.add_argument("--epochs", type=int, default=200)
    chosen = parser.parse_args()
    {"seeds": seeds, "float16": float16}[chosen.claim](chosen)


if __name__ == "__main__":
    main()
