"""Which code serves a tensor: native on CPUs, Triton on CUDA, portable where they are missing."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings

from torch import Tensor

from sobgnn.propagation import native, portable
from sobgnn.propagation.stencil import Stencil


def backend(tensor: Tensor) -> str:
    """The backend that serves ``tensor``: "native", "portable" or "triton".

    The environment variable ``SOBGNN_BACKEND`` forces one of them.
    """
    forced = os.environ.get("SOBGNN_BACKEND", "")
    kind = tensor.device.type
    if not forced:
        if kind == "cpu":
            return "native" if native.available() else "portable"
        return "triton" if kind == "cuda" and _has_triton() else "portable"
    if forced == "portable":
        return forced
    if forced == "native":
        if kind != "cpu":
            raise ValueError(f"SOBGNN_BACKEND=native serves CPU tensors, but got one on {tensor.device}. Unset it.")
        if not native.available():
            raise ValueError(f"SOBGNN_BACKEND=native, but: {native.missing()} Unset it or reinstall with a compiler.")
        return forced
    if forced == "triton":
        # Triton's interpreter, which is for debugging, also takes tensors of the CPU.
        if kind != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError(f"SOBGNN_BACKEND=triton serves CUDA tensors, but got one on {tensor.device}. Unset it.")
        if not _has_triton():
            raise ValueError("SOBGNN_BACKEND=triton, but the package triton is not installed. Unset it.")
        return forced
    raise ValueError(f"SOBGNN_BACKEND must be native, portable or triton, but got {forced!r}. Unset it.")


def run(stencil: Stencil, x: Tensor, out: Tensor) -> Tensor:
    """Fill ``out`` from ``x``; which of the three operators is meant follows from their dimensions."""
    if out.numel() == 0:
        return out
    name = backend(x)
    if name == "native":
        native.run(stencil, x, out)
    elif name == "triton":
        from sobgnn.propagation import triton

        triton.run(stencil, x, out)
    else:
        if x.device.type == "cpu" and not os.environ.get("SOBGNN_BACKEND"):
            _warn_once()
        portable.run(stencil, x, out)
    return out


@functools.cache
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        f"{native.missing()} The portable backend serves, which is slower. Reinstall sobgnn where a C++ compiler "
        "is found, or set SOBGNN_BACKEND=portable to choose it.",
        stacklevel=2,
    )
