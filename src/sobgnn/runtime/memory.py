"""Returning freed memory to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Return what the C library keeps of freed memory; does nothing where it has no such call (glibc has).

    Seen with glibc 2.36: a loop that makes and frees tensors of some megabytes in each round grows in each round,
    though all of it is free.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@functools.cache
def _trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
