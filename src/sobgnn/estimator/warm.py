"""What a warm start keeps from one fit for the next."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.estimator.fit import Fit
from sobgnn.estimator.frequencies import Frequencies
from sobgnn.estimator.labels import UNLABELED, Labels
from sobgnn.estimator.placed import Placed
from sobgnn.graphs.graph import Graph

# Share of the labels that may change before the blend is decided again.
_MOST_CHANGED = 0.2


@dataclass(frozen=True)
class Kept:
    """A fit and its inputs.

    Attributes:
        fingerprint: Hash of everything but the labels, by :func:`fingerprint`.
        labels: The labels that its decisions are based on.
        latest: Those of the latest fit, a refit if they are others.
    """

    fingerprint: str
    placed: Placed
    fit: Fit
    labels: Labels
    classes: npt.NDArray[Any]
    frequencies: Frequencies
    latest: Labels

    def holds(self, codes: npt.NDArray[np.int64], classes: npt.NDArray[Any]) -> bool:
        """Whether classes [C] are the same and codes [N] differ in a few labels from when the decisions were made."""
        if not np.array_equal(self.classes, classes):
            return False
        before = np.full(len(codes), UNLABELED)
        before[self.labels.index] = self.labels.codes
        return int((before != codes).sum()) <= _MOST_CHANGED * len(self.labels.index)

    def unchanged(self, labels: Labels, out_of_fold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The latest fit's out-of-fold probabilities, of labels that have not changed since, [L, C]; NaN for others."""
        found = np.full((len(labels.index), labels.classes), np.nan)
        _, here, there = np.intersect1d(labels.index, self.latest.index, assume_unique=True, return_indices=True)
        same = labels.codes[here] == self.latest.codes[there]
        found[here[same]] = out_of_fold[there[same]]
        return found


def fingerprint(X: Any, graph: Graph | None, settings: Mapping[str, Any], weight: Any = None) -> str:
    """A hash of points, graph, parameters and the weights of rows."""
    digest = hashlib.blake2b(digest_size=16)
    parts = [X.data, X.indices, X.indptr] if sp.issparse(X) else [X]
    if graph is not None:
        parts += [part.numpy() for part in (graph.indptr, graph.indices, graph.weight)]
    if weight is not None:
        parts.append(weight)
    shapes = [(part.shape, str(part.dtype)) for part in parts]
    digest.update(repr((X.shape, shapes, sorted(settings.items()))).encode())
    for part in parts:
        digest.update(np.ascontiguousarray(part).data.cast("B") if np.size(part) else b"")
    return digest.hexdigest()
