"""Which backend serves a tensor, and the first of them: the compiled C++/OpenMP kernels, reached through ctypes.

Large results on the CPU reuse the memory of those that are gone (:func:`empty`).

The environment variable ``SOBGNN_CPU`` ("plain", "avx2" or "avx512"), read once per process, holds every kernel to at
most that instruction set: one machine can then run what another would.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import math
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn._system.packages import installed
from sobgnn.propagation.csr import SobolevCSR
from sobgnn.propagation.portable import unscaled

# Instruction sets by the number that targets.h gives them. A kernel takes the best one that the processor has, up to
# the one it is held to. Off x86 there is only "plain", whose vectors are the processor's own.
LEVELS = {"plain": 1, "avx2": 2, "avx512": 3}
MISSING = "The compiled kernel of sobgnn.propagation is not installed."

# The C library may return a large block to the system and allocate it again, cleared page by page: this costs a quarter
# of filling it, and more on some virtual machines. glibc always does this from 32 MB, and below that if the block was
# at the end of its heap; so results of at least two huge pages reuse their pages.
SMALLEST_POOLED = 4 << 20
# Bytes of pages kept while no tensor uses them.
MOST_KEPT = 512 << 20
_PAGE = 2 << 20  # a huge page

_lock = threading.RLock()
_free: list[mmap.mmap] = []


def backend(tensor: Tensor | None = None) -> str:
    """The backend that serves ``tensor``, or one on the CPU if left out: "native", "portable" or "triton".

    The environment variable ``SOBGNN_BACKEND`` forces one of them.
    """
    forced = os.environ.get("SOBGNN_BACKEND", "")
    device = torch.device("cpu") if tensor is None else tensor.device
    kind = device.type
    if not forced:
        if kind == "cpu":
            return "native" if available() else "portable"
        return "triton" if kind == "cuda" and _has_triton() else "portable"
    if forced not in ("native", "portable", "triton"):
        raise ValueError(f"SOBGNN_BACKEND must be native, portable or triton, but got {forced!r}. Unset it.")
    # Triton's interpreter, which is for debugging, also takes tensors of the CPU.
    interpreted = forced == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    serves = {"native": "cpu", "triton": "cuda"}.get(forced, kind)
    if kind != serves and not interpreted:
        raise ValueError(f"SOBGNN_BACKEND={forced} serves {serves.upper()} tensors, but got one on {device}. Unset it.")
    if forced == "native" and not available():
        raise ValueError(f"SOBGNN_BACKEND=native, but: {MISSING} Unset it or reinstall with a compiler.")
    if forced == "triton" and not _has_triton():
        raise ValueError("SOBGNN_BACKEND=triton, but the package triton is not installed. Unset it.")
    return forced


@functools.cache
def _has_triton() -> bool:
    return installed("triton")


def available() -> bool:
    """Whether the compiled kernel is installed and loads."""
    return _library() is not None


def instruction_set() -> str:
    """The instruction set that the kernels use here: a key of :data:`LEVELS`."""
    library = _library()
    if library is None:
        raise ValueError(f"{MISSING} Reinstall sobgnn where a C++ compiler is found.")
    number = library.sobgnn_level()
    return next(name for name, level in LEVELS.items() if level == number)


def empty(x: Tensor, shape: Sequence[int]) -> Tensor:
    """An uninitialized tensor like ``x``; large ones on the CPU reuse the pages of freed results."""
    size = math.prod(shape) * x.element_size()
    if x.device.type != "cpu" or size <= SMALLEST_POOLED or not hasattr(mmap, "MADV_HUGEPAGE"):
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
        while sum(map(len, _free)) > MOST_KEPT:
            _free.pop()


def run(
    csr: SobolevCSR,
    x: Tensor,
    out: Tensor,
    *,
    level: str = "avx512",
    own: Tensor | None = None,
    sums: Tensor | None = None,
) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h], on ``torch.get_num_threads()`` threads.

    Where the orders are summed, ``sums`` [R, α] gets the product of each order's own sum, before its scale, with
    ``own`` [R, h]; widths are whole cache lines then.

    ``level`` holds this call to an instruction set, as ``SOBGNN_CPU`` holds them all.
    """
    dtype = csr.column_scale.dtype
    if x.dtype != dtype:  # bfloat16: summed in float32, rounded once
        result = torch.empty(out.shape, dtype=dtype)
        run(csr, x.to(dtype), result, level=level)
        out.copy_(result)
        return
    orders = (x.dim() == 3, out.dim() == 3)
    call("sobgnn_propagate", dtype, *orders, *_problem(csr, x), x, out, own, sums, level=level)


