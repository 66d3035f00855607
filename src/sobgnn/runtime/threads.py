"""Limits on the number of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch


class _Outside:
    """The number of threads outside of all blocks, which the last one to end puts back, whichever began first."""

    lock = threading.Lock()
    inside = 0
    threads = 1


@contextlib.contextmanager
def at_most(threads: int) -> Iterator[None]:
    """Within, torch computes with at most this many threads; the number of before is put back.

    Many short operations do not share cores well: threads spend more time waiting for one another than computing, on a
    busy machine a hundred times more, and a sum that is split over threads has other bits than one that is not.
    """
    with exactly(min(torch.get_num_threads(), threads)):
        yield


@contextlib.contextmanager
def exactly(threads: int) -> Iterator[None]:
    """Within, torch computes with this many threads; the number of before is put back."""
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
    """The limit of numpy's threads, which the first block sets and the last one to end takes away."""

    lock = threading.Lock()
    inside = 0
    limit: Any = None


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Within, products of numpy's and scipy's matrices are computed with one thread.

    Their threads never rest while they wait for one another: beside other work, hundreds of short products took
    sixteen times as long with two of them.
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
