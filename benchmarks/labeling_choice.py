"""Claim: chosen by "auto", 60 labels bring SobolevClassifier to where 100 random labels bring it (median over sets).

    python -m benchmarks.labeling_choice run --sets FOLDER --out lines.jsonl.gz [--draws 10] [--jobs 16] [--limit 240]
    python -m benchmarks.labeling_choice report lines.jsonl.gz [--strategies random,auto]

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``), of which at most 1,200 rows are used; a stopped
run resumes. Points of a test part (30 %) are in the graph but never chosen, and accuracy is measured on them alone. The
graph is that of `sobgnn label`; the model is SobolevClassifier(random_state=0), fitted anew at every size. Beside ours:
margin sampling (breaking ties) and TypiClust, written here from its paper. The report prints the tables of
results/labeling.md, and whether "more labels will hardly help now" is right when it is said; of each data set, the
draws count that every strategy has.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import append_cases, load_set, read_lines
from sobgnn.app.labeling.progress import CHANGED, FEWEST

NAMES = (
    "digits", "isolet", "har", "cancer", "mnist", "20news",
    "car", "segment", "vehicle", "spambase", "page-blocks", "cmc", "credit-a", "soybean", "mushroom", "kr-vs-kp",
)  # fmt: skip
SHOWN = (10, 20, 50, 100, 200)
# Strategies that read the model's probabilities are asked more often.
ADAPTIVE = {"uncertain", "auto"}
STEPS = (10, 20, 35, 50, 75, 100, 150, 200)
STRATEGIES = ("random", "uncertain", "TypiClust", "typical", "auto")
ROWS = 1200
FIRST_SEED = 100
# TypiClust: neighbors that typicality is measured by, and the smallest cluster that is worth a label.
TYPICAL_NEIGHBORS, SMALLEST_CLUSTER = 20, 5


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
        if strategy == "TypiClust":
            free = np.setdiff1d(np.arange(len(y)), np.concatenate([labelled, test]))
            new = typiclust(points, labelled, free, count, seed + size)
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


# A doubling of the labels that brings at most this much is "hardly help".
HARDLY = 0.01

Curves = dict[tuple[str, str], dict[int, list[float]]]


def read(path: Path, only: str | None) -> tuple[Curves, list[dict]]:
    lines = list(read_lines(path))
    strategies = set(only.split(",")) if only else {line["strategy"] for line in lines}
    lines = [line for line in lines if line["strategy"] in strategies]
    have = Counter((line["dataset"], line["draw"]) for line in lines)
    lines = [line for line in lines if have[line["dataset"], line["draw"]] == len(strategies)]
    curves: Curves = defaultdict(lambda: defaultdict(list))
    for line in sorted(lines, key=lambda line: line["draw"]):
        for size, accuracy in line["accuracy"].items():
            curves[line["dataset"], line["strategy"]][int(size)].append(accuracy)
    return curves, lines


def needed(curve: dict[int, list[float]], goal: float) -> float:
    """Labels at which the mean curve first reaches the goal, between two sizes by a straight line; inf if never."""
    sizes = sorted(curve)
    means = [float(np.mean(curve[size])) for size in sizes]
    for place, mean in enumerate(means):
        if mean >= goal:
            if place == 0:
                return sizes[0]
            share = (goal - means[place - 1]) / max(mean - means[place - 1], 1e-12)
            return sizes[place - 1] + share * (sizes[place] - sizes[place - 1])
    return float("inf")


def efficiency(curves: Curves, names: list[str], strategies: list[str]) -> None:
    print("| accuracy % at 10 / 20 / 50 / 100 / 200 labels | " + " | ".join(strategies) + " |")
    print("|---" * (len(strategies) + 1) + "|")
    for name in names:
        cells = []
        for strategy in strategies:
            curve = curves[name, strategy]
            cells.append(" / ".join(f"{100 * np.mean(curve[size]):.1f}" for size in SHOWN if size in curve))
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()
    print(
        "| | labels for random's accuracy at 100 (median) | mean gain over random, points, at 10 / 20 / 50 / 100 / 200 "
        "| cells worse than random by over a point | of these by over two standard errors | worst |"
    )
    print("|---|---|---|---|---|---|")
    for strategy in strategies:
        need, gains, worst, behind, clear = [], defaultdict(list), (1.0, "", 0), [], 0
        for name in names:
            random, own = curves[name, "random"], curves[name, strategy]
            if 100 in random:
                need.append(needed(own, float(np.mean(random[100]))))
            for size in SHOWN:
                if size not in own or size not in random:
                    continue
                gap = np.asarray(own[size]) - np.asarray(random[size])
                gains[size].append(gap.mean())
                worst = min(worst, (float(gap.mean()), name, size))
                if gap.mean() < -HARDLY:
                    behind.append((name, size))
                    clear += bool(gap.mean() + HARDLY < -2 * gap.std(ddof=1) / np.sqrt(len(gap)))
        mean = " / ".join(f"{100 * np.mean(gains[size]):+.1f}" for size in SHOWN)
        cells = sum(len(gains[size]) for size in SHOWN)
        said = f"{100 * worst[0]:+.1f} ({worst[1]}, {worst[2]} labels)" if strategy != "random" else ""
        print(f"| {strategy} | {np.median(need):.0f} | {mean} | {len(behind)} of {cells} | {clear} | {said} |")
    print()
    print("Cells where auto is behind by over a point:", end=" ")
    for name in names:
        for size in SHOWN:
            gap = np.asarray(curves[name, "auto"].get(size, [0])) - np.asarray(curves[name, "random"].get(size, [0]))
            if gap.mean() < -HARDLY:
                print(
                    f"{name} at {size} ({100 * gap.mean():+.1f} ± {100 * gap.std(ddof=1) / np.sqrt(len(gap)):.1f});",
                    end=" ",
                )
    print("\n")


def stopping(lines: list[dict]) -> None:
    """Compare the rule of sobgnn.app.labeling.progress with what doubling the labels once more did."""
    print("| changed by the last doubling | times | mean gain of the next, points | over 1 point | over 2 points |")
    print("|---|---|---|---|---|")
    pairs = []
    for line in lines:
        if line["strategy"] != "auto":
            continue
        accuracy = {int(size): value for size, value in line["accuracy"].items()}
        for size, changed in line["changed"].items():
            if int(size) >= FEWEST and 2 * int(size) in accuracy:
                pairs.append((changed, accuracy[2 * int(size)] - accuracy[int(size)]))
    changed, gain = np.array(pairs).T
    edges = (0, 0.01, CHANGED, 0.05, 0.1, 0.2, 1)
    for low, high in itertools.pairwise(edges):
        chosen = (changed > low if low else changed >= 0) & (changed <= high)
        if chosen.any():
            over = [f"{(gain[chosen] > limit).mean():.0%}" for limit in (0.01, 0.02)]
            mean = f"{100 * gain[chosen].mean():+.2f}"
            print(f"| {low:.0%} to {high:.0%} | {chosen.sum()} | {mean} | {over[0]} | {over[1]} |")
    little = gain <= HARDLY
    said = (changed[little] <= CHANGED).sum()
    print(f"\nOf {little.sum()} times that doubling brought at most a point, the rule said so {said} times.\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    running, reporting = parts.add_parser("run"), parts.add_parser("report")
    running.add_argument("--sets", type=Path, required=True)
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--names", default=",".join(NAMES))
    running.add_argument("--strategies", default=",".join(STRATEGIES))
    running.add_argument("--draws", type=int, default=10)
    running.add_argument("--jobs", type=int)
    running.add_argument("--limit", type=float, default=1e9, help="seconds")
    reporting.add_argument("lines", type=Path)
    reporting.add_argument("--strategies", help="these alone, so that more draws are common to all")
    asked = parser.parse_args()
    if asked.part == "report":
        report(asked)
        return
    done = {(line["dataset"], line["strategy"], line["draw"]) for line in read_lines(asked.out)}
    cases = [
        (str(asked.sets / f"{name}.npz"), strategy, draw)
        for draw in range(asked.draws)
        for name in asked.names.split(",")
        for strategy in asked.strategies.split(",")
        if (name, strategy, draw) not in done
    ]
    append_cases(asked.out, run, cases, asked.jobs, asked.limit)


def report(asked: argparse.Namespace) -> None:
    curves, lines = read(asked.lines, asked.strategies)
    names = list(dict.fromkeys(line["dataset"] for line in lines))
    strategies = [name for name in STRATEGIES if any(line["strategy"] == name for line in lines)]
    efficiency(curves, names, strategies)
    stopping(lines)


if __name__ == "__main__":
    main()
