"""Claim: chosen by "auto", 60 labels bring SobolevClassifier to where 100 random labels bring it (median over sets).

    python -m benchmarks.labeling_estimator --sets FOLDER --out lines.jsonl [--draws 10] [--jobs 16] [--limit 240]
    python -m benchmarks.labeling_report lines.jsonl [--plot plot.png]

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``), of which at most 1,200 rows are used; a stopped
run resumes. Points of a test part (30 %) are in the graph but never chosen, and accuracy is measured on them alone. The
graph is that of `sobgnn label`; the model is SobolevClassifier(random_state=0), fitted anew at every size. Beside ours:
margin sampling (breaking ties), greedy core-set and TypiClust, written here from their papers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import append_cases, load_set, read_lines

NAMES = (
    "digits", "isolet", "har", "cancer", "mnist", "20news",
    "car", "segment", "vehicle", "spambase", "page-blocks", "cmc", "credit-a", "soybean", "mushroom", "kr-vs-kp",
)  # fmt: skip
SHOWN = (10, 20, 50, 100, 200)
# Strategies that read the model's probabilities are asked more often.
ADAPTIVE = {"uncertain", "auto"}
STEPS = (10, 20, 35, 50, 75, 100, 150, 200)
STRATEGIES = ("random", "auto", "uncertain", "core-set", "TypiClust", "typical")
ROWS = 1200
FIRST_SEED = 100
# TypiClust: neighbors that typicality is measured by, and the smallest cluster that is worth a label.
TYPICAL_NEIGHBORS, SMALLEST_CLUSTER = 20, 5


def core_set(points: np.ndarray, labelled: np.ndarray, free: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The points farthest from all labelled or chosen ones, one after the other (Sener and Savarese, 2018)."""
    chosen = [] if len(labelled) else [int(np.random.default_rng(seed).choice(free))]
    near = np.full(len(points), np.inf)
    for center in (*labelled.tolist(), *chosen):
        near = np.minimum(near, np.square(points - points[center]).sum(axis=1))
    while len(chosen) < count:
        far = int(free[near[free].argmax()])
        chosen.append(far)
        near = np.minimum(near, np.square(points - points[far]).sum(axis=1))
    return np.array(chosen)


def typiclust(points: np.ndarray, labelled: np.ndarray, free: np.ndarray, count: int, seed: int) -> np.ndarray:
    """The most typical point of each of the largest clusters without a label (Hacohen et al., 2022)."""
    from sklearn.cluster import KMeans
    from sklearn.neighbors import NearestNeighbors

    pool = np.concatenate([labelled, free]).astype(np.int64)
    cluster = KMeans(min(len(labelled) + count, len(pool)), n_init=1, random_state=seed).fit_predict(points[pool])
    open_rows = np.isin(pool, free)
    chosen: list[int] = []
    while len(chosen) < count:
        labels = np.bincount(cluster[~open_rows], minlength=cluster.max() + 1)
        sizes = np.bincount(cluster, minlength=cluster.max() + 1)
        left = np.bincount(cluster[open_rows], minlength=len(sizes)) > 0
        # Fewest labels first, then the largest; tiny clusters last.
        order = np.lexsort((-sizes, labels, sizes <= SMALLEST_CLUSTER, ~left))
        inside = np.flatnonzero((cluster == order[0]) & open_rows)
        whole = points[pool[cluster == order[0]]]
        k = min(TYPICAL_NEIGHBORS, len(whole))
        distance = NearestNeighbors(n_neighbors=k).fit(whole).kneighbors(points[pool[inside]])[0].mean(axis=1)
        best = inside[distance.argmin()]
        open_rows[best] = False
        chosen.append(int(pool[best]))
    return np.array(chosen)


PEERS: dict[str, Callable[..., np.ndarray]] = {"core-set": core_set, "TypiClust": typiclust}


def run(case: tuple[str, str, int]) -> dict[str, Any]:
    """Accuracy on the test part by number of labels, for one data set, strategy and draw."""
    from sobgnn import SobolevClassifier, knn_graph
    from sobgnn.estimator.features import FeatureMap
    from sobgnn.estimator.suggestion import suggest_points, two_step_walks

    path, strategy, draw = case
    started, seed = time.process_time(), FIRST_SEED + draw
    X, y = load_set(path, ROWS)
    points = np.asarray(FeatureMap.fit(X, scale="range", n_components=64, seed=0)(X))
    graph = knn_graph(points, k=10)
    walks = two_step_walks(graph)
    test = np.sort(np.random.default_rng(seed).permutation(len(y))[: len(y) * 3 // 10])
    labelled, probabilities = np.array([], dtype=np.int64), None
    accuracy: dict[int, float] = {}
    changed: dict[int, float] = {}
    predicted: dict[int, np.ndarray] = {}
    for size in STEPS if strategy in ADAPTIVE else SHOWN:
        if size > 0.8 * (len(y) - len(test)):
            break
        count = size - len(labelled)
        if strategy in PEERS:
            free = np.setdiff1d(np.arange(len(y)), np.concatenate([labelled, test]))
            new = PEERS[strategy](points, labelled, free, count, seed + size)
        else:
            # Before the first fit nothing is more uncertain than anything else.
            own: Any = "random" if strategy == "uncertain" and probabilities is None else strategy
            new = suggest_points(
                graph, probabilities, labelled, count, exclude=test, strategy=own, seed=seed + size, walks=walks
            )
        labelled = np.concatenate([labelled, np.asarray(new, dtype=np.int64)])
        if len(np.unique(labelled)) != size or np.isin(labelled, test).any():
            raise RuntimeError(f"{strategy} chose a point twice, or one of the test part.")
        given = np.full(len(y), -1)
        given[labelled] = y[labelled]
        if len(np.unique(y[labelled])) > 1:
            fitted = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
            predicted[size], probabilities = fitted.transduction_, fitted.label_distributions_
        else:  # one class cannot be fitted; it is all that can be predicted
            predicted[size] = np.full(len(y), y[labelled[0]])
        accuracy[size] = round(float((predicted[size] == y)[test].mean()), 5)
        half = max((earlier for earlier in predicted if 2 * earlier <= size), default=None)
        if half is not None:
            changed[size] = round(float((predicted[half] != predicted[size]).mean()), 5)
    return {
        "dataset": Path(path).stem, "strategy": strategy, "draw": draw, "accuracy": accuracy, "changed": changed,
        "seconds": round(time.process_time() - started, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", default=",".join(NAMES))
    parser.add_argument("--strategies", default=",".join(STRATEGIES))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    done = {(line["dataset"], line["strategy"], line["draw"]) for line in read_lines(asked.out)}
    cases = [
        (str(asked.sets / f"{name}.npz"), strategy, draw)
        for draw in range(asked.draws)
        for name in asked.names.split(",")
        for strategy in asked.strategies.split(",")
        if (name, strategy, draw) not in done
    ]
    append_cases(asked.out, run, cases, asked.jobs, asked.limit)


if __name__ == "__main__":
    main()
