"""Limits on the number of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _Outside:
    """The number of threads outside all blocks, which the last block to end restores, whichever began first."""

    lock = threading.Lock()
    inside = 0
    threads = 1


@contextlib.contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Limit torch to this many threads in the block; the earlier number is restored.

    Many short operations do not parallelize well: threads spend more time waiting for one another than computing, on a
    busy machine a hundred times more, and a sum that is split over threads is not bitwise the same as one that is not.
    """
    with exactly(min(torch.get_num_threads(), threads)):
        yield


@contextlib.contextmanager
def exactly(threads: int) -> Iterator[None]:
    """Set torch to this many threads in the block; the earlier number is restored."""
    before = torch.get_num_threads()
    with _Outside.lock:
        if not _Outside.inside:
            _Outside.threads = before
        _Outside.inside += 1
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        with _Outside.lock:
            _Outside.inside -= 1
            torch.set_num_threads(before if _Outside.inside else _Outside.threads)


class _Blas:
    """The limit of NumPy's threads, which the first block sets and the last block to end removes."""

    lock = threading.Lock()
    inside = 0
    limit: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute products of NumPy and SciPy matrices with one thread in the block.

    Their threads busy-wait for one another: alongside other work, hundreds of short products took sixteen times as long
    with two threads.
    """
    from threadpoolctl import threadpool_limits

    with _Blas.lock:
        if not _Blas.inside:
            _Blas.limit = threadpool_limits(1, "blas")
        _Blas.inside += 1
    try:
        yield
    finally:
        with _Blas.lock:
            _Blas.inside -= 1
            if not _Blas.inside:
                _Blas.limit.restore_original_limits()
