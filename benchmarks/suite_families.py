"""Claim: every family pays for itself: the blend without it is worse on average at 5 labels per class.

    python -m benchmarks.suite_families --sets FOLDER --lines FILE [--draws 3] [--labels 5,20,10%] [--jobs 2]
    python -m benchmarks.suite_families --lines FILE

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``); labels are drawn as by ``benchmarks.suite``.
Each draw is fitted once. From the probabilities that its families keep, the blend is made again without each family in
turn, and each family is judged alone. Prints mean accuracy over the data sets; a stopped run resumes.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cases import append_cases, read_lines
from benchmarks.suite import HOW, draw_labels
from sobgnn import SobolevClassifier
from sobgnn.estimator.blending import PRIOR_COUNTS, Blend, blend_families
from sobgnn.estimator.fit import FEW_LABELS_PRIOR, PRIOR
from sobgnn.estimator.labels import Labels, class_weights
from sobgnn.estimator.priors import chosen_by_class, shift_priors
from sobgnn.estimator.smoothing import smoothed
from sobgnn.estimator.temperature import fit_temperature


def labels_of(fitted: SobolevClassifier) -> Labels:
    """The labels as the estimator has weighed and folded them."""
    codes, classes = fitted.labelled_codes_, len(fitted.classes_)
    chosen = chosen_by_class(codes, classes)
    weight = class_weights("balanced" if chosen else None, fitted.classes_, codes)[codes]
    return Labels(fitted.labelled_, codes, weight / weight.mean(), fitted.folds_, classes, chosen)


def run(case: tuple[str, str, int]) -> dict[str, Any]:
    """Accuracy on hidden points of the blend, of the blend without each family, and of each family alone."""
    path, how, draw = case
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = draw_labels(y, how, draw)
    hidden = given == -1
    fitted = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
    labels, predictor = labels_of(fitted), fitted.predictor_
    parts, weights = {}, {}
    for member in predictor.members:
        part = member.fitted.probabilities()
        if member.smoothing is not None and member.smoothing.strength:
            spread = predictor.problem.views[member.smoothing.view].spread
            part = smoothed(spread, part, labels, member.smoothing.strength)
        parts[member.title] = part
        expected = (PRIOR if labels.folds else FEW_LABELS_PRIOR).get(member.family.name, 1.0)
        weights[member.title] = expected * getattr(member.fitted, "trust", 1.0)

    def accuracy(names: list[str]) -> float:
        prior = np.array([weights[name] for name in names])
        own = [labels.out_of_fold(parts[name]) for name in names]
        blend = blend_families(own, labels, PRIOR_COUNTS * prior / prior.sum())
        if len(names) == 1 and labels.folds:
            # As sure as it is in a blend: the class frequencies below were found for that.
            judged = labels.judged
            blend = Blend((1.0,), (fit_temperature(own[0], labels.codes[judged], labels.weight[judged]),))
        found = shift_priors(blend([parts[name][-1] for name in names]).double().numpy(), predictor.ratio)
        return float((fitted.classes_[found.argmax(axis=1)] == y)[hidden].mean())

    names = list(parts)
    return {
        "set": Path(path).stem, "labels": how, "draw": draw, "all": accuracy(names),
        "without": {name: accuracy([other for other in names if other != name]) for name in names if len(names) > 1},
        "alone": {name: accuracy([name]) for name in names},
    }  # fmt: skip


def report(lines: list[dict[str, Any]]) -> None:
    """Means over the data sets, in %; a family that has no share in a draw changes nothing by being left out."""
    names = list(dict.fromkeys(name for line in lines for name in line["alone"]))
    sizes = [how for how in HOW if any(line["labels"] == how for line in lines)]
    print("| left out | " + " | ".join(sizes) + " |", "|---" * (len(sizes) + 1) + "|", sep="\n")
    for left_out in ["nothing", *names]:
        print(f"| {left_out} | " + " | ".join(_mean(lines, how, "without", left_out) for how in sizes) + " |")
    print("\n| alone | " + " | ".join(sizes) + " |", "|---" * (len(sizes) + 1) + "|", sep="\n")
    for name in names:
        print(f"| {name} | " + " | ".join(_mean(lines, how, "alone", name) for how in sizes) + " |")


def _mean(lines: list[dict[str, Any]], how: str, kind: str, name: str) -> str:
    by_set = defaultdict(list)
    for line in lines:
        if line["labels"] == how and (kind == "without" or name in line["alone"]):
            by_set[line["set"]].append(line[kind].get(name, line["all"]))
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
