"""Means with bootstrap intervals, and differences between models over the seeds they share."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 1000
_SEED = 20221
_LEVEL = 0.95


class Interval(NamedTuple):
    """A mean and its 95 % bootstrap interval."""

    mean: float
    low: float
    high: float

    @property
    def margin(self) -> float:
        """The larger distance from the mean to a bound: what a table prints after ±."""
        return max(self.mean - self.low, self.high - self.mean)

    @property
    def sign(self) -> int:
        """1 or -1 if the interval is entirely on one side of 0, else 0."""
        return (self.low > 0) - (self.high < 0)


def exact_mean(values: Collection[float]) -> float:
    """The mean, rounded once: equal settings stay equal for any order of their seeds and any version of Python."""
    return math.fsum(values) / len(values)


def bootstrap(values: Sequence[float], resamples: int = RESAMPLES, seed: int = _SEED) -> Interval:
    """The percentile interval of the mean: 2.5 % and 97.5 % of the means of ``resamples`` draws with replacement.

    The same values in the same order and the same seed give the same interval.
    """
    if len(values) == 0:
        raise ValueError("A mean needs at least one value, but got none.")
    array = np.asarray(values, dtype=np.float64)
    draws = np.random.default_rng(seed).integers(len(array), size=(resamples, len(array)))
    tail = 100 * (1 - _LEVEL) / 2
    low, high = np.percentile(array[draws].mean(axis=1), [tail, 100 - tail])
    return Interval(float(array.mean()), float(low), float(high))


def paired_difference(
    ours: Mapping[int, float], theirs: Mapping[int, float], resamples: int = RESAMPLES, seed: int = _SEED
) -> tuple[Interval, int]:
    """Ours minus theirs, seed by seed, over the seeds of both; and the number of these seeds.

    A seed draws the same training points for every model, so what all models gain or lose from it cancels.

    Args:
        ours: Seed -> accuracy.
        theirs: Likewise.
        resamples: Number of resamples of the seeds.
        seed: Seed of the resampling.
    """
    shared = sorted(set(ours) & set(theirs))
    if not shared:
        raise ValueError("A paired difference needs seeds that both models have, but there are none.")
    return bootstrap([ours[s] - theirs[s] for s in shared], resamples, seed), len(shared)
