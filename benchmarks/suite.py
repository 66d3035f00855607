"""Claim: the default estimator is ahead of tuned peers in mean and rank, at 5 and 20 labels per class and at 10 %.

    python -m benchmarks.suite --sets FOLDER --lines results/suite.jsonl    # measures; resumes where it was stopped
    python -m benchmarks.suite --lines results/suite.jsonl --report results/suite.md

FOLDER holds one npz per data set, X [N, F] and y [N], made by ``python -m benchmarks.suite_sets``: the 26 development
sets, classic tables (results/suite_classic.jsonl), or surveys that had no part in any choice
(results/suite_unseen.jsonl). Every method gets the same labels and predicts all other points; the peers choose their
parameters by cross-validation on the labels they are given.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HOW = ("5", "20", "10%")
PEERS = ("LabelSpreading", "forest", "SVM", "logistic", "MLP", "boosting", "k-NN", "self-training")
OURS = "SobolevClassifier"
# Too wide for boosting in reasonable time; it is never the best there.
WIDE = ("isolet", "har", "20news", "mnist", "cylinder-bands")


def draw_labels(y: np.ndarray, how: str, draw: int) -> np.ndarray:
    """Labels [N] with all but some set to -1: a number per class, or a share of all points with 2 of each class."""
    generator = np.random.default_rng(1000 + draw)
    given = np.full(len(y), -1)
    order = generator.permutation(len(y))
    if how.endswith("%"):
        rows = order[: round(len(y) * float(how[:-1]) / 100)]
        given[rows] = y[rows]
        how = "2"
    for code in np.unique(y):
        lacking = max(0, int(how) - int((given == code).sum()))
        # At least a fifth of a class stays hidden, or there would be nothing to measure.
        rows = order[(y[order] == code) & (given[order] == -1)]
        given[rows[: min(lacking, int(0.8 * len(rows)))]] = code
    return given


def peer(name: str, labels: np.ndarray) -> Any:
    """A peer and the grid it is tuned over, in a pipeline that scales where that is usual."""
    from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    least = np.bincount(labels).min()
    return {
        "forest": (RandomForestClassifier(300, random_state=0), {"max_features": ["sqrt", 0.5]}),
        "SVM": (SVC(probability=False, random_state=0), {"C": [1.0, 10.0, 100.0], "gamma": ["scale", 0.01]}),
        "logistic": (LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0, 10.0]}),
        "MLP": (
            MLPClassifier(random_state=0, max_iter=300),
            {"hidden_layer_sizes": [(64,), (256,)], "alpha": [1e-4, 0.1]},
        ),
        "boosting": (
            HistGradientBoostingClassifier(max_iter=100, random_state=0, early_stopping=False),
            {"min_samples_leaf": [5, 20]},
        ),
        "k-NN": (KNeighborsClassifier(), {"n_neighbors": [1, 5] if least < 5 else [1, 5, 15], "weights": ["distance"]}),
    }[name]


def predicted(name: str, X: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Classes of all points, and probabilities where there are any."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.preprocessing import StandardScaler
    from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

    known = given >= 0
    if name == OURS:
        from sobgnn import SobolevClassifier

        fitted = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
        return fitted.transduction_, fitted.label_distributions_
    Z = StandardScaler().fit_transform(X)
    folds = min(3, int(np.bincount(given[known]).min()))
    if name == "LabelSpreading":
        best: tuple[float, Any] | None = None
        for k in (7, 15):
            for alpha in (0.2, 0.8, 0.99):
                score = _spreading_score(Z, given, k, alpha, folds)
                if best is None or score > best[0]:
                    best = (
                        score,
                        LabelSpreading(kernel="knn", n_neighbors=min(k, len(Z) - 1), alpha=alpha, max_iter=100),
                    )
        fitted = best[1].fit(Z, given)
        return fitted.transduction_, fitted.label_distributions_
    if name == "self-training":
        fitted = SelfTrainingClassifier(LogisticRegression(max_iter=500), threshold=0.8).fit(Z, given)
        return fitted.predict(Z), fitted.predict_proba(Z)
    model, grid = peer(name, given[known])
    if folds >= 2:
        splits = StratifiedKFold(folds, shuffle=True, random_state=0)
        model = GridSearchCV(model, grid, cv=splits, n_jobs=1)
    fitted = model.fit(Z[known], given[known])
    return fitted.predict(Z), fitted.predict_proba(Z) if hasattr(fitted, "predict_proba") else None


def _spreading_score(Z: np.ndarray, given: np.ndarray, k: int, alpha: float, folds: int) -> float:
    from sklearn.model_selection import StratifiedKFold
    from sklearn.semi_supervised import LabelSpreading

    rows = np.flatnonzero(given >= 0)
    if folds < 2:
        return 0.0
    right = 0
    for _, out in StratifiedKFold(folds, shuffle=True, random_state=0).split(rows, given[rows]):
        seen = given.copy()
        seen[rows[out]] = -1
        fitted = LabelSpreading(kernel="knn", n_neighbors=min(k, len(Z) - 1), alpha=alpha, max_iter=100).fit(Z, seen)
        right += int((fitted.transduction_[rows[out]] == given[rows[out]]).sum())
    return right / len(rows)


def measure(case: tuple[str, str, str, int]) -> dict[str, Any]:
    """One method on one draw of one data set."""
    path, how, name, draw = case
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from sklearn.metrics import balanced_accuracy_score, log_loss

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with np.load(path) as data:
        X, y = data["X"].astype(np.float64), data["y"]
    given = draw_labels(y, how, draw)
    started = time.process_time()
    found, probabilities = predicted(name, X, given)
    spent = time.process_time() - started
    hidden = given == -1
    line: dict[str, Any] = {
        "set": Path(path).stem, "labels": how, "method": name, "draw": draw,
        "accuracy": float((found == y)[hidden].mean()),
        "balanced": float(balanced_accuracy_score(y[hidden], found[hidden])),
        "seconds": round(spent, 2),
    }  # fmt: skip
    if probabilities is not None:
        own = np.asarray(probabilities[hidden], dtype=float).clip(1e-12)
        own /= own.sum(axis=1, keepdims=True)
        line["log_loss"] = float(log_loss(y[hidden], own, labels=np.arange(own.shape[1])))
        line["ece"] = expected_calibration_error(own, y[hidden])
    return line


def expected_calibration_error(probabilities: np.ndarray, codes: np.ndarray, bins: int = 15) -> float:
    """The mean distance between accuracy and confidence, over bins of confidence and weighted by their rows."""
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == codes
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    return float(np.abs(np.bincount(which, right - confidence, minlength=bins)).sum() / max(1, len(codes)))


def _guarded(case: tuple[str, str, str, int]) -> dict[str, Any]:
    try:
        return measure(case)
    except Exception as error:  # one method that fails on one set must not end the others
        return {
            "set": Path(case[0]).stem,
            "labels": case[1],
            "method": case[2],
            "draw": case[3],
            "error": repr(error)[:300],
        }


def read(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)


def run(sets: Path, lines: Path, methods: list[str], draws: int, jobs: int, limit: float, how: list[str]) -> None:
    done = {(r["set"], r["labels"], r["method"], r["draw"]) for r in read(lines)}
    cases = [
        (str(path), labels, method, draw)
        for draw in range(draws)
        for path in sorted(sets.glob("*.npz"))
        for labels in how
        for method in methods
        if (path.stem, labels, method, draw) not in done and not (method == "boosting" and path.stem in WIDE)
    ]
    started = time.time()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool, lines.open("a") as file:
        for number, line in enumerate(pool.imap_unordered(_guarded, cases)):
            file.write(json.dumps(line) + "\n")
            file.flush()
            print(number + 1, "of", len(cases), line, flush=True)
            if time.time() - started > limit:
                print("Time is up; the rest is measured by the next call.", flush=True)
                pool.terminate()
                break


def report(lines: Path) -> str:
    """Means, ranks, wins and worst gaps, per number of labels, over the sets and draws that all methods have."""
    records = [r for r in read(lines) if "accuracy" in r]
    text = ["# The estimator against tuned peers", "", "Made by `python -m benchmarks.suite` (see its docstring).", ""]
    for how in HOW:
        own = [r for r in records if r["labels"] == how]
        methods = [m for m in (OURS, *PEERS) if any(r["method"] == m for r in own)]
        sets = sorted({r["set"] for r in own})
        table: dict[tuple[str, str], dict[str, float]] = {}
        for s in sets:
            here = [m for m in methods if any(r["method"] == m and r["set"] == s for r in own)]
            draws = set.intersection(*({r["draw"] for r in own if r["set"] == s and r["method"] == m} for m in here))
            for m in methods:
                rows = [r for r in own if r["set"] == s and r["method"] == m and r["draw"] in draws]
                if rows:
                    table[s, m] = {
                        key: float(np.mean([r[key] for r in rows if key in r]))
                        if any(key in r for r in rows)
                        else np.nan
                        for key in ("accuracy", "balanced", "log_loss", "ece", "seconds")
                    }
        sets = [s for s in sets if (s, OURS) in table]
        if not sets:
            continue
        # A peer that was not measured on a set counts as last there, and its means are over the others.
        accuracy = (
            np.array([[table[s, m]["accuracy"] if (s, m) in table else np.nan for m in methods] for s in sets]) * 100
        )
        ranks = (-np.nan_to_num(accuracy, nan=-1.0)).argsort(axis=1).argsort(axis=1) + 1.0
        best_peer = np.nanmax(accuracy[:, 1:], axis=1) if len(methods) > 1 else accuracy[:, 0]
        text += [
            f"## {how} labels{'' if how.endswith('%') else ' per class'}, {len(sets)} data sets",
            "",
            "| | accuracy | rank | first | balanced | log loss | calibration error | CPU s |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for j, m in enumerate(methods):
            own = [table[s, m] for s in sets if (s, m) in table]
            mean = {}
            for key in ("balanced", "log_loss", "ece", "seconds"):
                known = [each[key] for each in own if not np.isnan(each[key])]
                mean[key] = np.mean(known) if known else np.nan
            first = (accuracy[:, j] >= np.nanmax(accuracy, axis=1)).sum()
            text.append(
                f"| {m} | {np.nanmean(accuracy[:, j]):.2f} | {ranks[:, j].mean():.2f} | {first} | "
                f"{100 * mean['balanced']:.2f} | {mean['log_loss']:.3f} | {mean['ece']:.3f} | {mean['seconds']:.1f} |"
            )
        gaps = accuracy[:, 0] - best_peer
        worst = ", ".join(f"{sets[i]} {gaps[i]:+.1f}" for i in gaps.argsort()[:5])
        text += [
            "",
            f"Against the best peer of each set: mean {gaps.mean():+.2f}, worst {worst}.",
            "",
            "| | " + " | ".join(methods) + " |",
            "|---" * (len(methods) + 1) + "|",
        ]
        for i, s in enumerate(sets):
            text.append(f"| {s} | " + " | ".join(f"{value:.1f}" for value in accuracy[i]) + " |")
        text.append("")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=Path)
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--report", type=Path)
    parser.add_argument("--methods", default=",".join((OURS, *PEERS)))
    parser.add_argument("--labels", default=",".join(HOW))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    options = parser.parse_args()
    if options.sets:
        run(
            options.sets,
            options.lines,
            options.methods.split(","),
            options.draws,
            options.jobs,
            options.limit,
            options.labels.split(","),
        )
    text = report(options.lines)
    print(text)
    if options.report:
        options.report.write_text(text)


if __name__ == "__main__":
    main()
