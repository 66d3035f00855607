"""Claim: noise is called guessing, knowledge is not, and accepted predictions keep their promise.

    python -m benchmarks.honesty --sets FOLDER --keep DRAWS [--labels 150,300] [--draws 20] [--jobs 16] [--limit 240]
    python -m benchmarks.honesty --keep DRAWS        # judges the draws that are there, fits none

FOLDER holds one npz per data set (``python -m benchmarks.suite_sets``), of which at most 1,000 rows are used. Each draw
labels some of them at random and fits the estimator with its default settings, with the labels as they are and, with
``--order shuffled``, shuffled. What a draw says is kept in DRAWS, so that a stopped run resumes.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.cases import load_set, run_cases
from sobgnn.estimator.acceptance import find_acceptance
from sobgnn.estimator.guessing import judge

ROWS = 1000
# Beyond this share of the rows, too few are left to measure on.
MOST_LABELLED = 0.6
TARGETS = (0.9, 0.95)
ORDERS = ("true", "shuffled")


class Draw(NamedTuple):
    """One fit: a data set's file, the number of labels, a seed, and the order of the labels."""

    path: str
    labels: int
    seed: int
    order: str
    keep: str

    @property
    def file(self) -> Path:
        """Where it is kept."""
        return Path(self.keep) / f"{Path(self.path).stem}.{self.labels}.{self.seed}.{self.order}.npz"


def fit(draw: Draw) -> str:
    """Fit one draw and keep it: out-of-fold labels, and the confidence of every hidden row."""
    from sobgnn import SobolevClassifier
    from sobgnn.estimator.frequencies import shift_priors

    X, y = load_set(draw.path, ROWS)
    if draw.labels > MOST_LABELLED * len(y):
        return "too few rows"
    generator = np.random.default_rng([draw.seed, draw.labels, ORDERS.index(draw.order)])
    chosen = generator.permutation(len(y))[: draw.labels]
    given = np.full(len(y), -1)
    given[chosen] = generator.permutation(y[chosen]) if draw.order == "shuffled" else y[chosen]
    if len(np.unique(y[chosen])) < 2:
        return "one class"
    fitted = SobolevClassifier(random_state=draw.seed, device="cpu").fit(X, given)
    held = fitted.out_of_fold_probabilities_
    judged = np.isfinite(held).all(axis=1)
    codes = fitted.labelled_codes_[judged]
    # The same adjustment of class frequencies as in the probabilities that users see.
    shown = shift_priors(held[judged], fitted.predictor_.ratio)
    hidden = given < 0
    p = fitted.label_distributions_[hidden]
    unfinished = draw.file.with_suffix(".part")
    with unfinished.open("wb") as file:
        np.savez_compressed(
            file, oof=held[judged].astype(np.float32), codes=codes.astype(np.int16),
            shown=shown.max(axis=1), right=shown.argmax(axis=1) == codes,
            confidence=p.max(axis=1), hidden_right=fitted.classes_[p.argmax(axis=1)] == y[hidden],
        )  # fmt: skip
    unfinished.replace(draw.file)
    return "kept"


def accepted(kept: Any, target: float) -> tuple[float, float]:
    """The share of the hidden rows that is accepted, and the share of these that is wrong."""
    confidence = kept["confidence"]
    taken = find_acceptance(kept["shown"], kept["right"], target, confidence).accepts(confidence)
    return float(taken.mean()), float(1 - kept["hidden_right"][taken].mean()) if taken.any() else 0.0


def report(keep: Path, names: set[str] | None = None) -> None:
    """Print what the kept draws of some or all data sets say, by number of labels."""
    found: dict[tuple[int, str], list[tuple[str, Any]]] = defaultdict(list)
    for file in sorted(keep.glob("*.npz")):
        name, labels, _, order = file.stem.rsplit(".", 3)
        if names is not None and name not in names:
            continue
        with np.load(file) as kept:
            found[int(labels), order].append((name, dict(kept)))
    for (labels, order), draws in sorted(found.items()):
        verdicts = [(name, judge(kept["codes"].astype(np.int64), kept["oof"]), kept) for name, kept in draws]
        odd = "better" if order == "shuffled" else "guessing"
        said = [verdict.outcome for _, verdict, _ in verdicts]
        wrong = [name for name, verdict, _ in verdicts if verdict.outcome == odd]
        counts = {outcome: said.count(outcome) for outcome in ("guessing", "unknown", "better")}
        print(
            f"labels={labels:<4} order={order:<8} sets={len({name for name, _ in draws})} draws={len(draws):<4} "
            + "  ".join(f"{outcome} {count}" for outcome, count in counts.items())
            + (f"   {odd}: { {name: wrong.count(name) for name in sorted(set(wrong))} }" if wrong else "")
        )
        if order == "true":
            for name, verdict, kept in verdicts:
                if verdict.outcome == odd:
                    hidden = f"{kept['hidden_right'].mean():.1%} of hidden rows right"
                    print(f"    {name:<16} p {verdict.p_value:.4f}  {hidden}, largest class {verdict.majority:.1%}")
            for target in TARGETS:
                report_accepted(labels, target, draws)


def report_accepted(labels: int, target: float, draws: list[tuple[str, Any]]) -> None:
    """Print how often the error of accepted predictions is what was promised, over all draws and by data set."""
    rows = [(name, *accepted(kept, target)) for name, kept in draws]
    kept_by_set: dict[str, list[bool]] = defaultdict(list)
    share_by_set: dict[str, list[float]] = defaultdict(list)
    for name, share, wrong in rows:
        kept_by_set[name].append(wrong <= 1 - target)
        share_by_set[name].append(share)
    holds = float(np.mean([wrong <= 1 - target for _, _, wrong in rows]))
    some = [wrong <= 1 - target for _, share, wrong in rows if share > 0]
    print(
        f"labels={labels:<4} accept {target:<5} draws={len(rows):<4} accept any: {len(some)}"
        f"  mean share accepted {np.mean([share for _, share, _ in rows]):.1%}  promise kept {holds:.1%}"
        f" (of those that accept any {np.mean(some) if some else 1:.1%}) {'holds' if holds >= 0.9 else 'misses'}"
    )
    for name, kept in kept_by_set.items():
        print(f"    {name:<16} kept {sum(kept)} of {len(kept)}  mean share accepted {np.mean(share_by_set[name]):.1%}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sets", type=Path, help="folder of npz files; without it, no draw is fitted")
    parser.add_argument("--names", default="", help="data sets, separated by commas; default: all")
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--labels", default="150,300")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--order", default="true", help="true, shuffled, or both with a comma")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    print(__doc__.splitlines()[0])
    names = set(asked.names.split(",")) if asked.names else None
    if asked.sets:
        draws = [
            Draw(str(path), int(labels), seed, order, str(asked.keep))
            for seed in range(asked.first, asked.first + asked.draws)
            for labels in asked.labels.split(",")
            for order in asked.order.split(",")
            for path in sorted(asked.sets.glob("*.npz"))
            if names is None or path.stem in names
        ]
        for draw, said in run_cases(fit, [draw for draw in draws if not draw.file.exists()], asked.jobs, asked.limit):
            if said != "kept":
                print(f"{draw.file.stem}: {said!r}", flush=True)
    report(asked.keep, names)


if __name__ == "__main__":
    main()
