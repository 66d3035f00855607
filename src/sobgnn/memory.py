"""Memory that has been freed, back to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def give_back() -> None:
    """Return what the C library keeps of freed memory; does nothing where it has no such call (glibc has).

    Before version 2.38 glibc does not find the gaps that aligned tensors leave for the next of their size: a loop that
    makes and frees some megabytes in each round then grows by them in each round.
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
