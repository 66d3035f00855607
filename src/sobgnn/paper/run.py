"""Fill the cells of a study: search, choose, test; stop and resume at any batch."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from sobgnn.paper import data as datafiles
from sobgnn.paper.data import Prepared
from sobgnn.paper.evaluate import DatasetRunner
from sobgnn.paper.results import Key, Record, append, best_trial, exact_mean, read
from sobgnn.paper.studies import Batch, Cell, search_batches, shard, test_batches


@dataclass(frozen=True)
class Run:
    """How a study is run.

    Args:
        out: Folder of JSON lines; a training that any of its files has is not repeated.
        device: Where to train.
        epochs: Maximum number of steps of a training.
        time_limit: Seconds after which to stop between two batches.
        cuda_graph: Record steps on CUDA and replay them.
        part: (i, n): fill part i of n of the cells; each part has a file of its own.
    """

    out: Path
    device: torch.device
    epochs: int = 500
    time_limit: float | None = None
    cuda_graph: bool = True
    part: tuple[int, int] = (1, 1)


def run(cells: Sequence[Cell], how: Run, folder: Path | None = None, workers: int = 1) -> bool:
    """Fill this part's cells, alone or by ``workers`` processes that each fill a part of it. False if time ran out.

    Args:
        cells: Those of one study.
        how: What all of its trainings have in common.
        folder: Folder of prepared data sets.
        workers: Number of processes, which share the threads.
    """
    if workers < 1:
        raise ValueError(f"`workers` must be at least 1, but got {workers}.")
    index, count = how.part
    mine = shard(cells, index, count)
    # First: an unknown name must leave no folder behind.
    data = {name: datafiles.load(name, folder) for name in dict.fromkeys(cell.dataset for cell in mine)}
    if workers == 1:
        return fill(cells, data, how)
    parts = [(index + count * worker, count * workers) for worker in range(min(workers, len(mine)))]
    threads = max(1, torch.get_num_threads() // workers)
    # Spawned: a process forked from one that uses threads or CUDA may hang.
    spawn = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, spawn, _begin, (threads,)) as pool:
            filling = [pool.submit(fill, cells, data, replace(how, part=part)) for part in parts]
            results = [future.result() for future in filling]  # waits for all, whether or not time ran out
            return all(results)
    except BrokenProcessPool as error:
        raise ChildProcessError(
            f"One of {workers} workers ended, perhaps out of memory. Resume with fewer: {how.out} holds what is done."
        ) from error


def _begin(threads: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker silently
    torch.set_num_threads(threads)


def fill(cells: Sequence[Cell], data: Mapping[str, Prepared], how: Run) -> bool:
    """Fill the cells of one part in their order, writing every batch when it ends. False if time ran out."""
    start, done = time.perf_counter(), 0
    index, count = how.part
    mine, study = shard(cells, index, count), cells[0].study
    known = {record.key: record for record in read(how.out)}
    have = Counter(key[2:6] for key in known if key[0] == study)
    left = sum(max(0, cell.size - have[cell.key("", 0, 0)[2:6]]) for cell in mine)

    @lru_cache(maxsize=1)
    def runner(dataset: str, k: int) -> DatasetRunner:
        return DatasetRunner(data[dataset].with_k(k), how.device, how.epochs, how.cuda_graph)

    name = f"{study}.jsonl" if count == 1 else f"{study}.{index}-of-{count}.jsonl"
    with _precision(how.device):
        for cell in mine:
            for batch in _batches_left(cell, len(data[cell.dataset].y), known):
                if how.time_limit is not None and time.perf_counter() - start >= how.time_limit:
                    print(f"The time is up: {done} trainings done, about {left} left. Run it again to go on.")
                    return False
                began = time.perf_counter()
                # Train the whole batch, even if some results are known: its random draws depend on all its members.
                records = [record for record in runner(cell.dataset, cell.k).run(batch) if record.key not in known]
                append(how.out / name, records)
                known.update((record.key, record) for record in records)
                done, left = done + len(records), max(0, left - len(records))
                now = time.perf_counter()
                print(
                    f"{done / (done + left):6.1%}  {(now - start) / done * left / 60:5.1f} min left  {cell.name}, "
                    f"{batch.stage}: {len(records)} trainings in {now - began:.1f} s",
                    flush=True,
                )
            print(_line(cell, known), flush=True)
    print(f"{done} trainings in {time.perf_counter() - start:.0f} s", flush=True)
    return True


def _batches_left(cell: Cell, num_nodes: int, known: Mapping[Key, Record]) -> Iterator[Batch]:
    """What is missing of the search and, once that is known, of the final seeds."""
    for batch in search_batches(cell, num_nodes):
        if not known.keys() >= set(batch.keys):
            yield batch
    trial, setting = choose(cell, known)
    for batch in test_batches(cell, trial, setting, num_nodes):
        if not known.keys() >= set(batch.keys):
            yield batch


def choose(cell: Cell, known: Mapping[Key, Record]) -> tuple[int, dict[str, Any]]:
    """The setting with the best mean validation accuracy over the search's seeds; ties go to the first."""
    if cell.setting is not None:
        return -1, cell.setting
    means = {
        trial: exact_mean(
            [known[cell.key("search", trial, seed)].validation_accuracy or 0.0 for seed in cell.search_seeds]
        )
        for trial in range(cell.trials)
    }
    best = best_trial(means)
    return best, cell.settings()[best]


def _line(cell: Cell, known: Mapping[Key, Record]) -> str:
    """Readable summary of a filled cell."""
    trial, _ = choose(cell, known)
    scores = [known[cell.key("test", trial, seed)].test_accuracy or 0.0 for seed in cell.seeds]
    mean = 100 * exact_mean(scores)
    return f"{cell.name}: setting {trial}, test accuracy {mean:.2f} % over {len(scores)} seeds"


@contextmanager
def _precision(device: torch.device) -> Iterator[None]:
    """Use TF32 for matrix products on CUDA in the block; this is recorded with every result."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
