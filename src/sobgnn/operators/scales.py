"""A node's scales in every order, from its own row of the graph, and the checks of α and ε."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from sobgnn.graphs.adjacency import LARGEST_WEIGHT, SMALLEST_WEIGHT
from sobgnn.propagation import scales


def check_alpha(alpha: int) -> int:
    """Return ``alpha`` if it is an integer of at least 1, else raise."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, np.integer)):
        raise TypeError(f"`alpha` must be an integer, but got {alpha!r}.")
    if alpha < 1:
        raise ValueError(f"`alpha` must be at least 1, but got {alpha}.")
    return int(alpha)


def check_count(name: str, value: int, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``, else raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"`{name}` must be an integer of at least {least}, but got {value!r}.")
    return int(value)


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` if it is finite and not negative, else raise."""
    if not (isinstance(epsilon, (int, float, np.integer, np.floating)) and math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"`epsilon` must be finite and at least 0, but got {epsilon!r}.")
    return float(epsilon)


def clamp_epsilon(epsilon: float) -> float:
    """ε within the range of weights (or 0): what lies outside could not be told apart from its bound."""
    return min(max(epsilon, SMALLEST_WEIGHT), LARGEST_WEIGHT) if epsilon > 0 else 0.0


def node_scales(
    indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Columns q, t_1 … t_α [N, α+1] of :class:`SobolevOperators` from CSR rows; 0 where a node has degree 0.

    A node's scales depend on its own row alone, so any part of a graph's rows can be done by itself. They are computed
    on the CPU in float64 and rounded once, to ``dtype``: the same numbers for every device.
    """
    found = scales(indptr.cpu(), weight.cpu().to(dtype), alpha, clamp_epsilon(epsilon))
    return found.to(weight.device)
