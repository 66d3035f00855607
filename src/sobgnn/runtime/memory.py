"""Returning freed memory to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Return freed memory that the C library keeps; does nothing if it has no such call (glibc has one).

    Seen with glibc 2.36: the memory of a loop that allocates and frees tensors of some megabytes grows in each
    iteration, although all of it is free.
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
