"""Copies: rows of one origin, of which a labeled one gives away the others' labels while they are held out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from sobgnn.neighbors import nearest

# How much more often labeled points have labeled copies than unlabeled points do, to be held out together.
_MORE_OFTEN = 0.05
# Where every point is labeled: labels per different row up to which copies are of one origin. More are rows of few
# values, which new points will repeat too.
_MOST_COPIES = 5
# Near copies are nearer to one another than all but this share of unlabeled points are to any label; at least so many
# labels must have one, where chance gives one to as many as that share.
_NEAR, _HAVE_ONE = 0.05, 0.3
_LEAST_LABELS, _MOST_POINTS, _NEIGHBORS = 30, 2000, 10


def held_together(X: Any, codes: npt.NDArray[np.int64], points: Tensor) -> npt.NDArray[np.int64] | None:
    """Which labels are to be held out together: a number for each [L], the same for copies; ``None``: no matter which.

    A held-out label stands for the unlabeled points. Where these have labeled copies, or near ones, as often as labeled
    points do, as in tables of few values, copies are part of what is to be predicted. Where they have not, as with
    several rows of each customer, of whom some were labeled, labels would be judged by their own copies, and noise
    would look like knowledge.

    Args:
        X: Points [N, F], dense or CSR.
        codes: Classes [N], -1 where unknown.
        points: The same scaled, [N, D].
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
    # One group of most labels is no origin but a place where much was labeled.
    return np.asarray(group, dtype=np.int64) if np.bincount(group).max() <= len(labeled) / 2 else None


def _copies(X: Any, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """The same of equal rows alone."""
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
