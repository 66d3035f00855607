"""How features are scaled, decided by which neighbours agree with the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.calibration import fit_temperature, log_loss, sharpen
from sobgnn.ensemble import stratified_folds
from sobgnn.features import FeatureMap, Scale
from sobgnn.knn import graph_from_neighbors
from sobgnn.neighbors import nearest
from sobgnn.smoothing import smooth, spreading, with_labels

# The first is taken unless a later one is better by more than its standard error.
CANDIDATES: tuple[Scale, ...] = ("range", "range-unit", "unit")
_POINTS, _LABELS, _FOLDS, _STRENGTH = 4000, 2000, 5, 0.98


def choose_scale(
    X: Any, codes: npt.NDArray[np.int64], k: int, n_components: int | None, generator: np.random.Generator
) -> Scale:
    """The scaling whose k-nearest-neighbour graph carries labels best from some labelled points to others.

    Labels are held out in turn and recovered by propagation over each candidate's graph, on a sample of the points
    where there are many. Chosen by log loss at the candidate's own best temperature, and against the first candidate
    only where the mean of the paired differences is above its standard error.

    Args:
        X: Dense points [N, F].
        codes: int64 [N], -1 where unlabelled.
        k: Neighbours.
        n_components: As for :class:`~sobgnn.features.FeatureMap`.
        generator: Draws the sample and the folds.
    """
    index = np.flatnonzero(codes >= 0)
    folds = min(_FOLDS, int(np.bincount(codes[index]).max()))
    if folds < 2:
        return CANDIDATES[0]
    labelled = generator.permutation(index)[:_LABELS]
    others = generator.permutation(np.flatnonzero(codes < 0))[: max(0, _POINTS - len(labelled))]
    sample = np.concatenate([labelled, others])
    known = torch.arange(len(labelled))
    target = codes[labelled]
    fold = stratified_folds(target, folds, generator)
    losses = []
    for scale in CANDIDATES:
        z = FeatureMap.fit(X[sample], scale=scale, n_components=n_components, seed=0)(X[sample])
        found = nearest(z, min(k, len(sample) - 1))
        graph = graph_from_neighbors(found.indices, found.distances)
        flat = torch.full((len(sample), int(codes.max()) + 1), 1 / (int(codes.max()) + 1))
        parts = [with_labels(flat, known[fold != f], torch.from_numpy(target[fold != f])) for f in range(folds)]
        start, fixed = (torch.stack(part, dim=1) for part in zip(*parts, strict=True))
        spread = smooth(spreading(graph), start, _STRENGTH, fixed)[known, torch.from_numpy(fold)].numpy()
        losses.append(log_loss(sharpen(spread, fit_temperature(spread, target)), target))
    best = int(np.argmin([loss.mean() for loss in losses]))
    gain = losses[0] - losses[best]
    error = gain.std() / np.sqrt(len(gain))
    return CANDIDATES[best] if gain.mean() > error else CANDIDATES[0]
