"""Claim: prepared files, whose features are float16, give the accuracies of the data in full precision.

The same seeds are trained on the features as they are and on those from the file, over the same graph (the file keeps
its weights in float32). Run: python -m benchmarks.protocol_float16 --data FOLDER [--dataset isolet] [--model S-SobGNN]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from sobgnn.paper.protocol import data as datafiles
from sobgnn.paper.protocol.evaluate import DatasetRunner, Limits
from sobgnn.paper.protocol.plan import Batch, Cell, Member
from sobgnn.paper.protocol.statistics import paired_difference
from sobgnn.paper.protocol.studies import BASE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", default="isolet")
    parser.add_argument("--model", default="S-SobGNN", help="S-SobGNN, GCN or MLP")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=100)
    chosen = parser.parse_args()
    stored, whole = datafiles.load(chosen.dataset, chosen.data), datafiles.prepare(chosen.dataset)
    cell = Cell("benchmark", chosen.dataset, chosen.model, setting=dict(BASE))
    members = tuple(Member(-1, dict(BASE), seed) for seed in range(1000, 1000 + chosen.seeds))
    scores = []
    for data in (whole, stored):
        lab = DatasetRunner(data, torch.device(chosen.device), Limits(chosen.epochs))
        records = lab.run(Batch(cell, "test", members, 1.0))
        scores.append({record.seed: 100 * (record.test_accuracy or 0.0) for record in records})
    interval, _ = paired_difference(*scores)
    print(__doc__.splitlines()[0])
    same = (whole.graph.to_scipy() != stored.graph.to_scipy()).nnz == 0
    error = float(abs(whole.X - stored.X).max())
    print(f"{chosen.dataset}, {chosen.model}: same graph: {same}; features differ by at most {error:.1e}")
    means = [sum(s.values()) / len(s) for s in scores]
    verdict = "holds" if same and abs(interval.mean) < 0.1 else "MISSES"
    print(
        f"float32 {means[0]:.3f} %   float16 {means[1]:.3f} %   difference {interval.mean:+.3f} "
        f"[{interval.low:+.3f}, {interval.high:+.3f}] points over {chosen.seeds} seeds   {verdict}"
    )


if __name__ == "__main__":
    main()
