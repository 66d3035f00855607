"""A million points on one machine: time and peak memory of every stage, and how they grow.

    python -m benchmarks.scale_stages [--sizes 62500 125000 250000 500000 1000000] [--features 128] [--k 15]

Points are a mixture of Gaussians in a space of a few dimensions, mapped into many and blurred: the best possible
accuracy is that of the posterior, which is known. 20 labels per class are shown. Each size has a process of its own
and leaves a line in results/scale.jsonl. Sizes that are there already are not measured again, so a series that was
killed resumes where it stopped. ``--series NAME`` begins a new one, in which only sizes measured under that name count
as measured; the same command resumes it. ``--again`` measures every size, also those measured a moment ago.

Claims: recall at least 0.95; 1 000 000 points within 12 GB; accuracy within 2 points of the best possible; every stage
after the neighbor search with a log-log slope of at most 1.15.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.scale_meter import Meter, keep, kept, mixture, shown
from benchmarks.timing import machine

NEW = 10_000
# The stage of the neighbor search, and what lines measured before it was renamed call it.
NEIGHBORS = ("neighbors", "neighbours")


def run(n: int, options: argparse.Namespace) -> None:
    from sobgnn import SobolevClassifier

    with tempfile.TemporaryDirectory() as folder:
        X, truth, best = mixture(n + NEW, options.features, Path(folder) / "X.npy")
        points, new = X[:n], X[n:]
        y = shown(truth[:n])
        meter = Meter()
        print(f"{n:,} x {options.features} points, k = {options.k}, {options.device}, load {os.getloadavg()[0]:.1f}")
        model = SobolevClassifier(
            k=options.k, method=options.method, device=options.device, n_members=options.members, random_state=0
        )
        start = time.perf_counter()
        meter.begin()
        model.fit(points, y, progress=meter.reported)
        whole = time.perf_counter() - start
        meter.seconds["rest of fit"] = whole - sum(meter.seconds.values())
        accuracy = float((model.transduction_ == truth[:n])[y < 0].mean())
        with meter.stage("10 000 new points"):
            predicted = model.predict(new)
        recall = model.graph_.neighbor_recall
        line = {
            "what": "stages", "series": options.series, "points": n, "features": options.features, "k": options.k,
            "device": options.device,
            "members": options.members, "machine": machine(), "load": os.getloadavg()[0], "fit": whole,
            "seconds": meter.seconds, "cpu": meter.cpu, "peak": meter.peak, "cuda_peak": meter.cuda_peak,
            "recall": recall, "accuracy": accuracy, "best": best, "entries": model.graph_.num_edges,
            "new_accuracy": float((predicted == truth[n:]).mean()), "families": model.family_shares_,
        }  # fmt: skip
        keep(line, options.lines)
        print(f"  whole fit {whole:.1f} s, recall {'exact' if recall is None else f'{recall:.4f}'}")
        print(f"  accuracy {100 * accuracy:.2f} %, best possible {100 * best:.2f} %\n", flush=True)


def slopes(lines: list[dict], clock: str = "seconds") -> dict[str, float]:
    """Log-log slope of each stage's seconds, or ``"cpu"`` seconds, over sizes."""
    sizes = np.log([line["points"] for line in lines])
    names = [name for name in lines[0][clock] if all(line[clock].get(name, 0) > 0 for line in lines)]
    return {name: float(np.polyfit(sizes, np.log([line[clock][name] for line in lines]), 1)[0]) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[62_500, 125_000, 250_000, 500_000, 1_000_000])
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--k", type=int, default=15)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--method", default="cells", help="one method for all sizes, so that they can be compared")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lines", type=Path, default=Path("results/scale.jsonl"))
    parser.add_argument("--series", help="name of a series: sizes measured under other names are measured anew")
    parser.add_argument("--again", action="store_true", help="measure every size, whatever was measured before")
    parser.add_argument("--only", type=int, help="measure one size in this process")
    options = parser.parse_args()
    if options.only:
        run(options.only, options)
        return
    setting = {"what": "stages", "features": options.features, "k": options.k, "device": options.device}
    if options.series is not None:
        setting["series"] = options.series
    print(f"{machine()}, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for n in options.sizes:
        if kept(options.lines, points=n, **setting) and not options.again:
            print(f"{n:,}: measured before, in {options.lines}")
            continue
        subprocess.run(
            [sys.executable, "-u", "-m", "benchmarks.scale_stages", *sys.argv[1:], f"--only={n}"], check=True
        )
    lines = [kept(options.lines, points=n, **setting)[-1] for n in options.sizes]
    if len(lines) > 1:
        processor = slopes(lines, "cpu")
        for name, slope in slopes(lines).items():
            verdict = "" if name in NEIGHBORS else ("holds" if slope <= 1.15 else "misses")
            print(
                f"{name:<20} log-log slope {slope:5.2f}   of processor time {processor.get(name, 0):5.2f}   {verdict}"
            )


if __name__ == "__main__":
    main()
