"""What an adjacency matrix must be: weights in a range, no repeated edge, and the same weight in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.propagation.sorting import ROUNDING

# The weights a graph holds are float32's normal numbers whose reciprocal is one too: past them arithmetic is inexact.
SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)
LARGEST_WEIGHT = float(np.finfo(np.float32).max) / 4


class NotSymmetricError(ValueError):
    """An edge differs between its two directions."""


def check_weights(weight: npt.NDArray[Any]) -> None:
    """Raise unless all weights [E] are real numbers in the range that a graph holds."""
    if weight.dtype.kind not in "fiub":
        raise TypeError(f"Edge weights must be real numbers, but got {weight.dtype}.")
    good = (weight >= SMALLEST_WEIGHT) & (weight <= LARGEST_WEIGHT)
    bad = np.flatnonzero(~good)
    if bad.size:
        raise ValueError(
            f"Edge weights must be finite and at least {SMALLEST_WEIGHT:.3g}, at most {LARGEST_WEIGHT:.3g}, but "
            f"{bad.size} are not (first: {weight[bad[0]]} at entry {bad[0]}). Drop those edges or rescale the weights."
        )


def canonical(matrix: Any, sum_duplicates: bool) -> Any:
    """CSR with sorted indices and no duplicates; the caller's matrix is left as it is."""
    if matrix.format == "csr" and matrix.has_canonical_format:
        return matrix
    before = matrix.nnz
    csr = matrix.tocsr(copy=matrix.format == "csr")  # other formats are copied, and summed, on the way
    csr.sum_duplicates()
    if csr.nnz != before and not sum_duplicates:
        raise ValueError(
            f"Each edge may be listed once per direction, but {before - csr.nnz} are repeated. Pass "
            "sum_duplicates=True to Graph.from_edges to add them up."
        )
    if csr.nnz != before:
        check_weights(csr.data)  # sums may leave the range of their terms
    return csr


def symmetrize_csr(csr: Any, how: str) -> Any:
    """The union (entrywise maximum) or mutual (minimum) of a non-negative CSR matrix and its transpose."""
    if how == "union":
        return csr.maximum(csr.T.tocsr())
    if how == "mutual":
        # Absent entries count as 0, so the minimum keeps exactly the edges present in both directions.
        both = csr.minimum(csr.T.tocsr())
        both.eliminate_zeros()
        return both
    raise ValueError(f'`symmetrize` must be "union" or "mutual", but got {how!r}.')


def symmetric(csr: Any) -> Any:
    """The matrix if it is symmetric; of two weights that only rounding tells apart the larger."""
    other = csr.T.tocsr()
    if np.array_equal(csr.indptr, other.indptr) and np.array_equal(csr.indices, other.indices):
        if np.array_equal(csr.data, other.data):
            return csr
        if np.all(np.abs(csr.data - other.data) <= ROUNDING * csr.data):
            return csr.maximum(other)
    raise NotSymmetricError(
        "A graph must be symmetric, but some edges differ between their two directions. Pass "
        'symmetrize="union" to keep the larger weight or "mutual" the smaller.'
    )
