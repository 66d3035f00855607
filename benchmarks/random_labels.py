"""Claim: a few labels at random are no measure of class frequencies: read as such, they cost a point or two.

    python -m benchmarks.random_labels --sets FOLDER --lines FILE [--per-class 1,2,3,5,10] [--draws 2] [--jobs 2]
    python -m benchmarks.random_labels --lines FILE

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``), of which at most 1,200 rows are used. As many
points as n of each class would be are labeled at random, and the estimator is fitted by default and with
``class_priors=None``, which takes classes to be as common as they are among the labels. Prints the mean accuracy on the
other points over the data sets; a stopped run resumes.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import load_set, run_by_labels

ROWS = 1200
PER_CLASS = "1,2,3,5,10"
# Beyond this share of the rows, too few are left to measure on.
MOST_LABELLED = 0.5
HOW: dict[str, Any] = {"default": "auto", "shares of the labels": None}


def run(case: tuple[str, float, int]) -> dict[str, Any]:
    """Accuracy on unlabeled points by how class frequencies are told, for one data set and draw."""
    from sobgnn import SobolevClassifier

    path, per_class, draw = case
    X, y = load_set(path, ROWS)
    count = round(per_class * len(np.unique(y)))
    labelled = np.random.default_rng([draw, count]).permutation(len(y))[:count]
    given = np.full(len(y), -1)
    given[labelled] = y[labelled]
    line: dict[str, Any] = {"set": Path(path).stem, "per_class": per_class, "draw": draw}
    if count > MOST_LABELLED * len(y) or len(np.unique(y[labelled])) < 2:
        return line
    for name, priors in HOW.items():
        fitted = SobolevClassifier(class_priors=priors, random_state=0, device="cpu").fit(X, given)
        line[name] = round(float((fitted.transduction_ == y)[given == -1].mean()), 5)
    return line


def report(lines: list[dict[str, Any]]) -> None:
    """Means over the data sets, in %, and where the difference is largest."""
    first, second = HOW
    print(
        f"| labels per class, on average | data sets | {first} | {second} | worst | best |", "|---" * 6 + "|", sep="\n"
    )
    for per_class in sorted({line["per_class"] for line in lines}):
        by_set = defaultdict(list)
        for line in lines:
            if line["per_class"] == per_class and first in line:
                by_set[line["set"]].append((line[first], line[second]))
        means = {name: 100 * np.mean(pairs, axis=0) for name, pairs in by_set.items()}
        if not means:
            continue
        both = np.mean(list(means.values()), axis=0)
        gain = sorted((own - other, name) for name, (own, other) in means.items())
        ends = (f"{name} {value:+.1f}" for value, name in (gain[0], gain[-1]))
        print(f"| {per_class:g} | {len(means)} | {both[0]:.2f} | {both[1]:.2f} | " + " | ".join(ends) + " |")


def main() -> None:
    run_by_labels(__doc__, PER_CLASS, float, run, report)


if __name__ == "__main__":
    main()
