"""Claim: exact neighbors of MNIST's 70 000 × 784 points, equal to scikit-learn's brute force and faster than it.

Run: SOBGNN_DATA=folder-with-mnist.npz python benchmarks/neighbors_exact.py [points, default 70000]

One run: scikit-learn searches a sample of the queries against all points, and its time is scaled to all of them;
ours searches all. The same sample through ours, as `queries`, and float64 distances check the answer.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.neighbors import NearestNeighbors

from sobgnn.neighbors import nearest

K = 30
SAMPLE = 4000


def main() -> None:
    points = int(sys.argv[1]) if len(sys.argv) > 1 else 70000
    with np.load(Path(os.environ["SOBGNN_DATA"]) / "mnist.npz", allow_pickle=False) as file:
        X = file["X"].reshape(-1, 784)[:points].astype(np.float32)
    rows = np.sort(np.random.default_rng(0).choice(len(X), min(SAMPLE, len(X)), replace=False))
    print(__doc__.splitlines()[0])
    nearest(X[:2000], K)  # warm up: threads, libraries
    brute = NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(X)
    brute.kneighbors(X[:200])

    halves = np.array_split(rows, 2)  # one half before ours and one after: the machine's other load averages out
    found, seconds = [], []
    for half in halves:
        start = time.perf_counter()
        found.append(brute.kneighbors(X[half]))
        seconds.append(time.perf_counter() - start)
        if half is halves[0]:
            before = peak_gb()
            start = time.perf_counter()
            ours = nearest(X, K, method="exact")
            all_rows = time.perf_counter() - start
            after = peak_gb()
    theirs_sample = sum(seconds)
    theirs = theirs_sample * len(X) / len(rows)
    start = time.perf_counter()
    nearest(X, K + 1, queries=X[rows], method="exact")
    ours_sample = time.perf_counter() - start

    sk_distance, sk_index = (np.concatenate(part) for part in zip(*found, strict=True))
    wrong = disagreements(X, rows, ours.indices[rows], sk_index)
    size = f"n={len(X)} d=784 k={K}"
    print(f"{size}  scikit-learn brute, scaled from {len(rows)} queries  {theirs:6.1f} s")
    print(f"{size}  sobgnn exact, all rows  {all_rows:6.1f} s   ratio {theirs / all_rows:.2f}")
    print(
        f"the sample alone, as queries: {theirs_sample:.2f} s against {ours_sample:.2f} s   "
        f"ratio {theirs_sample / ours_sample:.2f}"
    )
    dense = 4e-9 * len(X) ** 2
    print(f"peak memory {before:.2f} GB before, {after:.2f} GB after (all distances at once: {dense:.1f} GB)")
    error = np.abs(np.sort(sk_distance[:, 1:], 1) - ours.distances[rows]).max()
    print(f"rows of the sample that differ other than by ties: {wrong} of {len(rows)}; distances differ by {error:.1e}")
    print("holds" if wrong == 0 and theirs > all_rows else "DOES NOT HOLD")


def disagreements(X: np.ndarray, rows: np.ndarray, ours: np.ndarray, theirs: np.ndarray) -> int:
    """Rows whose k nearest differ in exact (integer) squared distance."""
    count = 0
    for row, mine, other in zip(rows, ours, theirs, strict=True):
        other = other[other != row][: len(mine)]
        d_mine, d_other = (((X[c].astype(np.float64) - X[row]) ** 2).sum(1) for c in (mine, other))
        count += not np.array_equal(np.sort(d_mine), np.sort(d_other))
    return count


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    main()
