"""State that is global to a process: settings and random numbers of torch and NumPy, the device, threads, memory."""

from __future__ import annotations

import contextlib
import ctypes
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

# Two threads that seed and draw at once would get each other's numbers.
_RANDOM = threading.RLock()
# Number of rows up to which waiting costs more than a second thread gains.
_SMALL = 2048


@contextlib.contextmanager
def own_precision() -> Iterator[None]:
    """Ignore torch.autocast, torch.set_default_device and numpy.errstate in the block."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))  # NumPy's default
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        yield


def check_device(device: torch.device | str | None) -> None:
    """Raise if torch has no such device; ``None`` and ``"auto"`` are always valid."""
    if device is None or (isinstance(device, str) and device == "auto"):
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise ValueError(f"There is no device {device!r:.60} here. Try 'cpu', or leave it out.") from None


@contextlib.contextmanager
def own_random_state(device: torch.device | None = None) -> Iterator[None]:
    """Seed and draw freely in the block; the state is restored at the end, and other threads wait until then."""
    with _RANDOM, torch.random.fork_rng(devices=[device] if device is not None and device.type == "cuda" else []):
        yield


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Import in the block; Python's random state is restored, which rich, imported by scikit-learn, draws from."""
    state = random.getstate()
    try:
        yield
    finally:
        random.setstate(state)


class _Outside:
    """The number of threads outside all blocks, which the last block to end restores, whichever began first."""

    lock = threading.Lock()
    inside = 0
    threads = 1


@contextlib.contextmanager
def limit_threads(threads: int) -> Iterator[None]:
    """Limit torch to this many threads in the block; the earlier number is restored.

    Many short operations do not parallelize well: threads spend more time waiting for one another than computing, on a
    busy machine a hundred times more, and a sum that is split over threads is not bitwise the same as one that is not.
    """
    with set_threads(min(torch.get_num_threads(), threads)):
        yield


@contextlib.contextmanager
def set_threads(threads: int) -> Iterator[None]:
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


def eigen(matrix: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Eigenvalues [n], in ascending order, and eigenvectors [n, n], one per column, of a symmetric matrix.

    Like :func:`numpy.linalg.eigh`, whose threads, however, busy-wait for one another at every step: alongside other
    work, 600 rows took up to 4 s instead of 0.1, and 1 600 rows 16 s instead of 0.8. So all but large matrices are
    computed by one torch thread, which takes as long as two up to 600 rows and 0.9 s longer for 2 048.
    """
    if len(matrix) > _SMALL:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    with limit_threads(1):
        found = torch.linalg.eigh(torch.from_numpy(np.ascontiguousarray(matrix)))
    return found.eigenvalues.numpy(), found.eigenvectors.numpy()


def give_back() -> None:
    """Return freed memory that the C library keeps; does nothing if it has no such call (glibc has one).

    Seen with glibc 2.36: the memory of a loop that allocates and frees tensors of some megabytes grows in each
    iteration, although all of it is free.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
