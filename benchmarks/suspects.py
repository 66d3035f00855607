"""Claim: `suspects()` finds flipped labels at least as well as cleanlab does.

    python -m benchmarks.suspects --sets FOLDER --keep DRAWS [--labels 300,1000] [--draws 5] [--jobs 16] [--limit 240]
    python -m benchmarks.suspects --keep DRAWS [--names ...]       # compares; needs cleanlab

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``), of which at most 3,000 rows are used. Each draw
labels some rows at random, 5 % of them (``--rate``) with another class, and keeps the out-of-fold probabilities of the
estimator and of a logistic regression whose C is chosen by cross-validation. cleanlab's find_label_issues gets either
of them. With ``--to similar``, a flipped label is that of the class whose mean is nearest, as people confuse them.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import load_set, run_cases
from sobgnn.estimator.suspicion import suspect_labels

ROWS = 3000
# Data sets that the rule was chosen on; those that confirm it.
CHOSEN = ("digits", "segment", "20news")
CONFIRMED = ("isolet", "har", "cancer", "mnist", "vehicle", "optdigits")
METHODS = ("suspects()", "cleanlab, ours", "cleanlab, logistic")


class Draw(NamedTuple):
    """One draw: a data set's file, the number of labels, a seed, the share of wrong labels and which class they get."""

    path: str
    labels: int
    seed: int
    rate: float
    to: str
    keep: str

    @property
    def file(self) -> Path:
        """Where it is kept."""
        special = "" if (self.rate, self.to) == (0.05, "any") else f"-{self.rate:g}-{self.to}"
        return Path(self.keep) / f"{Path(self.path).stem}.{self.labels}{special}.{self.seed}.npz"


def fit(draw: Draw) -> str:
    """Flip labels, and keep what two models predict for each label without seeing it."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    from sobgnn import SobolevClassifier

    X, y = load_set(draw.path, ROWS)
    if draw.labels > 0.8 * len(y):
        return "too few rows"
    generator = np.random.default_rng([draw.seed, draw.labels])
    rows = np.sort(generator.permutation(len(y))[: draw.labels])
    # Both need two labels of each class; rare ones have no place here.
    frequent = np.bincount(y[rows], minlength=y.max() + 1) >= 5
    rows = rows[frequent[y[rows]]]
    classes, truth = np.unique(y[rows], return_inverse=True)
    codes = truth.copy()
    wrong = generator.permutation(len(rows))[: round(draw.rate * len(rows))]
    if draw.to == "similar":
        codes[wrong] = similar_classes(X[rows], truth)[truth[wrong]]
    else:
        codes[wrong] = (truth[wrong] + generator.integers(1, len(classes), len(wrong))) % len(classes)
    given = np.full(len(y), -1)
    given[rows] = codes
    fitted = SobolevClassifier(random_state=draw.seed, device="cpu").fit(X, given)
    folds = StratifiedKFold(5, shuffle=True, random_state=draw.seed)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500, tol=1e-3))
    search = GridSearchCV(linear, {"logisticregression__C": [0.001, 0.01, 0.1, 1.0, 10.0]}, cv=folds)
    best = search.fit(X[rows], codes).best_estimator_
    regression = cross_val_predict(best, X[rows], codes, cv=folds, method="predict_proba")
    unfinished = draw.file.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez_compressed(
            file, truth=truth.astype(np.int16), codes=codes.astype(np.int16),
            ours=fitted.out_of_fold_probabilities_.astype(np.float32), logistic=regression.astype(np.float32),
        )  # fmt: skip
    unfinished.replace(draw.file)
    return "kept"


def similar_classes(X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """For each class the one whose mean is nearest, [C]; columns are standardized."""
    scaled = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    means = np.stack([scaled[codes == code].mean(axis=0) for code in range(codes.max() + 1)])
    apart = np.square(means[:, None] - means[None]).sum(axis=2)
    np.fill_diagonal(apart, np.inf)
    return apart.argmin(axis=1)


def flagged(kept: Any, method: str) -> np.ndarray:
    """Labels that a method holds for wrong, as numbers of labels."""
    codes = kept["codes"].astype(np.int64)
    ours = kept["ours"].astype(np.float64)
    if method == "suspects()":
        found = suspect_labels(np.arange(len(codes)), codes, ours, np.arange(ours.shape[1]))
        return np.array([one.row for one in found], dtype=np.int64)
    from cleanlab.filter import find_label_issues

    probability = ours if method.endswith("ours") else kept["logistic"].astype(np.float64)
    judged = np.flatnonzero(np.isfinite(probability).all(axis=1))
    probability = probability[judged] / probability[judged].sum(axis=1, keepdims=True)
    found = find_label_issues(codes[judged], probability, return_indices_ranked_by="self_confidence", n_jobs=1)
    return judged[found]


def report(keep: Path, names: list[str]) -> None:
    """Print precision, recall and their harmonic mean, pooled over the draws of each data set."""
    draws: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for file in sorted(keep.glob("*.npz")):
        name, rest = file.name.split(".", 1)
        kind = rest.rsplit(".", 2)[0]
        if name in names:
            with np.load(file) as kept:
                draws[kind, name].append(dict(kept))
    for kind in sorted({kind for kind, _ in draws}):
        labels, _, special = kind.partition("-")
        print(f"\n{labels} labels{special and ', flipped ' + special}: precision / recall / F1 in %")
        print("| data set | draws | " + " | ".join(METHODS) + " |")
        print("|---" * (len(METHODS) + 2) + "|")
        scores: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
        here = [name for name in names if (kind, name) in draws]
        for name in here:
            for method in METHODS:
                right = said = wrong = 0
                for kept in draws[kind, name]:
                    flipped = kept["truth"] != kept["codes"]
                    found = flagged(kept, method)
                    right, said, wrong = (
                        right + int(flipped[found].sum()),
                        said + len(found),
                        wrong + int(flipped.sum()),
                    )
                scores[method].append((right / max(said, 1), right / max(wrong, 1), 2 * right / max(said + wrong, 1)))
            cells = [" / ".join(f"{100 * value:.0f}" for value in scores[method][-1]) for method in METHODS]
            print(f"| {name} | {len(draws[kind, name])} | " + " | ".join(cells) + " |")
        cells = [" / ".join(f"{100 * v:.1f}" for v in np.mean(scores[method], axis=0)) for method in METHODS]
        print("| mean | | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, help="folder of npz files; without it, no draw is fitted")
    parser.add_argument("--names", default=",".join((*CHOSEN, *CONFIRMED)))
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--labels", default="300,1000")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--to", choices=("any", "similar"), default="any")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    names = asked.names.split(",")
    if asked.sets is None:
        report(asked.keep, names)
        return
    draws = [
        Draw(str(asked.sets / f"{name}.npz"), int(labels), seed, asked.rate, asked.to, str(asked.keep))
        for seed in range(asked.draws)
        for labels in asked.labels.split(",")
        for name in names
    ]
    for draw, said in run_cases(fit, [draw for draw in draws if not draw.file.exists()], asked.jobs, asked.limit):
        if said != "kept":
            print(f"{draw.file.stem}: {said!r}", flush=True)


if __name__ == "__main__":
    main()