def gradients(
    csr: SobolevCSR, x: Tensor, y: Tensor, g: Tensor, *, level: str = "avx512"
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, the weights [E], row_scale [R, α], column_scale [C, α] from the output y [R, α, h] and its g."""
    dtype, width = csr.column_scale.dtype, x.shape[-1]
    # Whole cache lines: the kernels have no code for what is left of a row.
    spare = -width % (64 // dtype.itemsize)
    x, y, g = (tensor.to(dtype) for tensor in (x, y, g))
    if spare:  # else it would still copy
        x, y, g = (F.pad(tensor, (0, spare)) for tensor in (x, y, g))
    x, y, g = (tensor.contiguous() for tensor in (x, y, g))
    to_weight, to_x = empty(x, csr.weight.shape), empty(x, x.shape)
    to_row_scale = unscaled(_dots(g, y, level), csr.row_scale[:, 1:])
    call("sobgnn_gradient", dtype, x.dim() == 3, *_problem(csr, x), x, g, to_weight, level=level)
    back = csr.transposed()
    if x.dim() == 3:
        run(back, g, to_x, level=level)
        to_column_scale = unscaled(_dots(to_x, x, level), csr.column_scale[:, 1:])
    else:
        to_column_scale = x.new_empty((x.shape[0], g.shape[1]))
        run(back, g, to_x, level=level, own=x, sums=to_column_scale)
    return to_x[..., :width], to_weight, to_row_scale, to_column_scale


def _problem(csr: SobolevCSR, x: Tensor) -> tuple[Any, ...]:
    """A :class:`SobolevCSR` as the kernels take it: R, C, α, the width; the CSR and its transpose's; scales and ε."""
    indptr, indices, weight, t_indptr, t_indices, t_weight, row_scale, column_scale, epsilon = csr
    return (
        *(row_scale.shape[0], column_scale.shape[0], column_scale.shape[1] - 1, x.shape[-1]),
        *(indptr, indices, indices.dtype == torch.int64, weight),
        *(t_indptr, t_indices, t_indices.dtype == torch.int64, t_weight),
        *(weight.dtype == torch.float64, row_scale, column_scale, epsilon),
    )


def _dots(x: Tensor, y: Tensor, level: str) -> Tensor:
    """The product of each row of x [n, a, h] with that of y: [n, a]."""
    out = x.new_empty(x.shape[:2])
    call("sobgnn_dots", x.dtype, x, y, out, out.numel(), x.shape[2], level=level)
    return out


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    """Columns q, t_1 … t_α [N, α + 1] of the rows of a CSR, in the type of its weights."""
    out = weight.new_empty((indptr.numel() - 1, alpha + 1))
    call("sobgnn_scales", weight.dtype, indptr, weight, out, out.shape[0], alpha, epsilon, by_rows)
    return out


def scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    """The gradient of the weights [E] from that of :func:`scales`."""
    out = torch.empty_like(weight, memory_format=torch.contiguous_format)
    size = (scale.shape[0], scale.shape[1] - 1)
    call("sobgnn_scales_backward", weight.dtype, indptr, weight, scale, grad, out, *size, by_rows)
    return out


def call(name: str, dtype: torch.dtype, *arguments: Any, level: str | None = None) -> None:
    """Call a kernel with numbers and the addresses of tensors and arrays, on torch's number of threads.

    Args:
        name: Without the suffix of its type.
        dtype: float32 or float64.
        arguments: Of tensors that are not contiguous it gets contiguous copies, so what it writes to must be; arrays
            must be, too. ``None`` is a null pointer.
        level: Holds this call to an instruction set, for kernels that can be.
    """
    # Held by name: the kernel sees addresses only.
    held = [value.contiguous() if isinstance(value, Tensor) else value for value in arguments]
    given = [value.data_ptr() if isinstance(value, Tensor) else value for value in held]
    given = [value.ctypes.data if isinstance(value, np.ndarray) else value for value in given]
    last = () if level is None else (LEVELS[level],)
    kind = "f64" if dtype == torch.float64 else "f32"
    getattr(_library(), f"{name}_{kind}")(*given, torch.get_num_threads(), *last)


_NUMBER, _FLAG, _POINTER, _REAL = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_double
_PATTERN = [_POINTER, _POINTER, _FLAG, _POINTER]
_SOBOLEV_CSR = [*[_NUMBER] * 4, *_PATTERN, *_PATTERN, _FLAG, _POINTER, _POINTER, _REAL]
_SIGNATURES = {
    "sobgnn_propagate": [_FLAG, _FLAG, *_SOBOLEV_CSR, *[_POINTER] * 4, _FLAG, _FLAG],
    "sobgnn_gradient": [_FLAG, *_SOBOLEV_CSR, *[_POINTER] * 3, _FLAG, _FLAG],
    "sobgnn_dots": [*[_POINTER] * 3, _NUMBER, _NUMBER, _FLAG, _FLAG],
    "sobgnn_scales": [*[_POINTER] * 3, _NUMBER, _NUMBER, _REAL, _FLAG, _FLAG],
    "sobgnn_scales_backward": [*[_POINTER] * 5, _NUMBER, _NUMBER, _FLAG, _FLAG],
    "sobgnn_combine": [*[_POINTER] * 4, _NUMBER, _NUMBER, _FLAG, _FLAG, _FLAG],
    "sobgnn_combine_backward": [*[_POINTER] * 6, _NUMBER, _NUMBER, _FLAG, _FLAG],
    "sobgnn_walk": [*[_POINTER] * 9, *[_NUMBER] * 5, _FLAG],
    "sobgnn_scan": [*[_POINTER] * 9, *[_NUMBER] * 3, _FLAG],
    "sobgnn_measure": [*[_POINTER] * 4, *[_NUMBER] * 3, _FLAG],
    "sobgnn_drop": [*[_POINTER] * 4, _NUMBER, _NUMBER, ctypes.c_int32, _REAL, _FLAG],
}


@functools.cache
def _library() -> Any:
    """The shared library beside this file, or None."""
    held = os.environ.get("SOBGNN_CPU", "")
    if held and held not in LEVELS:
        raise ValueError(f"SOBGNN_CPU must be {', '.join(LEVELS)} or unset, but got {held!r}.")
    folder = Path(__file__).parent
    for suffix in importlib.machinery.EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if not path.exists():
            continue
        try:
            library = ctypes.CDLL(os.fspath(path))
            library.sobgnn_level.argtypes, library.sobgnn_level.restype = [], ctypes.c_int
            for name, arguments in _SIGNATURES.items():
                for kind in ("f32", "f64") if name != "sobgnn_scan" else ("f32",):
                    function = getattr(library, f"{name}_{kind}")
                    function.argtypes, function.restype = arguments, None
        except (OSError, AttributeError):  # built for another machine, or from older sources
            continue
        return library
    return None
