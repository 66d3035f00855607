"""How features are scaled, for neighbours and for networks, decided by labels that are held out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from sobgnn.estimator.ensemble import Labels, Network, feature_logits, stratified_folds, train_feature_members
from sobgnn.estimator.features import FeatureMap, Scale
from sobgnn.estimator.smoothing import smooth, spreading, with_labels
from sobgnn.estimator.temperature import fit_temperature, log_loss, sharpen
from sobgnn.graphs.knn import graph_from_neighbors
from sobgnn.neighbors import nearest
from sobgnn.training import Schedule

# The first is the usual one.
CANDIDATES: tuple[Scale, ...] = ("range", "range-unit", "unit")
_POINTS, _LABELS, _FOLDS, _STRENGTH = 4000, 2000, 5, 0.98
# Perceptrons as quick as tell scalings apart: "unit" takes its time to learn.
_HIDDEN, _QUICK = 32, Schedule(epochs=300, patience=60, evaluate_every=5, together=True)


class Scales(NamedTuple):
    """One scaling for finding neighbours, one for what networks read; often the same."""

    neighbors: Scale | None
    networks: Scale | None


# What an estimator may be told: to choose, one scaling, or one for neighbours and one for networks.
Wish = Literal["auto"] | Scale | None | tuple[Scale | None, Scale | None]


def decide_scales(
    wish: Wish,
    X: Any,
    codes: npt.NDArray[np.int64],
    k: int,
    n_components: int | None,
    generator: np.random.Generator,
) -> Scales:
    """As wished, or chosen; wide sparse X has one way of scaling only."""
    if isinstance(wish, tuple):
        return Scales(*wish)
    if wish != "auto":
        return Scales(wish, wish)
    if sp.issparse(X) and n_components is not None and X.shape[1] > n_components:
        return Scales(None, None)
    return choose_scales(X, codes, k, n_components, generator)


def choose_scales(
    X: Any, codes: npt.NDArray[np.int64], k: int, n_components: int | None, generator: np.random.Generator
) -> Scales:
    """The scaling whose neighbours, and the one whose columns, say best which class a labelled point has.

    Labels are held out in turn, on a sample of the points where there are many. Neighbours are judged by propagation
    of the other labels over their graph, columns by perceptrons that learn them. Chosen by log loss at the candidate's
    own best temperature: for neighbours against the first candidate only where the mean of the paired differences is
    above its standard error, for networks against what neighbours have only where it is above twice that.

    Args:
        X: Dense points [N, F].
        codes: int64 [N], -1 where unlabelled.
        k: Neighbours.
        n_components: As for :class:`~sobgnn.estimator.features.FeatureMap`.
        generator: Draws the sample and the folds.
    """
    index = np.flatnonzero(codes >= 0)
    folds = min(_FOLDS, int(np.bincount(codes[index]).max()))
    if folds < 2:
        return Scales(CANDIDATES[0], CANDIDATES[0])
    labelled = generator.permutation(index)[:_LABELS]
    others = generator.permutation(np.flatnonzero(codes < 0))[: max(0, _POINTS - len(labelled))]
    sample = X[np.concatenate([labelled, others])]
    target, classes = codes[labelled], int(codes.max()) + 1
    labels = Labels(
        np.arange(len(target)), target, np.ones(len(target)), stratified_folds(target, folds, generator), range(folds)
    )
    by_neighbors, by_columns = [], []
    for scale in CANDIDATES:
        z = FeatureMap.fit(sample, scale=scale, n_components=n_components, seed=0)(sample)
        by_neighbors.append(_loss(_spread(z, labels, k, classes), target))
        by_columns.append(_loss(_learnt(z[: len(target)], labels, classes), target))
    neighbors = _best(by_neighbors, 0, errors=1)
    return Scales(CANDIDATES[neighbors], CANDIDATES[_best(by_columns, neighbors, errors=2)])


def _spread(z: npt.NDArray[np.float32], labels: Labels, k: int, classes: int) -> npt.NDArray[np.float32]:
    """What the other folds' labels say of each labelled point, the first of z, over its neighbours: [L, C]."""
    found = nearest(z, min(k, len(z) - 1))
    graph = graph_from_neighbors(found.indices, found.distances)
    index, codes = labels.tensors(torch.device("cpu"))
    fold = torch.from_numpy(labels.fold)
    flat = torch.full((len(z), classes), 1 / classes)
    parts = [with_labels(flat, index[fold != f], codes[fold != f]) for f in range(labels.folds)]
    start, fixed = (torch.stack(part, dim=1) for part in zip(*parts, strict=True))
    said: npt.NDArray[np.float32] = smooth(spreading(graph), start, _STRENGTH, fixed)[index, fold].numpy()
    return said


def _learnt(z: npt.NDArray[np.float32], labels: Labels, classes: int) -> npt.NDArray[np.float32]:
    """What perceptrons that learn from the other folds say of each labelled point z [L, F]: [L, C]."""
    network, points = Network(z.shape[1], _HIDDEN, classes), torch.from_numpy(z)
    members = train_feature_members(network, points, labels, _QUICK, None)
    each = feature_logits(network, members.parameters, points).softmax(dim=2)
    said: npt.NDArray[np.float32] = each[torch.from_numpy(labels.fold), torch.from_numpy(labels.index)].numpy()
    return said


def _loss(said: npt.NDArray[np.float32], target: npt.NDArray[np.int64]) -> npt.NDArray[np.floating]:
    return log_loss(sharpen(said, fit_temperature(said, target)), target)


def _best(losses: Sequence[npt.NDArray[np.floating]], usual: int, errors: float) -> int:
    """The candidate of the least loss, where it gains more than so many standard errors over the usual one."""
    best = int(np.argmin([loss.mean() for loss in losses]))
    gain = losses[usual] - losses[best]
    return best if gain.mean() > errors * gain.std() / np.sqrt(len(gain)) else usual
