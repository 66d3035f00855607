"""Full-graph training over 1, 2 and 4 processes of this machine: time, memory and bytes per rank, and the same result.

    python -m benchmarks.scale_ranks [--points 100000] [--ranks 1 2 4] [--epochs 20]

Claim: ranks share the memory of features, activations and graph, and give the probabilities of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.scale_stages import CLASSES, PER_CLASS, mixture
from sobgnn import knn_graph


def fit(folder: Path, ranks: int, options: argparse.Namespace) -> dict:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", "-m", "sobgnn.distributed", "fit", f"--points={folder}/X.npy"]
    command += [f"--labels={folder}/y.npy", f"--graph={folder}/graph.npz", f"--out={folder}/out{ranks}"]
    command += [f"--epochs={options.epochs}", "--hidden=64"]
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": threads})
    return json.loads((folder / f"out{ranks}" / "metrics.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        X, truth, best = mixture(options.points, options.features, folder / "X.npy")
        y = np.full(options.points, -1)
        generator = np.random.default_rng(1)
        for c in range(CLASSES):
            y[generator.choice(np.flatnonzero(truth == c), PER_CLASS, replace=False)] = c
        np.save(folder / "y.npy", y)
        graph = knn_graph(X, k=15)
        graph.save(folder / "graph.npz")
        print(f"{options.points:,} x {options.features} points, {graph.num_edges:,} entries, {os.cpu_count()} cores")
        first = None
        for ranks in options.ranks:
            measured = fit(folder, ranks, options)
            probabilities = np.load(folder / f"out{ranks}" / "probabilities.npy")
            first = probabilities if first is None else first
            accuracy = 100 * float((probabilities.argmax(axis=1) == truth).mean())
            print(
                f"{ranks} ranks  {measured['training_seconds'] / options.epochs:7.3f} s per step   accuracy "
                f"{accuracy:.2f} % (best possible {100 * best:.2f} %)   "
                f"largest difference from one process {np.abs(probabilities - first).max():.1e}"
            )
            for rank in measured["ranks"]:
                print("    " + "  ".join(f"{key} {value}" for key, value in rank.items()), flush=True)


if __name__ == "__main__":
    main()
