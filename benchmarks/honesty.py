"""Claim: noise is called guessing, knowledge is not, and accepted predictions keep their promise.

Run: SOBGNN_DATA=folder-with-tables python -m benchmarks.honesty --keep FOLDER [--labels 60,150] [--draws 0,1,2]

Each data set is cut to 600 rows; each draw labels some of them at random and fits the estimator with its default
settings, once with the labels as they are and once with them shuffled. Out-of-fold probabilities and predictions of
every draw are kept in FOLDER, so that a second run only judges them.
"""

from __future__ import annotations

import argparse
import os
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn.estimator.acceptance import find_acceptance
from sobgnn.estimator.guessing import judge
from sobgnn.estimator.priors import shift_priors

SETS = (
    "digits", "wine", "breast_cancer", "iris", "autos", "car", "cmc", "credit-a", "mushroom", "segment", "sick",
    "spambase", "vehicle", "vowel",
)  # fmt: skip
ROWS = 600
TARGETS = (0.9, 0.95)


def points(name: str) -> tuple[Any, Any]:
    """At most ``ROWS`` rows of a data set, with the code of each row's class."""
    import sklearn.datasets

    from sobgnn.runs.source import load_table

    if name in ("wine", "breast_cancer", "iris"):
        X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    else:
        place = name if name == "digits" else str(Path(os.environ["SOBGNN_DATA"]) / "tables" / f"{name}.csv")
        table = load_table(place)[1]
        X, y = table.X, table.codes
    rows = np.random.default_rng(0).permutation(np.flatnonzero(y >= 0))[:ROWS]
    return np.asarray(X[rows]), np.unique(y[rows], return_inverse=True)[1]


def draw(folder: Path, name: str, labels: int, seed: int, shuffled: bool) -> Any:
    """What a fit says of one draw, from the folder where it is there; ``None`` where a data set has too few rows."""
    file = folder / f"{name}.{labels}.{seed}.{int(shuffled)}.npz"
    if not file.exists():
        from sobgnn import SobolevClassifier

        X, y = points(name)
        if labels > 0.6 * len(y):
            return None
        generator = np.random.default_rng([seed, labels, shuffled])
        chosen = generator.permutation(len(y))[:labels]
        given = np.full(len(y), -1)
        given[chosen] = generator.permutation(y[chosen]) if shuffled else y[chosen]
        fitted = SobolevClassifier(random_state=seed).fit(X, given)
        np.savez(
            file, oof=fitted.out_of_fold_probabilities_, codes=fitted.classes_[fitted.labelled_codes_],
            classes=fitted.classes_, p=fitted.label_distributions_, truth=y, given=given, ratio=fitted.predictor_.ratio,
            labelled=fitted.labelled_,
        )  # fmt: skip
    return np.load(file)


def out_of_fold(kept: Any) -> tuple[Any, Any]:
    """Codes [J] and probabilities [J, C] of the labels that were held out."""
    judged = np.isfinite(kept["oof"]).all(axis=1)
    return np.searchsorted(kept["classes"], kept["codes"])[judged], kept["oof"][judged]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--labels", default="60,150")
    parser.add_argument("--draws", default="0,1,2")
    parser.add_argument("--only-kept", action="store_true", help="judge the draws in FOLDER, fit none")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    print(__doc__.splitlines()[0])
    for labels in map(int, asked.labels.split(",")):
        verdicts: dict[tuple[bool, str], list[str]] = defaultdict(list)
        kept_promise: dict[float, list[tuple[str, float, float]]] = defaultdict(list)
        for name in SETS:
            for seed in map(int, asked.draws.split(",")):
                for shuffled in (True, False):
                    if asked.only_kept and not (asked.keep / f"{name}.{labels}.{seed}.{int(shuffled)}.npz").exists():
                        continue
                    kept = draw(asked.keep, name, labels, seed, shuffled)
                    if kept is None:
                        continue
                    codes, probability = out_of_fold(kept)
                    verdicts[shuffled, judge(codes, probability).outcome].append(name)
                    if not shuffled:
                        for target in TARGETS:
                            kept_promise[target].append((name, *accepted(kept, codes, probability, target)))
        report(labels, verdicts, kept_promise)


def accepted(kept: Any, codes: Any, probability: Any, target: float) -> tuple[float, float]:
    """The share of the unlabeled rows that is accepted, and the share of these that is wrong."""
    shown = shift_priors(probability, kept["ratio"])
    free = kept["given"] < 0
    found = kept["p"][free]
    confidence = found.max(axis=1)
    acceptance = find_acceptance(shown.max(axis=1), shown.argmax(axis=1) == codes, target, confidence)
    taken = acceptance.accepts(confidence)
    wrong = kept["classes"][found.argmax(axis=1)] != kept["truth"][free]
    return float(taken.mean()), float(wrong[taken].mean()) if taken.any() else 0.0


def report(labels: int, verdicts: Any, kept_promise: Any) -> None:
    """Print what came out."""
    for shuffled, said in ((True, "shuffled"), (False, "as they are")):
        parts = {outcome: verdicts[shuffled, outcome] for outcome in ("guessing", "unknown", "better")}
        total = sum(map(len, parts.values()))
        odd = "better" if shuffled else "guessing"
        named = {name: parts[odd].count(name) for name in sorted(set(parts[odd]))}
        print(
            f"labels={labels:<4} {said:<12} draws={total:<4} "
            + "  ".join(f"{outcome} {len(names)}" for outcome, names in parts.items())
            + (f"   {odd}: {named}" if named else "")
        )
    for target, rows in kept_promise.items():
        broken = [name for name, _, wrong in rows if wrong > 1 - target]
        some = sum(share > 0 for _, share, _ in rows)
        holds = 1 - len(broken) / len(rows)
        print(
            f"labels={labels:<4} accept {target:<5} draws={len(rows):<4} with any accepted {some}  mean share accepted "
            f"{np.mean([share for _, share, _ in rows]):.1%}  promise kept {holds:.1%}"
            f" {'holds' if holds >= 0.9 else 'misses'}" + (f"   broken: {broken}" if broken else "")
        )


if __name__ == "__main__":
    main()
