"""What all operators share: the products with a signal, and the checks of α and ε."""

from __future__ import annotations

import math
import sys
import warnings

import numpy as np
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.edges import LARGEST_WEIGHT, SMALLEST_WEIGHT
from sobgnn.propagation import SobolevCSR

_INSIDE = ("sobgnn", "torch", "torch_geometric")


class OperatorBase:
    """Every order of the sparse Sobolev operators, from C input rows to R output rows.

    Attributes:
        alpha: Number of orders.
        nodes: The node of each output row, int64 [R]; ``None``: row i is node i.
    """

    alpha: int
    nodes: Tensor | None = None

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators for signals of that type, as :mod:`sobgnn.propagation` takes them."""
        raise NotImplementedError

    def propagate(self, H: Tensor) -> Tensor:
        """Every order applied to one signal in one pass: H [C, h] to [R, α, h], entry ρ-1 being Â_ρ H."""
        return propagation.propagate(self.csr(getattr(H, "dtype", torch.float32)), H)

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each order applied to a signal of its own: H [C, α, h] to [R, α, h]."""
        return propagation.propagate_each(self.csr(getattr(H, "dtype", torch.float32)), H)


def check_count(name: str, value: int, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``, else raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be an integer, but got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, but got {value}.")
    return int(value)


def check_alpha(alpha: int) -> int:
    """Return ``alpha`` if it is an integer of at least 1, else raise."""
    return check_count("alpha", alpha, 1)


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` if it is finite and not negative, else raise."""
    if not (isinstance(epsilon, (int, float, np.integer, np.floating)) and math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"`epsilon` must be finite and at least 0, but got {epsilon!r}.")
    return float(epsilon)


def clamp_epsilon(epsilon: float) -> float:
    """ε within the range of weights (or 0): what lies outside could not be told apart from its bound."""
    return min(max(epsilon, SMALLEST_WEIGHT), LARGEST_WEIGHT) if epsilon > 0 else 0.0


def warn_unweighted(epsilon: float | Tensor) -> None:
    """Warn, at the first line outside of sobgnn, torch and PyG, that weights of 1 have no other powers."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    what = "alpha > 1 adds nothing"
    if isinstance(epsilon, Tensor) or epsilon not in (0, 1):
        what = "its orders differ by their self-loops alone"
    warnings.warn(
        f"All edge weights are 1, so every Hadamard power of the graph is the graph itself and {what}. Give the edges "
        "weights, for example with sobgnn.reweight(graph).",
        stacklevel=level,
    )
