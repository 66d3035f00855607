"""Which code serves a tensor: native on CPUs, Triton on CUDA, portable where they are missing."""

from __future__ import annotations

import functools
import importlib.util
import os
import warnings

import torch
from torch import Tensor

from sobgnn.propagation import native, portable
from sobgnn.propagation.stencil import Stencil, transpose
from sobgnn.runtime import pages


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


def gradients(
    stencil: Stencil, x: Tensor, y: Tensor, g: Tensor, needs_x: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, the weights [E], scale_out [R, α] and scale_in [C, α]; that of x is empty unless needed."""
    name = backend(x)
    nothing = x.new_empty(0)
    if x.numel() == 0 or g.numel() == 0:
        zeros = (stencil.scale_in.new_zeros(shape) for shape in (stencil.weight.shape, g.shape[:2], _inputs(x, g)))
        return (torch.zeros_like(x) if needs_x else nothing, *zeros)  # type: ignore[return-value]
    if name == "native":
        to_x = run(transpose(stencil), g, pages.empty(x, x.shape)) if needs_x else nothing
        return to_x, *native.weight_gradient(stencil, x, y, g)
    if name == "triton":
        from sobgnn.propagation import triton_gradient

        return triton_gradient.gradients(stencil, x, y, g)
    to_x, *others = portable.gradients(stencil, x, y, g)
    return to_x.to(x.dtype), *others  # type: ignore[return-value]


def _inputs(x: Tensor, g: Tensor) -> tuple[int, int]:
    return x.shape[0], g.shape[1]


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    """Columns q, t_1 … t_α [N, α + 1]."""
    code = native if backend(weight) == "native" else portable
    return code.scales(indptr, weight, alpha, epsilon, by_rows)


def scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    """The gradient of the weights [E]."""
    name = backend(weight)
    if name == "triton":
        from sobgnn.propagation import triton_gradient

        return triton_gradient.scales_backward(indptr, weight, scale, grad, by_rows)
    return (native if name == "native" else portable).scales_backward(indptr, weight, scale, grad, by_rows)


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
