"""Training of batches: in this process, or in several at once."""

from __future__ import annotations

import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import torch

from sobgnn.paper.protocol.data import Prepared, with_k
from sobgnn.paper.protocol.evaluate import DatasetRunner, Limits
from sobgnn.paper.protocol.plan import Batch
from sobgnn.paper.protocol.results import Record

Trained: TypeAlias = tuple[list[Record], float]  # and the seconds taken


@dataclass
class TrainingWorker:
    """Trains any batch of a study, keeping the runner of its last data set.

    Args:
        data: Data sets by name.
        device: Where to train.
        limits: How long a training may take.
        cuda_graph: Record steps on CUDA and replay them.
    """

    data: dict[str, Prepared]
    device: torch.device
    limits: Limits
    cuda_graph: bool = True
    _runner: tuple[tuple[str, int], DatasetRunner] | None = field(default=None, init=False)

    def train(self, batch: Batch) -> Trained:
        """Train the whole batch, even if some results are known: its random draws depend on all its members."""
        begin = time.perf_counter()
        place = (batch.cell.dataset, batch.cell.k)
        if self._runner is None or self._runner[0] != place:
            data = with_k(self.data[place[0]], place[1])
            self._runner = (place, DatasetRunner(data, self.device, self.limits, self.cuda_graph))
        with precision(self.device):
            return self._runner[1].run(batch), time.perf_counter() - begin


@contextmanager
def precision(device: torch.device) -> Iterator[None]:
    """Use TF32 for matrix products on CUDA in the block; this is recorded with every result."""
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def at_work(worker: TrainingWorker, workers: int) -> Iterator[Callable[[Batch], Future[Trained]]]:
    """A function that starts a batch: in this process, returning when done, or in one of ``workers`` processes."""
    if workers == 1:
        yield lambda batch: _finished(worker.train(batch))
        return
    threads = max(1, torch.get_num_threads() // workers)
    # Spawned: a process forked from one that uses threads or CUDA may hang.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _begin, (worker, threads))
    try:
        yield lambda batch: pool.submit(_train, batch)
    finally:
        pool.shutdown(cancel_futures=True)


def _finished(trained: Trained) -> Future[Trained]:
    future: Future[Trained] = Future()
    future.set_result(trained)
    return future


_worker: TrainingWorker  # of a worker process


def _begin(worker: TrainingWorker, threads: int) -> None:
    global _worker
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends a worker silently
    warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
    torch.set_num_threads(threads)
    _worker = worker


def _train(batch: Batch) -> Trained:
    return _worker.train(batch)
