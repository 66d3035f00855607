"""Many independent cases in parallel processes, within a time limit: what benchmarks of thousands of fits share."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np


def load_set(path: str | Path, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """At most ``rows`` rows of an npz file with X [N, F] and y [N], the same ones each time; y as codes from 0."""
    with np.load(path) as data:
        X, y = data["X"], data["y"]
    kept = np.random.default_rng(0).permutation(np.flatnonzero(y >= 0))[:rows]
    return X[kept].astype(np.float64), np.unique(y[kept], return_inverse=True)[1]


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a JSON lines file; a last one that was cut off is left out."""
    if path.exists():
        for line in path.read_text().splitlines():
            if line.endswith("}"):
                yield json.loads(line)


def run_cases(
    measure: Callable[[Any], Any], cases: Sequence[Hashable], jobs: int | None, limit: float
) -> Iterator[tuple[Any, Any]]:
    """Each case with what ``measure`` returned for it, as they finish, until ``limit`` seconds are over.

    A case that raises comes with its exception. Every process computes with one thread.
    """
    end = time.monotonic() + limit
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the processes when they import torch
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count(), _start) as pool:
        results = pool.imap_unordered(_Guarded(measure), cases)
        for done in range(len(cases)):
            try:
                yield results.next(max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(f"Time is up after {done} of {len(cases)} cases; the next call measures the others.", flush=True)
                pool.terminate()
                return


def append_cases(
    path: Path, measure: Callable[[Any], dict[str, Any]], cases: Sequence[Any], jobs: int | None, limit: float
) -> None:
    """Append what each case gave to a JSON lines file; one that raises is printed and left for the next run."""
    with path.open("a") as file:
        for case, line in run_cases(measure, cases, jobs, limit):
            if isinstance(line, Exception):
                print(*case, repr(line), flush=True)
                continue
            file.write(json.dumps(line) + "\n")
            file.flush()


def _start() -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when the one that started it has ended: a killed pool does not end its processes."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


class _Guarded:
    """One case that fails must not end the others."""

    def __init__(self, measure: Callable[[Any], Any]) -> None:
        self.measure = measure

    def __call__(self, case: Any) -> tuple[Any, Any]:
        try:
            return case, self.measure(case)
        except Exception as error:
            return case, error


def run_by_labels(
    about: str | None,
    per_class: str,
    number: Callable[[str], Any],
    measure: Callable[[Any], dict[str, Any]],
    report: Callable[[list[dict[str, Any]]], None],
) -> None:
    """The command of a benchmark of data sets, labels per class and draws: measures what is missing, then reports.

    Args:
        about: The benchmark's docstring.
        per_class: Numbers of labels by default, with commas.
        number: What a number of labels is read as.
        measure: From (path, number of labels, draw) to a line with ``set``, ``per_class`` and ``draw``.
        report: Prints all lines.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, help="folder of npz files; without it, nothing is fitted")
    parser.add_argument("--lines", type=Path, required=True)
    parser.add_argument("--per-class", default=per_class)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--limit", type=float, default=1e9, help="seconds")
    asked = parser.parse_args()
    if asked.sets is not None:
        done = {(line["set"], line["per_class"], line["draw"]) for line in read_lines(asked.lines)}
        cases = [
            (str(path), number(count), draw)
            for draw in range(asked.draws)
            for count in asked.per_class.split(",")
            for path in sorted(asked.sets.glob("*.npz"))
            if (path.stem, number(count), draw) not in done
        ]
        append_cases(asked.lines, measure, cases, asked.jobs, asked.limit)
    report(list(read_lines(asked.lines)))
