"""Copies: equal rows, where a labeled copy gives away the held-out labels of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

# Copies are held out together if labeled points have labeled copies this much more often than unlabeled points do or,
# if every point is labeled, up to this many labels per distinct row: rows with few values repeat in new points too.
_MORE_OFTEN, _MOST_COPIES = 0.05, 5


def copies_together(X: Any, codes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Which labels must be held out together: a number for each [L], the same for equal rows; ``None``: any split.

    A held-out label represents the unlabeled points. If these have labeled copies as often as labeled points do, as in
    tables with few distinct values, copies are part of the task. If they do not, as with several rows per customer and
    only some customers labeled, held-out labels would be predicted from their own copies.
    """
    known, row = codes >= 0, _numbered(X)
    often = float((np.bincount(row[known])[row[known]] > 1).mean())
    if known.all():
        return row if often and len(row) <= _MOST_COPIES * len(np.unique(row)) else None
    return row[known] if often > float(np.isin(row[~known], row[known]).mean()) + _MORE_OFTEN else None


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
