"""From high-dimensional points to a map: neighbors stay close, clusters separate."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

_NEIGHBORS = 10
_STRANGERS = 5
_DIMENSIONS = 8


def plane_layout(points: npt.NDArray[Any], seed: int = 0) -> npt.NDArray[np.float32]:
    r"""Positions [N, 2] of points [N, d]: principal components, then steps that attract neighbors and repel others.

    At each step every point i is paired with one of its neighbors j and some random points r, and moves along the
    gradient of

    .. math:: \log \frac{1}{1 + \|p_i - p_j\|^2} + \sum_r \log \left(1 - \frac{1}{1 + \|p_i - p_r\|^2}\right)

    The cost is O(N) per step, with fewer steps from 20 000 points. The same seed gives the same map.
    """
    count = points.shape[0]
    reduced = principal_components(points, _DIMENSIONS)
    place = np.zeros((count, 2), dtype=np.float32)
    place[:, : min(2, reduced.shape[1])] = reduced[:, :2]
    generator = np.random.default_rng(seed)
    spread = float(np.abs(place).max())
    place = (8 / spread * place if spread > 0 else place) + generator.normal(0, 0.01, place.shape).astype(np.float32)
    if count <= _NEIGHBORS + 1:  # too few for neighbors to add anything to the components
        return place
    # In few dimensions a k-d tree finds near points quickly, and a map does not need the exact nearest.
    slack = 0 if count <= 20_000 else 2
    _, near = cKDTree(reduced).query(reduced, _NEIGHBORS + 1, eps=slack, workers=-1)
    near = near[:, 1:]
    steps = int(np.clip(8e6 / count, 100, 400))
    rows = np.arange(count)
    for step in range(steps):
        rate = np.float32(1 - step / steps)
        other = near[rows, generator.integers(0, _NEIGHBORS, count)]
        apart = place - place[other]
        pull = np.clip(apart * (2 / (1 + _square(apart)))[:, None], -4, 4)
        move = -pull
        for axis in (0, 1):  # the neighbor moves too
            move[:, axis] += np.bincount(other, weights=pull[:, axis], minlength=count)
        for _ in range(_STRANGERS):
            apart = place - place[generator.integers(0, count, count)]
            square = _square(apart)
            move += np.clip(apart * (2 / ((0.001 + square) * (1 + square)))[:, None], -4, 4)
        place += rate * move
    return principal_components(place, 2)  # rotated so that it is wider than high


def principal_components(points: npt.NDArray[Any], most: int) -> npt.NDArray[np.float32]:
    """The first ``most`` principal components [N, <= most], each with a sign that makes its largest entry positive."""
    centered = np.asarray(points, dtype=np.float64)
    centered = centered - centered.mean(axis=0)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    basis = vectors[:, ::-1][:, :most]
    basis = basis * np.sign(basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])])
    components: npt.NDArray[np.float32] = (centered @ basis).astype(np.float32)
    return components


def _square(apart: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    square: npt.NDArray[np.float32] = apart[:, 0] ** 2 + apart[:, 1] ** 2
    return square
