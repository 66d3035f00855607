"""The fused C++/OpenMP kernel, reached through ctypes."""

from __future__ import annotations

from torch import Tensor

from sobgnn.propagation.stencil import Stencil


def available() -> bool:
    """Whether the compiled kernel was found."""
    return False


def missing() -> str:
    """Why it is not available, as a sentence."""
    return "the compiled kernel is not installed."


def run(stencil: Stencil, x: Tensor, out: Tensor) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h]."""
    raise NotImplementedError
