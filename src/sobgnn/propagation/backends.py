"""Which code serves a tensor: native on CPUs, Triton on CUDA, portable where they are missing."""

from __future__ import annotations

import functools
import os
import warnings
from typing import Any

import torch
from torch import Tensor

from sobgnn._system.packages import installed
from sobgnn.propagation import native, portable
from sobgnn.propagation.csr import SobolevCSR


def backend(tensor: Tensor | None = None) -> str:
    """The backend that serves ``tensor``, or one on the CPU if left out: "native", "portable" or "triton".

    The environment variable ``SOBGNN_BACKEND`` forces one of them.
    """
    forced = os.environ.get("SOBGNN_BACKEND", "")
    device = torch.device("cpu") if tensor is None else tensor.device
    kind = device.type
    if not forced:
        if kind == "cpu":
            return "native" if native.available() else "portable"
        return "triton" if kind == "cuda" and _has_triton() else "portable"
    if forced == "portable":
        return forced
    if forced == "native":
        if kind != "cpu":
            raise ValueError(f"SOBGNN_BACKEND=native serves CPU tensors, but got one on {device}. Unset it.")
        if not native.available():
            raise ValueError(f"SOBGNN_BACKEND=native, but: {native.missing()} Unset it or reinstall with a compiler.")
        return forced
    if forced == "triton":
        # Triton's interpreter, which is for debugging, also takes tensors of the CPU.
        if kind != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
            raise ValueError(f"SOBGNN_BACKEND=triton serves CUDA tensors, but got one on {device}. Unset it.")
        if not _has_triton():
            raise ValueError("SOBGNN_BACKEND=triton, but the package triton is not installed. Unset it.")
        return forced
    raise ValueError(f"SOBGNN_BACKEND must be native, portable or triton, but got {forced!r}. Unset it.")


def run(csr: SobolevCSR, x: Tensor, out: Tensor) -> Tensor:
    """Fill ``out`` from ``x``; which of the three operators is meant follows from their dimensions."""
    if out.numel() == 0:
        return out
    name = backend(x)
    if name == "native":
        native.run(csr, x, out)
    elif name == "triton":
        from sobgnn.propagation import triton

        triton.run(csr, x, out)
    else:
        if x.device.type == "cpu" and not os.environ.get("SOBGNN_BACKEND"):
            _warn_once()
        portable.run(csr, x, out)
    return out


def gradients(csr: SobolevCSR, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, the weights [E] (0 for those of 0, which are no edges), row_scale [R, α], column_scale [C, α]."""
    if x.numel() == 0 or g.numel() == 0:
        shapes = (csr.weight.shape, g.shape[:2], (x.shape[0], g.shape[1]))
        to_weight, to_row_scale, to_column_scale = (csr.column_scale.new_zeros(shape) for shape in shapes)
        return torch.zeros_like(x), to_weight, to_row_scale, to_column_scale
    kernels: Any = native if backend(x) == "native" else portable
    if backend(x) == "triton":
        from sobgnn.propagation import triton_gradient as kernels
    to_x, to_weight, to_row_scale, to_column_scale = kernels.gradients(csr, x, y, g)
    to_weight.masked_fill_(csr.weight == 0, 0.0)
    return to_x.to(x.dtype).contiguous(), to_weight, to_row_scale, to_column_scale


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    """Columns q, t_1 … t_α [N, α + 1]."""
    if backend(weight) == "native":
        return native.scales(indptr, weight, alpha, epsilon, by_rows)
    return portable.scales(indptr, weight, alpha, epsilon, by_rows)


def scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    """The gradient of the weights [E]; 0 for weights of 0."""
    kernels: Any = native if backend(weight) == "native" else portable
    if backend(weight) == "triton":
        from sobgnn.propagation import triton_gradient as kernels
    found: Tensor = kernels.scales_backward(indptr, weight, scale, grad, by_rows)
    found.masked_fill_(weight == 0, 0.0)
    return found


@functools.cache
def _has_triton() -> bool:
    return installed("triton")


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        f"{native.missing()} The portable backend serves, which is slower. Reinstall sobgnn where a C++ compiler "
        "is found, or set SOBGNN_BACKEND=portable to choose it.",
        stacklevel=2,
    )
