"""Claim: fit on mnist's 70 000 points takes less time and memory than LabelSpreading(kernel="knn") on the same labels.

Each runs in a process of its own, one after the other; peak memory is the process's. Then 100 000 new points.
Run: SOBGNN_DATA=FOLDER python -m benchmarks.classifier_size [--points 70000] [--labels 0.01] [--device cpu]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import numpy as np

from benchmarks.classifier_accuracy import draw_labels


def measure(who: str, count: int, share: float, device: str) -> dict[str, float]:
    from sobgnn.datasets import load

    data = load("mnist")
    chosen = np.sort(np.random.default_rng(0).permutation(len(data.y))[:count])
    X, y = data.X[chosen].astype(np.float32), data.y[chosen]
    labelled = draw_labels(y, share, 0)
    given = np.full(len(y), -1)
    given[labelled] = y[labelled]
    hidden = given < 0
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    result: dict[str, float] = {}
    if who == "ours":
        from sobgnn import SobolevClassifier

        classifier = SobolevClassifier(random_state=0, device=device).fit(X, given)
        result["seconds"] = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        noise = np.random.default_rng(1).normal(0, 8, size=(100_000, X.shape[1])).astype(np.float32)
        new = X[np.random.default_rng(2).integers(0, len(X), 100_000)] + noise
        start = time.perf_counter()
        classifier.predict_proba(new)
        result["new_points_seconds"] = time.perf_counter() - start
    else:
        from sklearn.semi_supervised import LabelSpreading

        classifier = LabelSpreading(kernel="knn", n_neighbors=10).fit(X, given)
        result["seconds"] = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result["accuracy"] = float((classifier.transduction_ == y)[hidden].mean())
    result["megabytes"] = (peak - base) / 1024
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=70_000)
    parser.add_argument("--labels", type=float, default=0.01)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", choices=["ours", "spreading"])
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(measure(arguments.only, arguments.points, arguments.labels, arguments.device)))
        return
    results = {}
    for who in ("ours", "spreading"):
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.classifier_size", "--only", who]
        command += ["--points", str(arguments.points), "--labels", str(arguments.labels), "--device", arguments.device]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        results[who] = json.loads(done.stdout.splitlines()[-1])
        r = results[who]
        extra = f"  100 000 new points {r['new_points_seconds']:.1f} s" if "new_points_seconds" in r else ""
        print(
            f"{who:10} n={arguments.points}  {r['seconds']:7.1f} s  {r['megabytes']:7.0f} MB on top of the data  "
            f"accuracy {r['accuracy']:.4f}{extra}",
            flush=True,
        )
    for what in ("seconds", "megabytes"):
        ratio = results["ours"][what] / results["spreading"][what]
        print(f"{what}: ours / LabelSpreading {ratio:.2f}   {'holds' if ratio < 1 else 'misses'}")


if __name__ == "__main__":
    main()
