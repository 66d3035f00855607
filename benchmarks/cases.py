"""Many independent cases in parallel processes, within a time limit, and the JSON lines that they leave."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
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
    """The lines of FILE.jsonl.gz and of FILE.jsonl beside it; a last one that was cut off is left out."""
    for part in (path, path.with_suffix("")) if path.suffix == ".gz" else (path,):
        if part.exists():
            content = gzip.decompress(part.read_bytes()) if part.suffix == ".gz" else part.read_bytes()
            for line in content.decode().splitlines():
                if line.endswith("}"):
                    yield json.loads(line)


def append_cases(
    path: Path, measure: Callable[[Any], Any], cases: Sequence[Any], jobs: int | None, limit: float
) -> None:
    """Append what each case gave, one line or a list of them; a case that raises is left for the next run.

    Lines go to FILE.jsonl, where a kill leaves them, and from there into FILE.jsonl.gz when the run ends.
    """
    plain = path.with_suffix("") if path.suffix == ".gz" else path
    with plain.open("a") as file:
        for number, (case, found) in enumerate(run_cases(measure, cases, jobs, limit)):
            if isinstance(found, Exception):
                print(*case, repr(found), flush=True)
                continue
            for line in found if isinstance(found, list) else [found]:
                file.write(json.dumps(line) + "\n")
                print(number + 1, "of", len(cases), line, flush=True)
            file.flush()
    if path != plain:
        lines = "".join(json.dumps(line) + "\n" for line in read_lines(path))
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(gzip.compress(lines.encode(), mtime=0))
        unfinished.replace(path)
        plain.unlink()


def run_cases(
    measure: Callable[[Any], Any], cases: Sequence[Hashable], jobs: int | None, limit: float
) -> Iterator[tuple[Any, Any]]:
    """Each case with what ``measure`` returned for it, as they finish, until ``limit`` seconds are over.

    A case that raises comes with its exception. Every process computes with one thread.
    """
    end = time.monotonic() + limit
    os.environ["OMP_NUM_THREADS"] = "1"  # read by the processes when they import torch
    with multiprocessing.get_context("spawn").Pool(jobs or os.cpu_count(), _start) as pool:
        results = pool.imap_unordered(partial(_guarded, measure), cases)
        for done in range(len(cases)):
            try:
                yield results.next(max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                print(f"Time is up after {done} of {len(cases)} cases; the next call measures the others.", flush=True)
                pool.terminate()
                return


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


def _guarded(measure: Callable[[Any], Any], case: Any) -> tuple[Any, Any]:
    """One case that fails must not end the others."""
    try:
        return case, measure(case)
    except Exception as error:
        return case, error
