"""How far probabilities can be trusted, and one number that mends them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[np.floating]
_TINY = 1e-12


def sharpen(probabilities: _Array, temperature: float) -> _Array:
    r""":math:`p_c^{1/T} / \sum_d p_d^{1/T}`: what dividing the logits by T does."""
    if temperature == 1.0:
        return probabilities
    powered = np.exp(np.log(probabilities.clip(min=_TINY)) / temperature)
    result: _Array = (powered / powered.sum(axis=1, keepdims=True)).astype(probabilities.dtype)
    return result


def log_loss(probabilities: _Array, codes: npt.NDArray[np.int64]) -> _Array:
    """Minus the logarithm of each row's probability of its own class, [L]."""
    own = probabilities[np.arange(len(codes)), codes].astype(np.float64)
    result: _Array = -np.log(own.clip(min=_TINY))
    return result


def fit_temperature(probabilities: _Array, codes: npt.NDArray[np.int64], weight: _Array | None = None) -> float:
    """The temperature in [0.05, 5] with the least log loss on held-out labels, by golden section in log T."""
    ratio = (np.sqrt(5) - 1) / 2
    low, high = np.log(0.05), np.log(5.0)

    def score(at: float) -> float:
        return float(np.average(log_loss(sharpen(probabilities, float(np.exp(at))), codes), weights=weight))

    # The loss is convex in 1/T, so it has one valley in log T too.
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = score(left), score(right)
    while high - low > 1e-3:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = score(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = score(right)
    return float(np.exp((low + high) / 2))


def expected_calibration_error(probabilities: _Array, codes: npt.NDArray[np.int64], bins: int = 15) -> float:
    r""":math:`\sum_b \frac{n_b}{n} |\mathrm{accuracy}_b - \mathrm{confidence}_b|` over bins of confidence."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == codes
    which = np.minimum((confidence * bins).astype(np.int64), bins - 1)
    counts = np.bincount(which, minlength=bins)
    gaps = np.bincount(which, right - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / max(1, counts.sum()))
