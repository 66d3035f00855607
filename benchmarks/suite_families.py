"""Claim: every family pays for itself: the blend without it is worse on average at 5 labels per class.

    python -m benchmarks.suite_families --sets FOLDER --lines FILE [--draws 3] [--labels 5,20,10%] [--jobs 2]
    python -m benchmarks.suite_families --lines FILE

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``); labels are drawn as by ``benchmarks.suite``.
Each draw is fitted once. From the probabilities that its families keep, the blend is made again without each family in
turn, and each family is judged alone. Prints mean accuracy over the data sets; a stopped run resumes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import append_cases, read_lines
from benchmarks.left_out import LeftOut, table
from benchmarks.suite import HOW, draw_labels
from sobgnn import SobolevClassifier


def run(case: tuple[str, str, int]) -> dict[str, Any]:
    """Accuracy on hidden points of the blend, of the blend without each family, and of each family alone."""
    path, how, draw = case
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = draw_labels(y, how, draw)
    hidden = given == -1

    def accuracy(found: np.ndarray) -> float:
        return float((found == y)[hidden].mean())

    families = LeftOut(SobolevClassifier(random_state=0, device="cpu").fit(X, given))
    return {
        "set": Path(path).stem, "labels": how, "draw": draw, **families.scores(accuracy),
        "alone": {name: accuracy(families.predicted([name])) for name in families.names},
    }  # fmt: skip


def report(lines: list[dict[str, Any]]) -> None:
    """Means over the data sets, in %, without each family and of each alone."""
    sizes = [how for how in HOW if any(line["labels"] == how for line in lines)]
    own = {how: [line for line in lines if line["labels"] == how] for how in sizes}
    print(table({how: [(line["set"], line["all"], line["without"]) for line in own[how]] for how in sizes}))
    print("\n| alone | " + " | ".join(sizes) + " |", "|---" * (len(sizes) + 1) + "|", sep="\n")
    for name in dict.fromkeys(name for line in lines for name in line["alone"]):
        print(f"| {name} | " + " | ".join(_alone(own[how], name) for how in sizes) + " |")


def _alone(lines: list[dict[str, Any]], name: str) -> str:
    by_set = defaultdict(list)
    for line in lines:
        if name in line["alone"]:
            by_set[line["set"]].append(line["alone"][name])
    return f"{100 * np.mean([np.mean(values) for values in by_set.values()]):.2f}" if by_set else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--labels", default=",".join(HOW))
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    if asked.sets:
        done = {(line["set"], line["labels"], line["draw"]) for line in read_lines(asked.lines)}
        cases = [
            (str(path), how, draw)
            for draw in range(asked.draws)
            for path in sorted(asked.sets.glob("*.npz"))
            for how in asked.labels.split(",")
            if (path.stem, how, draw) not in done
        ]
        append_cases(asked.lines, run, cases, asked.jobs, asked.limit)
    report(list(read_lines(asked.lines)))


if __name__ == "__main__":
    main()
