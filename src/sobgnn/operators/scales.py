"""A node's scales in every order, from its own row of the graph, and the checks of α and ε."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.graphs.adjacency import LARGEST_WEIGHT, SMALLEST_WEIGHT

# Entries whose powers are summed at a time: a few arrays of this many float64 stay in a core's cache.
_ENTRIES_PER_BLOCK = 1 << 16


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
    indptr: npt.NDArray[Any],
    weight: npt.NDArray[Any],
    alpha: int,
    epsilon: float,
    dtype: type[np.floating[Any]] = np.float64,
) -> npt.NDArray[Any]:
    """Columns q, t_1 … t_α [N, α+1] of :class:`SobolevOperators` from CSR rows; 0 where a node has degree 0.

    A node's scales depend on its own row alone, so any part of a graph's rows can be done by itself. They are
    computed in float64 and rounded once, to ``dtype``.
    """
    n, epsilon = len(indptr) - 1, clamp_epsilon(epsilon)
    scale = np.zeros((n, alpha + 1), dtype)
    start = 0
    while start < n:  # blocks of whole rows
        begin = int(indptr[start])
        stop = int(np.searchsorted(indptr, begin + _ENTRIES_PER_BLOCK, side="right")) - 1
        stop = min(max(stop, start + 1), start + _ENTRIES_PER_BLOCK, n)
        end = indptr[stop]
        ptr, w = indptr[start : stop + 1] - begin, weight[begin:end].astype(np.float64)
        largest = np.maximum(epsilon, _segment(np.maximum, w, ptr))
        live = largest > 0
        q = np.zeros(stop - start)
        q[live] = _round_to_12_bits(1 / np.sqrt(largest[live]))
        base = w * np.repeat(q * q, np.diff(ptr))
        power, loop = base.copy(), epsilon * q * q
        scale[start:stop, 0] = q
        for rho in range(1, alpha + 1):
            degree = _segment(np.add, power, ptr) + loop**rho
            scale[start:stop, rho] = np.where(live, 1 / np.sqrt(np.where(live, degree, 1.0)), 0.0)
            if rho < alpha:
                power *= base
        start = stop
    return scale


def _segment(ufunc: np.ufunc, values: npt.NDArray[Any], ptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``ufunc`` over values[ptr[i]:ptr[i+1]] for each i; 0 where that is empty."""
    out = np.zeros(len(ptr) - 1)
    full = np.flatnonzero(np.diff(ptr))
    if full.size:  # reduceat reads an empty segment as one element, so only the full ones are named
        out[full] = ufunc.reduceat(values, ptr[full])
    return out


def _round_to_12_bits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Values with 12 significant bits, so that the product of two is exact in float32.

    The identity behind :class:`SobolevOperators` holds for any positive q, so rounding q costs nothing, while
    an error in r would grow ρ-fold in its power.
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 4096) / 4096, exponent)
