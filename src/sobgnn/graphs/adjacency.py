"""Adjacency matrices of scipy: canonical, and the same weight in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np

from sobgnn.graphs.edges import DIFFERENT, ROUNDING, check_how


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
    return csr


def symmetrize_csr(csr: Any, how: str | None) -> Any:
    """The union (entrywise maximum) or mutual (minimum) of a non-negative CSR matrix and its transpose.

    ``None``: the matrix itself, which must be symmetric; of two weights that only rounding tells apart the larger.
    """
    check_how(how)
    other = csr.T.tocsr()
    if how == "union":
        return csr.maximum(other)
    if how == "mutual":
        # Absent entries count as 0, so the minimum keeps exactly the edges present in both directions.
        both = csr.minimum(other)
        both.eliminate_zeros()
        return both
    if np.array_equal(csr.indptr, other.indptr) and np.array_equal(csr.indices, other.indices):
        if np.array_equal(csr.data, other.data):
            return csr
        if np.all(np.abs(csr.data - other.data) <= ROUNDING * csr.data):
            return csr.maximum(other)
    raise ValueError(f'{DIFFERENT} Pass symmetrize="union" to keep the larger weight or "mutual" the smaller.')
