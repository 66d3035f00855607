"""The compiled C++/OpenMP kernels, reached through ctypes.

The environment variable ``SOBGNN_CPU`` ("plain", "avx2" or "avx512"), read once per process, holds every kernel to at
most that instruction set: one machine can then run what another would.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sobgnn.propagation.stencil import Stencil
from sobgnn.runtime import pages

# Instruction sets by the number that targets.h gives them. A kernel takes the best one that the processor has, up to
# the one it is held to. Off x86 there is only "plain", whose vectors are the processor's own.
LEVELS = {"plain": 1, "avx2": 2, "avx512": 3}


def available() -> bool:
    """Whether the compiled kernel is installed and loads."""
    return _library() is not None


def missing() -> str:
    """What to say where it is not available."""
    return "The compiled kernel of sobgnn.propagation is not installed."


def instruction_set() -> str:
    """The instruction set that the kernels use here: a key of :data:`LEVELS`."""
    library = _library()
    if library is None:
        raise ValueError(f"{missing()} Reinstall sobgnn where a C++ compiler is found.")
    number = library.sobgnn_level()
    return next(name for name, level in LEVELS.items() if level == number)


def run(stencil: Stencil, x: Tensor, out: Tensor, *, level: str = "avx512") -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h], on ``torch.get_num_threads()`` threads.

    ``level`` holds this call to an instruction set, as ``SOBGNN_CPU`` holds them all.
    """
    dtype = stencil.scale_in.dtype
    if x.dtype != dtype:  # bfloat16: summed in float32, rounded once
        result = torch.empty(out.shape, dtype=dtype)
        run(stencil, x.to(dtype), result, level=level)
        out.copy_(result)
        return
    library = _library()
    assert library is not None  # the caller asked available()
    function = library.sobgnn_propagate_f64 if dtype == torch.float64 else library.sobgnn_propagate_f32
    # Held by name: the kernel sees addresses only.
    tensors = tuple(tensor.contiguous() for tensor in (*stencil[:8], x))
    indptr, indices, weight, t_indptr, t_indices, t_weight, scale_out, scale_in, x = tensors
    rows, inputs, alpha = scale_out.shape[0], scale_in.shape[0], scale_in.shape[1] - 1
    function(
        x.dim() == 3,
        out.dim() == 3,
        rows,
        inputs,
        alpha,
        x.shape[-1],
        indptr.data_ptr(),
        indices.data_ptr(),
        indices.dtype == torch.int64,
        weight.data_ptr(),
        t_indptr.data_ptr(),
        t_indices.data_ptr(),
        t_indices.dtype == torch.int64,
        t_weight.data_ptr(),
        scale_out.data_ptr(),
        scale_in.data_ptr(),
        stencil.epsilon,
        x.data_ptr(),
        out.data_ptr(),
        torch.get_num_threads(),
        LEVELS[level],
    )


def combine(products: Tensor, bias: Tensor, mu: Tensor, out: Tensor, *, relu: bool, first: bool) -> None:
    """In place: products [n, w] <- relu(products + bias); out [n, w] gets, or adds, mu · products."""
    function = _typed("sobgnn_combine", products.dtype)
    pointers = (tensor.data_ptr() for tensor in (products, bias, mu, out))
    function(*pointers, *products.shape, relu, first, torch.get_num_threads())


def combine_backward(products: Tensor, grad: Tensor, mu: Tensor, *, relu: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of :func:`combine` with respect to products [n, w], bias [w] and mu [w]."""
    function = _typed("sobgnn_combine_backward", products.dtype)
    gradients = (pages.empty(products, products.shape), torch.empty_like(mu), torch.empty_like(mu))
    pointers = (tensor.data_ptr() for tensor in (products, grad, mu, *gradients))
    function(*pointers, *products.shape, relu, torch.get_num_threads())
    return gradients


def drop(h: Tensor, rows: Tensor, columns: Tensor, rate: float) -> Tensor:
    """h [..., c] / (1 - rate) where the mix of rows [...] and columns [c], int32, exceeds ``rate``; 0 elsewhere."""
    out = pages.empty(h, h.shape)
    pointers = (tensor.data_ptr() for tensor in (h, rows, columns, out))
    threshold = int(rate * 2**32) - 2**31
    size = (rows.numel(), columns.numel())
    _typed("sobgnn_drop", h.dtype)(*pointers, *size, threshold, 1 / (1 - rate), torch.get_num_threads())
    return out


def _typed(name: str, dtype: torch.dtype) -> Any:
    return getattr(_library(), f"{name}_{'f64' if dtype == torch.float64 else 'f32'}")


_NUMBER, _FLAG, _POINTER, _REAL = ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_double
_SIGNATURES = {
    "sobgnn_propagate": [
        *(_FLAG, _FLAG, _NUMBER, _NUMBER, _NUMBER, _NUMBER),
        *(_POINTER, _POINTER, _FLAG, _POINTER, _POINTER, _POINTER, _FLAG, _POINTER),
        *(_POINTER, _POINTER, _REAL),
        *(_POINTER, _POINTER, _FLAG, _FLAG),
    ],
    "sobgnn_combine": [*[_POINTER] * 4, _NUMBER, _NUMBER, _FLAG, _FLAG, _FLAG],
    "sobgnn_combine_backward": [*[_POINTER] * 6, _NUMBER, _NUMBER, _FLAG, _FLAG],
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
                for kind in ("f32", "f64"):
                    function = getattr(library, f"{name}_{kind}")
                    function.argtypes, function.restype = arguments, None
        except (OSError, AttributeError):  # built for another machine, or from older sources
            continue
        return library
    return None
