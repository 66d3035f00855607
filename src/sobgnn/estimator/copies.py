"""Copies: rows of one origin, where a labeled copy leaks the held-out labels of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sobgnn.neighbors import nearest

# Copies are held out together if labeled points have labeled copies this much more often than unlabeled points do.
_MORE_OFTEN = 0.05
# If every point is labeled: labels per distinct row up to which copies are of one origin. More copies come from rows
# with few values, which new points will repeat too.
_MOST_COPIES = 5
# Near copies are closer to one another than all but this share of unlabeled points are to any labeled point. More than
# the second share of labels must have one; by chance, only the first share would.
_NEAR, _HAVE_ONE = 0.05, 0.3
_LEAST_LABELS, _MOST_POINTS, _NEIGHBORS = 30, 2000, 10


def held_together(X: Any, codes: npt.NDArray[np.int64], points: Tensor) -> npt.NDArray[np.int64] | None:
    """Which labels must be held out together: a number for each [L], the same for copies; ``None``: any split is fine.

    A held-out label represents the unlabeled points. If these have labeled copies or near copies as often as labeled
    points do, as in tables with few distinct values, copies are part of the task. If they do not, as with several rows
    per customer and only some customers labeled, held-out labels would be predicted from their own copies, and noise
    would look like signal.

    Args:
        X: Points [N, F], dense or CSR.
        codes: Classes [N]; -1: unlabeled.
        points: The scaled points, [N, D].
    """
    found = _copies(X, codes)
    return _near_copies(codes, points) if found is None else found


def _near_copies(codes: npt.NDArray[np.int64], points: Tensor) -> npt.NDArray[np.int64] | None:
    labeled, others = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    if len(labeled) < _LEAST_LABELS or not len(others):
        return None
    others = others[:: 1 + len(others) // _MOST_POINTS]
    known = points[labeled]
    usual = nearest(known, 1, queries=points[others], method="exact").distances
    near = float(np.quantile(usual, _NEAR))
    found = nearest(known, min(_NEIGHBORS, len(labeled) - 1), method="exact")
    if float((found.distances[:, 0] < near).mean()) <= _HAVE_ONE:
        return None
    own, place = np.nonzero(found.distances < near)
    pairs = (np.ones(len(own)), (own, found.indices[own, place]))
    _, group = connected_components(sp.csr_array(pairs, shape=(len(labeled), len(labeled))), directed=False)
    # A group of most labels is not one origin, but a region where many points were labeled.
    return np.asarray(group, dtype=np.int64) if np.bincount(group).max() <= len(labeled) / 2 else None


def _copies(X: Any, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """As :func:`held_together`, only for equal rows."""
    known = codes >= 0
    own = _numbered(X[known])
    labels = np.bincount(own)
    among_labeled = float((labels[own] > 1).mean())
    if among_labeled == 0:
        return None
    if known.all():
        together = len(own) <= _MOST_COPIES * len(labels)
    else:
        row = _numbered(X)
        copied = np.isin(row[~known], row[known])
        together = among_labeled > float(copied.mean()) + _MORE_OFTEN
    return own if together else None


def _numbered(X: Any) -> npt.NDArray[np.int64]:
    """A number for each row [N], the same for equal rows."""
    if sp.issparse(X):
        csr = sp.csr_array(X, copy=True)
        csr.sum_duplicates()
        csr.eliminate_zeros()
        ends = zip(csr.indptr[:-1], csr.indptr[1:], strict=True)
        rows = [csr.indices[a:b].tobytes() + csr.data[a:b].tobytes() for a, b in ends]
        return np.unique(np.array(rows, dtype=object), return_inverse=True)[1]
    dense = np.ascontiguousarray(X) + 0.0  # -0 is 0
    seen = dense.view(np.dtype((np.void, dense.itemsize * dense.shape[1]))).ravel()
    return np.unique(seen, return_inverse=True)[1]
