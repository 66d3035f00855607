"""The choice of scaling by held-out labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from sobgnn.estimator.blend import fit_temperature, log_loss, sharpen
from sobgnn.estimator.features import FeatureMap, Scale
from sobgnn.estimator.labels import Labels, stratified_folds
from sobgnn.estimator.spreading import Smoother, diffuse
from sobgnn.graphs.knn import knn_graph

CANDIDATES: tuple[Scale, ...] = ("range", "range-unit", "unit", "rank")
# Numbers of points and labels to choose by, folds of the labels that are held out in turn, and strength of the
# diffusion.
_POINTS, _LABELS, _FOLDS, _STRENGTH = 2000, 600, 5, 0.98
# Number of columns up to which all of them are used.
_ALL_COLUMNS = 1024
# Labels per class from which all scalings are considered for the neighbor search.
_MANY_PER_CLASS = 10
# A column has heavy tails if its range is more than this many times its middle half; for a normal one it is 5 to 6
# times.
_HEAVY = 20.0
# Rows are treated as directions, like embeddings, if there are at least this many columns, nearly all have both signs,
# means are below this share of a standard deviation, deviations differ by factors within these bounds, and row lengths
# deviate by less than this share of their mean.
_DIRECTIONS, _BOTH_SIGNS, _CENTERED, _ALIKE, _LENGTHS = 32, 0.98, 0.3, (1.3, 10.0), 0.5


@dataclass(frozen=True)
class Scales:
    """One scaling for the neighbor search, one for the networks' input; often the same."""

    neighbors: Scale | None
    networks: Scale | None


# Values of the parameter: automatic, one scaling, or one for neighbors and one for networks.
ScaleOption = Literal["auto"] | Scale | None | tuple[Scale | None, Scale | None]


def decide_scales(
    option: ScaleOption,
    X: Any,
    codes: npt.NDArray[np.int64],
    k: int,
    n_components: int | None,
    generator: np.random.Generator,
) -> Scales:
    """The given scaling, or that whose neighbors best predict the class of labeled points, for the networks too.

    Large X is sampled. Neighbors are evaluated by diffusing the other folds' labels over their graph, by log loss at
    the best temperature. The usual scaling is ``"unit"`` if rows look like embeddings, ``"rank"`` if most columns have
    heavy tails, and ``"range"`` otherwise. Another one is chosen if its loss is smaller (with few labels, only
    ``"range"`` and ``"rank"`` may replace each other). Wide sparse X has only one way of scaling.

    Args:
        option: As for :class:`~sobgnn.SobolevClassifier`.
        X: Points [N, F].
        codes: [N]; -1: unlabeled.
        k: Number of neighbors.
        n_components: As for :class:`~sobgnn.estimator.features.FeatureMap`.
        generator: Draws the sample and the folds.
    """
    if option != "auto":
        return Scales(*option) if isinstance(option, tuple) else Scales(option, option)
    if sp.issparse(X) and n_components is not None and X.shape[1] > n_components:
        return Scales(None, None)
    index = np.flatnonzero(codes >= 0)
    labeled = generator.permutation(index)[:_LABELS]
    others = generator.permutation(np.flatnonzero(codes < 0))[: max(0, _POINTS - len(labeled))]
    sample = X[np.concatenate([labeled, others])]
    usual = 2 if looks_embedded(sample) else 3 if heavy_tailed(sample) else 0
    folds = min(_FOLDS, int(np.bincount(codes[index]).max()))
    if folds < 2:
        return Scales(CANDIDATES[usual], CANDIDATES[usual])
    target, classes = codes[labeled], int(codes.max()) + 1
    labels = Labels(
        np.arange(len(target)), target, np.ones(len(target)), stratified_folds(target, folds, generator), classes
    )
    # With few labels, scalings of rows would often be chosen by chance.
    few = len(target) < _MANY_PER_CLASS * classes
    offered = [*range(len(CANDIDATES))] if not few else [2] if usual == 2 else [0, 3]
    # Principal components hardly change distances and products, and take longer than all the rest.
    most = None if n_components is not None and sample.shape[1] <= _ALL_COLUMNS else n_components
    losses = {}
    for place in offered:
        z = FeatureMap.fit(sample, scale=CANDIDATES[place], n_components=most, seed=0)(sample)
        losses[place] = float(_diffusion_losses(z, labels, k).mean())
    best = CANDIDATES[min(losses, key=lambda place: (losses[place], place != usual))]
    return Scales(best, best)


def looks_embedded(X: Any) -> bool:
    """Whether rows look like embeddings: many centered columns in one unit, with uninformative row lengths.

    Only the directions of such rows matter. Singular vectors of texts, and networks' embeddings of texts and pictures,
    look like this. Measured columns do not, because they have different units; nor do standardized columns, whose
    deviations are all equal.
    """
    if X.shape[1] < _DIRECTIONS or X.shape[0] < 2:
        return False
    dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    largest = np.abs(dense).max()
    if not 0 < largest < np.inf:
        return False
    dense = dense / largest
    width, lengths = dense.std(axis=0), np.linalg.norm(dense, axis=1)
    narrow, wide = np.quantile(width, (0.1, 0.9))
    both = ((dense.min(axis=0) < 0) & (dense.max(axis=0) > 0)).mean()
    return bool(
        both >= _BOTH_SIGNS
        and np.median(np.abs(dense.mean(axis=0))) < _CENTERED * np.median(width)
        and _ALIKE[0] * narrow < wide < _ALIKE[1] * narrow
        and lengths.std() < _LENGTHS * lengths.mean()
    )


def heavy_tailed(X: Any) -> bool:
    """Whether most columns whose middle half varies have a range much larger than it."""
    dense = X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    low, first, third, high = np.quantile(dense, (0.0, 0.25, 0.75, 1.0), axis=0)
    middle = third - first
    with np.errstate(over="ignore"):
        varied = middle > 0
        reach = (high - low)[varied] / middle[varied]
    return bool(varied.any() and np.median(reach) > _HEAVY)


def _diffusion_losses(z: npt.NDArray[np.float32], labels: Labels, k: int) -> npt.NDArray[np.floating]:
    """Log loss [L] of the labeled points, the first rows of z, from the other folds' labels diffused over neighbors."""
    index, codes = labels.tensors(torch.device("cpu"))
    known = torch.from_numpy(labels.known()[:-1])
    graph = knn_graph(z, min(k, len(z) - 1))
    spread = diffuse(Smoother(graph), _STRENGTH, index, torch.where(known, codes, -1), labels.classes)
    own = labels.out_of_fold(spread.transpose(0, 1))
    return log_loss(sharpen(torch.from_numpy(own), fit_temperature(own, labels.codes)).numpy(), labels.codes)
