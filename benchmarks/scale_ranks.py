"""Training over 1, 2 and 4 processes of this machine: time, memory and bytes per rank, the model of them, same result.

    python -m benchmarks.scale_ranks [--points 250000] [--ranks 1 2 4] [--epochs 30] [--what command estimator]

``command`` is ``torchrun -m sobgnn.distributed fit``: the rows of graph and features are shared out. ``estimator`` is a
script that fits a SobolevClassifier, run by torchrun unchanged: every rank has all points, the work is shared out.

Claims: ranks share memory and give the probabilities of one process; the bytes sent are those of the model.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scale_meter import keep, mixture, shown
from benchmarks.timing import machine

HIDDEN, ALPHA, LAYERS, CLASSES = 64, 3, 2, 10


def torchrun(ranks: int, *arguments: str) -> str:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", "--rdzv-backend=c10d"]
    command += ["--rdzv-endpoint=localhost:0", *arguments]
    threads = str(max(1, (os.cpu_count() or 1) // ranks))
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": threads})
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return done.stdout


def by_command(folder: Path, ranks: int, options: argparse.Namespace) -> tuple[dict[str, Any], np.ndarray]:
    out = folder / f"out{ranks}"
    torchrun(
        ranks, "-m", "sobgnn.distributed", "fit", f"--points={folder}/X.npy", f"--labels={folder}/y.npy",
        f"--graph={folder}/graph.npz", f"--out={out}", f"--epochs={options.epochs}", f"--hidden={HIDDEN}",
        f"--alpha={ALPHA}", f"--layers={LAYERS}",
    )  # fmt: skip
    return json.loads((out / "metrics.json").read_text()), np.load(out / "probabilities.npy")


def by_estimator(folder: Path, ranks: int, options: argparse.Namespace) -> tuple[dict[str, Any], np.ndarray]:
    out = folder / f"estimator{ranks}"
    out.mkdir(exist_ok=True)
    torchrun(ranks, "-m", "benchmarks.scale_ranks", "--script", str(folder), str(out), f"--epochs={options.epochs}")
    parts = [json.loads((out / f"{rank}.json").read_text()) for rank in range(ranks)]
    summary = {"training_seconds": max(part["fit_seconds"] for part in parts), "ranks": parts}
    return summary, np.load(out / "0.npy")


def script(folder: Path, out: Path, epochs: int) -> None:
    """What the user would write, and a look at what it took."""
    from sobgnn import Graph, SobolevClassifier
    from sobgnn.runtime import ranks

    X, y = np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy")
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: list[Any] = []
    start_up = ranks.Ranks.__init__

    def remembered(self: Any, *arguments: Any, **keywords: Any) -> None:
        start_up(self, *arguments, **keywords)
        seen.append(self)

    ranks.Ranks.__init__ = remembered  # type: ignore[method-assign]
    start = time.perf_counter()
    model = SobolevClassifier(epochs=epochs, random_state=0).fit(X, y, graph=Graph.load(folder / "graph.npz"))
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rank = int(os.environ["RANK"])
    report = {
        "rank": rank,
        "fit_seconds": round(seconds, 2),
        "megabytes_sent": round(max(r.bytes_sent for r in seen) / 2**20, 2),
        "peak_megabytes": round(peak / 1024),
        "on_top_megabytes": round((peak - base) / 1024),
    }
    (out / f"{rank}.json").write_text(json.dumps(report))
    np.save(out / f"{rank}.npy", model.label_distributions_)


def modelled_megabytes(rank: dict[str, Any], ranks: int, features: int, epochs: int) -> float:
    """What a rank of the command should send: boundary rows forward and backward at every step, and sums of gradients.

    A layer's exchange has the columns of what its operators are applied to: the input's, or α times the output's where
    transforming first is cheaper. The first layer's is made once, the others' at every step and for the predictions;
    rows are fetched once more for the scales.
    """
    width = min(HIDDEN, ALPHA * CLASSES)
    rows, halo = rank["boundary"], rank["halo_share"] * rank["rows"]
    per_step = (rows + halo) * width * (LAYERS - 1)
    once = rows * (features + (ALPHA + 1) + width * (LAYERS - 1))
    parameters = ALPHA * (features * HIDDEN + HIDDEN + 1) + ALPHA * (HIDDEN * CLASSES + CLASSES + 1)
    sums = (parameters + 1) * epochs if ranks > 1 else 0
    return 4 * (per_step * epochs + once + sums) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=250_000)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--what", nargs="+", choices=["command", "estimator"], default=["command", "estimator"])
    parser.add_argument("--graph", type=Path, help="folder with X.npy, truth.npy and graph.npz of an earlier run")
    parser.add_argument("--lines", type=Path, default=Path("results/scale.jsonl"))
    parser.add_argument("--script", type=Path, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.script:
        script(*options.script, options.epochs)
        return
    from sobgnn import Graph, knn_graph

    with tempfile.TemporaryDirectory() as name:
        folder = options.graph or Path(name)
        if (folder / "graph.npz").exists():
            truth, best = np.load(folder / "truth.npy"), float("nan")
        else:
            X, truth, best = mixture(options.points, options.features, folder / "X.npy")
            np.save(folder / "truth.npy", truth)
            knn_graph(X, k=15).save(folder / "graph.npz")
        np.save(folder / "y.npy", shown(truth))
        graph = Graph.load(folder / "graph.npz")
        size = f"{graph.num_nodes:,} x {options.features} points, {graph.num_edges:,} entries"
        print(f"{size}, {os.cpu_count()} cores, {machine()}, load {os.getloadavg()[0]:.1f}")
        for what in options.what:
            first = None
            for ranks in options.ranks:
                measured, probabilities = (by_command if what == "command" else by_estimator)(folder, ranks, options)
                first = probabilities if first is None else first
                difference = float(np.abs(probabilities - first).max())
                accuracy = 100 * float((probabilities.argmax(axis=1) == truth).mean())
                each = measured["step_seconds"] if what == "command" else measured["training_seconds"]
                print(
                    f"{what} {ranks} ranks  {each:7.3f} s per {'step' if what == 'command' else 'fit'}   accuracy "
                    f"{accuracy:.2f} % (best possible {100 * best:.2f} %)   "
                    f"largest difference from one process {difference:.1e}   "
                    f"{'holds' if difference < 1e-3 else 'misses'}"
                )
                for rank in measured["ranks"]:
                    if what == "command":
                        rank["modelled_megabytes"] = round(
                            modelled_megabytes(rank, ranks, options.features, options.epochs), 2
                        )
                    print("    " + "  ".join(f"{key} {value}" for key, value in rank.items()), flush=True)
                keep(
                    {"what": f"ranks {what}", "points": graph.num_nodes, "features": options.features,
                     "entries": graph.num_edges, "epochs": options.epochs, "ranks": ranks, "seconds": each,
                     "difference": difference, "accuracy": accuracy, "per_rank": measured["ranks"],
                     "machine": machine(), "cores": os.cpu_count()}, options.lines,
                )  # fmt: skip


if __name__ == "__main__":
    main()
