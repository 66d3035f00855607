"""Claim: one new point takes at most 5 ms; 10 000 at a million training points at most 2 s after the first call.

    SOBGNN_DATA=FOLDER python -m benchmarks.predict_speed [--sets digits,isolet] [--points 1000000] [--model FOLDER]

One row: the median of 200 calls of `predict_proba`, after a fit with 10 % of the labels, and at the many points too.
The many points are those of `benchmarks.scale_stages`, 128 columns and 20 labels per class; `--model` names a folder
to save that model in, or to load it from where it is there. `--points 0` leaves them out. Wall and processor time.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scale_meter import mixture, resident, shown
from benchmarks.timing import machine
from sobgnn import SobolevClassifier, datasets

ROW_GOAL, MANY_GOAL, NEW, FEATURES = 0.005, 2.0, 10_000, 128


def timed(call: Callable[[], object]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def report(what: str, times: list[tuple[float, float]], goal: float | None) -> None:
    wall, processor = np.median(times, axis=0)
    verdict = "" if goal is None else f", goal {goal:g} s, {'holds' if wall <= goal else 'misses'}"
    print(f"{what}: {wall:.4f} s, processor {processor:.4f} s{verdict}", flush=True)


def rows_of(name: str, model: SobolevClassifier, X: np.ndarray) -> None:
    model.predict_proba(X[:1])
    calls = [timed(lambda row=row: model.predict_proba(X[row : row + 1])) for row in range(200)]
    report(f"{name}: one row", calls, ROW_GOAL)


def many(n: int, folder: Path | None) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        X, truth, _ = mixture(n + NEW, FEATURES, Path(scratch) / "X.npy")
        new = np.array(X[n:])
        name = f"{n:,} points"
        if folder is None or not folder.exists():
            model = SobolevClassifier(k=15, method="cells", random_state=0, device="cpu")
            report(f"{name}: fit", [timed(lambda: model.fit(X[:n], shown(truth[:n])))], None)
            if folder is not None:
                model.save(folder)
        else:
            began = time.perf_counter()
            model = SobolevClassifier.load(folder)
            print(f"{name}: loaded in {time.perf_counter() - began:.1f} s")
        report(f"{name}: {NEW:,} new, first call", [timed(lambda: model.predict_proba(new))], None)
        again = [timed(lambda: model.predict_proba(new)) for _ in range(3)]
        report(f"{name}: {NEW:,} new, again", again, MANY_GOAL)
        rows_of(name, model, new)
        print(f"{name}: accuracy of new {(model.predict(new) == truth[n:]).mean():.2%}, {resident():.1f} GiB resident")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default="digits,isolet")
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    print(machine())
    for name in filter(None, options.sets.split(",")):
        data = datasets.load(name)
        X, y = np.asarray(data.X), np.asarray(data.y)
        order = np.random.default_rng(0).permutation(len(y))
        given = np.where(np.isin(np.arange(len(y)), order[: len(y) // 10]), y, -1)
        rows_of(name, SobolevClassifier(random_state=0, device="cpu").fit(X, given), X)
    if options.points:
        many(options.points, options.model)


if __name__ == "__main__":
    main()
