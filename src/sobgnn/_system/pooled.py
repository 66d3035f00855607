"""A pool of memory for large CPU results, reused after their tensors are freed."""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

# The C library may return a large block to the system and allocate it again, cleared page by page: this costs a quarter
# of filling it, and more on some virtual machines. glibc always does this from 32 MB, and below that if the block was
# at the end of its heap; so results of at least two huge pages reuse their pages.
SMALLEST = 4 << 20
# Maximum number of bytes kept while no tensor uses them.
KEPT = 512 << 20
_PAGE = 2 << 20  # a huge page

_lock = threading.RLock()
_free: list[mmap.mmap] = []


def empty(x: Tensor, shape: Sequence[int]) -> Tensor:
    """An uninitialized tensor like ``x``; large ones on the CPU reuse the pages of freed results."""
    size = math.prod(shape) * x.element_size()
    if x.device.type != "cpu" or size <= SMALLEST or not hasattr(mmap, "MADV_HUGEPAGE"):
        return x.new_empty(shape)
    pages = _take(size)
    # The tensor's storage holds the view as long as anything refers to it, such as views of the tensor or autograd.
    view = memoryview(pages)
    # Shaped in place: a view of it, made in an operator, could not be changed in place by those who get it.
    tensor = torch.frombuffer(view, dtype=x.dtype, count=math.prod(shape)).resize_(tuple(shape))
    weakref.finalize(view, _give_back, pages).atexit = False
    return tensor


def _take(size: int) -> mmap.mmap:
    """Pages for ``size`` bytes: free ones that are not much larger, or new ones."""
    with _lock:
        for index, pages in enumerate(_free):
            if size <= len(pages) <= size + size // 4 + _PAGE:
                return _free.pop(index)
    pages = mmap.mmap(-1, -(-size // _PAGE) * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _give_back(pages: mmap.mmap) -> None:
    """Keep the most recently used pages, up to the limit; the rest returns to the system."""
    with _lock:
        _free.insert(0, pages)
        while sum(map(len, _free)) > KEPT:
            _free.pop()
