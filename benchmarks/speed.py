"""Claims: what a fit and a prediction of SobolevClassifier take, on the same machine in the same run.

    SOBGNN_DATA=FOLDER python -m benchmarks.speed fit [--sets digits,isolet] [--rounds 3] [--load 5]
    SOBGNN_DATA=FOLDER python -m benchmarks.speed predict [--sets digits,isolet] [--points 1000000]

fit: at most 4 times (isolet) and 5 times (digits) what RandomForestClassifier(300, n_jobs=2) takes to fit and to
predict all points, with 10 % of the labels; a refit with 10 labels more (`warm_start`) at most a quarter of a fit. With
``--load 5`` the fits alone, once as the machine is and once beside 5 processes that never rest: the processor time must
not grow more than threefold. predict: one new point in at most 5 ms, the median of 200 calls of `predict_proba`; 10 000
at a million training points (128 columns, 20 labels per class; ``--points 0`` leaves them out) in at most 2 s after the
first call. Medians of wall time and processor time.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from benchmarks.scale_meter import mixture, resident, shown
from benchmarks.timing import machine, timed
from sobgnn import SobolevClassifier, datasets

FOREST_GOALS, REFIT_GOAL, LOAD_GOAL = {"isolet": 4.0, "digits": 5.0}, 0.25, 3.0
ROW_GOAL, MANY_GOAL, NEW, FEATURES = 0.005, 2.0, 10_000, 128


def told(what: str, value: float, unit: str = "", goal: float | None = None) -> None:
    verdict = "" if goal is None else f", goal {goal:g}{unit}, {'holds' if value <= goal else 'misses'}"
    print(f"{what}: {value:.4g}{unit}{verdict}", flush=True)


def problem(name: str) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray]:
    """Points, classes, labels of a tenth of them, and 10 labels more."""
    data = datasets.load(name)
    y = np.asarray(data.y)
    order = np.random.default_rng(0).permutation(len(y))
    tenth = len(y) // 10
    given, more = (np.where(np.isin(np.arange(len(y)), order[:count]), y, -1) for count in (tenth, tenth + 10))
    return data.X, y, given, more


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Beside ``count`` processes that never rest."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def fit_beside_others(name: str, count: int, rounds: int) -> None:
    """Processor time of a fit as the machine is, and beside others."""
    X, _, given, _ = problem(name)
    fit = lambda: SobolevClassifier(random_state=0, device="cpu").fit(X, given)  # noqa: E731
    fit()  # pays for imports
    alone = np.median([timed(fit)[:2] for _ in range(rounds)], axis=0)
    with busy(count):
        beside = np.median([timed(fit)[:2] for _ in range(rounds)], axis=0)
    print(f"{name}: fit {alone[0]:.2f} s, beside {count} busy processes {beside[0]:.2f} s")
    told(f"{name}: processor time beside them / alone", beside[1] / alone[1], "", LOAD_GOAL)


def fit(name: str, rounds: int) -> None:
    """A fit, a refit and a forest, in turn."""
    X, y, given, more = problem(name)
    known, right = given >= 0, {}
    times: dict[str, list[tuple[float, float]]] = {"forest": [], "fit": [], "refit": []}
    for _ in range(rounds + 1):
        forest = RandomForestClassifier(300, n_jobs=2, random_state=0)
        classifier = SobolevClassifier(random_state=0, warm_start=True, device="cpu")
        times["forest"].append(timed(lambda own=forest: own.fit(X[known], y[known]).predict_proba(X))[:2])
        times["fit"].append(timed(lambda own=classifier: own.fit(X, given))[:2])
        right = {
            "fit": (classifier.transduction_ == y)[~known].mean(),
            "forest": (forest.predict(X) == y)[~known].mean(),
        }
        times["refit"].append(timed(lambda own=classifier: own.fit(X, more))[:2])
    # The first round pays for imports.
    wall, processor = ({key: float(np.median([t[i] for t in v[1:]])) for key, v in times.items()} for i in (0, 1))
    print(f"{name}: fit {wall['fit']:.2f} s ({processor['fit']:.2f} s processor), forest {wall['forest']:.2f} s")
    told(f"{name}: fit / forest", wall["fit"] / wall["forest"], "", FOREST_GOALS.get(name, 5.0))
    told(f"{name}: fit / forest by processor time", processor["fit"] / processor["forest"])
    told(f"{name}: refit {wall['refit']:.2f} s / fit", wall["refit"] / wall["fit"], "", REFIT_GOAL)
    print(f"{name}: accuracy {right['fit']:.1%}, forest {right['forest']:.1%}", flush=True)


def rows_of(name: str, model: SobolevClassifier, X: np.ndarray) -> None:
    """One new row at a time."""
    model.predict_proba(X[:1])
    calls = [timed(lambda row=row: model.predict_proba(X[row : row + 1]))[:2] for row in range(200)]
    told(f"{name}: one row", np.median(calls, axis=0)[0], " s", ROW_GOAL)


def many(n: int) -> None:
    """Many new rows at many training points."""
    with tempfile.TemporaryDirectory() as scratch:
        X, truth, _ = mixture(n + NEW, FEATURES, Path(scratch) / "X.npy")
        new, name = np.array(X[n:]), f"{n:,} points"
        model = SobolevClassifier(k=15, method="cells", random_state=0, device="cpu")
        told(f"{name}: fit", timed(lambda: model.fit(X[:n], shown(truth[:n])))[0], " s")
        told(f"{name}: {NEW:,} new, first call", timed(lambda: model.predict_proba(new))[0], " s")
        again = [timed(lambda: model.predict_proba(new))[:2] for _ in range(3)]
        told(f"{name}: {NEW:,} new, again", np.median(again, axis=0)[0], " s", MANY_GOAL)
        rows_of(name, model, new)
        print(f"{name}: accuracy of new {(model.predict(new) == truth[n:]).mean():.2%}, {resident():.1f} GiB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("fit", "predict"))
    parser.add_argument("--sets", default="digits,isolet")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--load", type=int, default=0)
    parser.add_argument("--points", type=int, default=1_000_000)
    options = parser.parse_args()
    print(machine())
    for name in filter(None, options.sets.split(",")):
        if options.part == "predict":
            X, _, given, _ = problem(name)
            rows_of(name, SobolevClassifier(random_state=0, device="cpu").fit(X, given), np.asarray(X))
        elif options.load:
            fit_beside_others(name, options.load, options.rounds)
        else:
            fit(name, options.rounds)
    if options.part == "predict" and options.points:
        many(options.points)


if __name__ == "__main__":
    main()
