"""Claim: exact search takes less time than scikit-learn's and faiss's brute force, cells less than faiss's HNSW.

Run: SOBGNN_DATA=folder-with-mnist.npz python -m benchmarks.neighbors [CASE ...]     CASE: mnist, 250000x128, ...

One run of each on the same points, one after the other; processor time, which other work on the machine disturbs less
than the clock. scikit-learn and faiss search a sample of the queries, and their time is scaled to all. HNSW has 24
links and the least effort that reaches the recall 0.99. faiss is left out where it is not installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.scale_meter import mixture
from benchmarks.timing import timed
from sobgnn.graphs.knn import nearest

K, SAMPLE, RECALL = 15, 1000, 0.99
CASES = ("12000x64", "100000x16", "mnist")


def main() -> None:
    for case in sys.argv[1:] or CASES:
        if case == "mnist":
            with np.load(Path(os.environ["SOBGNN_DATA"]) / "mnist.npz", allow_pickle=False) as file:
                compare(case, file["X"].reshape(-1, 784).astype(np.float32))
            continue
        n, features = map(int, case.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            compare(case, np.array(mixture(n, features, Path(folder) / "X.npy")[0]))


def compare(case: str, X: np.ndarray) -> None:
    rows = np.sort(np.random.default_rng(0).choice(len(X), SAMPLE, replace=False))
    share = len(X) / len(rows)
    nearest(X[:2000], K)  # warm up: threads, libraries
    exact, ours = told(case, "exact", lambda: nearest(X, K, method="exact"))
    reach = ours.distances[rows, -1:] * (1 + 1e-6)
    cells, found = told(case, "cells", lambda: nearest(X, K, method="cells", recall=RECALL))
    print(
        f"{case:>12} recall of cells: {found.recall:.4f} measured, {(found.distances[rows] <= reach).mean():.4f} true"
    )
    brute = NearestNeighbors(n_neighbors=K + 1, algorithm="brute").fit(X)
    seconds, (distance, _) = told(case, "scikit-learn brute", lambda: brute.kneighbors(X[rows]), share)
    right = (np.abs(distance[:, 1:] - ours.distances[rows]) <= 1e-3 * reach).mean()
    verdict(case, "exact / scikit-learn", seconds / exact, right > 0.999)
    if importlib.util.find_spec("faiss") is None:
        return
    import faiss

    seconds, _ = told(case, "faiss brute", lambda: faiss.knn(X[rows], X, K + 1), share)
    verdict(case, "exact / faiss", seconds / exact)
    seconds, _ = told(case, "faiss HNSW", lambda: hnsw(X, rows, reach))
    verdict(case, "cells / HNSW", seconds / cells, found.recall >= RECALL)


def hnsw(X: np.ndarray, rows: np.ndarray, reach: np.ndarray) -> Any:
    import faiss

    index = faiss.IndexHNSWFlat(X.shape[1], 24)
    index.hnsw.efConstruction = 64
    index.add(X)
    effort = 16
    while True:
        index.hnsw.efSearch = effort
        squared = index.search(X[rows], K + 1)[0]
        if (np.sqrt(squared[:, 1:]) <= reach).mean() >= RECALL:
            return index.search(X, K + 1)
        effort *= 2


def told(case: str, name: str, work: Callable[[], Any], scale: float = 1.0) -> tuple[float, Any]:
    clock, seconds, done = timed(work)
    clock, seconds, scaled = clock * scale, seconds * scale, "" if scale == 1 else "   scaled from a sample"
    print(f"{case:>12} {name:<20} {seconds:8.2f} s of processor time {clock:8.2f} s by the clock{scaled}", flush=True)
    return seconds, done


def verdict(case: str, names: str, ratio: float, right: bool = True) -> None:
    print(f"{case:>12} {names:<20} ratio {ratio:5.2f}   {'holds' if ratio > 1 and right else 'misses'}", flush=True)


if __name__ == "__main__":
    main()
