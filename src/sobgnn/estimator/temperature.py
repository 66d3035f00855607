"""Calibration of probabilities: temperature scaling, log loss, expected calibration error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]
_TINY = 1e-12


def sharpen(probabilities: _Array, temperature: float) -> _Array:
    r""":math:`p_c^{1/T} / \sum_d p_d^{1/T}`: what dividing the logits by T does."""
    if temperature == 1.0:
        return probabilities
    # In log space and relative to the largest: with a thousand classes every probability is small, and its power 0.
    logits = np.log(probabilities.clip(min=_TINY).astype(np.float64)) / temperature
    powered = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: _Array = (powered / powered.sum(axis=1, keepdims=True)).astype(probabilities.dtype)
    return result


def log_loss(probabilities: _Array, codes: npt.NDArray[np.int64]) -> _Array:
    """Minus the logarithm of each row's probability of its own class, [L]."""
    own = probabilities[np.arange(len(codes)), codes].astype(np.float64)
    result: _Array = -np.log(own.clip(min=_TINY))
    return result


def fit_temperature(probabilities: _Array, codes: npt.NDArray[np.int64], weight: _Array | None = None) -> float:
    r"""The temperature in [0.05, 5] with the least log loss on held-out labels, no sharper than their number supports.

    If all n labels are predicted correctly, the loss is least for probabilities of 1, which n labels do not prove. So
    the temperature is lowered below 1 only while the mean of the largest probabilities is at most (right + 1) / (n +
    2), Laplace's rule of succession. For labels of a single class the temperature is 1.

    The loss is convex in b = 1/T, with the slope :math:`\sum_l w_l \sum_c p_{lc}(b) (\log p_{lc} - \log p_{l y_l})`:
    its zero is found by Newton's method within a bracket, up to rounding. A coarser solution would jump when
    probabilities change by rounding, and so would every choice that depends on it.
    """
    if len(codes) == 0 or (codes == codes[0]).all():
        return 1.0
    logits = np.log(probabilities.astype(np.float64).clip(min=_TINY))
    right = logits.argmax(axis=1) == codes
    logits -= logits[np.arange(len(codes)), codes][:, None]
    shares = np.full(len(codes), 1 / len(codes)) if weight is None else weight / weight.sum()

    def slope(b: float) -> tuple[float, float]:
        """The loss's first and second derivative."""
        powered = np.exp(b * (logits - logits.max(axis=1, keepdims=True)))
        powered /= powered.sum(axis=1, keepdims=True)
        first = (powered * logits).sum(axis=1)
        second = (powered * np.square(logits)).sum(axis=1) - np.square(first)
        return float(shares @ first), float(shares @ second)

    def confidence(b: float) -> float:
        """Mean of the largest probabilities; it grows with b."""
        powered = np.exp(b * (logits - logits.max(axis=1, keepdims=True)))
        return float(shares @ (1 / powered.sum(axis=1)))

    b = _least(slope, 1 / 5.0, 1 / 0.05)
    most = (float(shares @ right) * len(codes) + 1) / (len(codes) + 2)
    if b > 1 and confidence(b) > most:
        low, high = 1.0, b
        while high - low > 1e-12 * high:
            middle = (low + high) / 2
            low, high = (middle, high) if confidence(middle) < most else (low, middle)
        b = low
    return 1 / b


def _least(slope: Callable[[float], tuple[float, float]], low: float, high: float) -> float:
    """The minimizer of a convex function on [low, high], from its first and second derivatives."""
    if slope(high)[0] <= 0:
        return high
    if slope(low)[0] >= 0:
        return low
    b = 1.0
    for _ in range(100):
        first, second = slope(b)
        low, high = (low, b) if first > 0 else (b, high)
        step = b - first / second if second > 0 else low
        step = step if low < step < high else (low + high) / 2
        if abs(step - b) <= 1e-12 * b:
            break
        b = step
    return b


def expected_calibration_error(probabilities: _Array, codes: npt.NDArray[np.int64], bins: int = 15) -> float:
    r""":math:`\sum_b \frac{n_b}{n} |\mathrm{accuracy}_b - \mathrm{confidence}_b|` over bins of confidence."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == codes
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    counts = np.bincount(which, minlength=bins)
    gaps = np.bincount(which, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
