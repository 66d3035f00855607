"""Claim: with few labels of each class, Poisson learning pays wherever it joins the other families.

    python -m benchmarks.few_families --sets FOLDER --lines FILE [--per-class 1,2,3,5] [--draws 2] [--jobs 2]
    python -m benchmarks.few_families --lines FILE

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``). The estimator is fitted by default and, where
Poisson learning joined, without it; the labels are those of ``benchmarks.suite``. Prints mean accuracy on the other
points by data set; a stopped run resumes.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import run_by_labels
from benchmarks.suite import draw_labels

PER_CLASS = "1,2,3,5"


def run(case: tuple[str, str, int]) -> dict[str, Any]:
    """Accuracy on unlabeled points with and without Poisson learning, for one data set and draw."""
    from sobgnn import SobolevClassifier

    path, per_class, draw = case
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = draw_labels(y, per_class, draw)

    def accuracy(fitted: SobolevClassifier) -> float:
        return round(float((fitted.transduction_ == y)[given == -1].mean()), 5)

    fitted = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
    line = {"set": Path(path).stem, "per_class": per_class, "draw": draw, "with": accuracy(fitted)}
    if "poisson" in fitted.family_accuracy_:
        others = [name for name in fitted.family_accuracy_ if name != "poisson"]
        line["without"] = accuracy(SobolevClassifier(families=others, random_state=0, device="cpu").fit(X, given))
        line["share"] = round(fitted.family_shares_.get("poisson", 0.0), 3)
    return line


def report(lines: list[dict[str, Any]]) -> None:
    """By data set and number of labels: accuracy with Poisson learning and without it, in %."""
    numbers = sorted({line["per_class"] for line in lines}, key=int)
    cells = defaultdict(list)
    for line in lines:
        if "without" in line:
            cells[line["set"], line["per_class"]].append((line["with"], line["without"]))
    print("| | " + " | ".join(f"{n} per class" for n in numbers) + " |", "|---" * (1 + len(numbers)) + "|", sep="\n")
    gains = defaultdict(list)
    for name in sorted({name for name, _ in cells}):
        row = []
        for n in numbers:
            own, other = 100 * np.mean(cells.get((name, n), [(np.nan, np.nan)]), axis=0)
            gains[n].append(own - other)
            row.append(f"{own:.1f} ({own - other:+.1f})")
        print(f"| {name} | " + " | ".join(row) + " |")
    print("| mean | " + " | ".join(f"{np.nanmean(gains[n]):+.2f}" for n in numbers) + " |")


def main() -> None:
    run_by_labels(__doc__, PER_CLASS, str, run, report)


if __name__ == "__main__":
    main()
