"""Rows of a sparse matrix for the neighbor search, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.neighbors.points import first_of_equal, power_of_two


class Sparse:
    """Rows of a CSR matrix in float64, scaled or of unit length as :class:`Dense` ones are, and not centered."""

    device = torch.device("cpu")

    def __init__(self, X: Any, largest: float, *, cosine: bool) -> None:
        matrix = sp.csr_array(X, dtype=np.float64, copy=True)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        self.cosine, self.scale = cosine, 1.0 if cosine else power_of_two(largest)
        matrix.data *= self.scale
        if cosine:
            matrix = _unit_rows(matrix)
        self.matrix = matrix
        self.transposed = matrix.T.tocsr()
        self.n = matrix.shape[0]
        self.terms = max(1, int(np.diff(matrix.indptr).max()))
        self.sq = np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
        self.reach = float(np.sqrt(self.sq.max()))

    def products(self, query: Sparse, at: Tensor) -> tuple[Tensor, Tensor]:
        """|x|² + |y|² - 2 x·y, query rows x ``at`` against all rows y [b, n], and |x|² [b]."""
        out = torch.from_numpy((query.matrix[at.numpy()] @ self.transposed).toarray())
        own = torch.from_numpy(query.sq[at.numpy()])
        return out.mul_(-2).add_(torch.from_numpy(self.sq)).add_(own.unsqueeze(1)), own

    def first_copies(self, many: int) -> Tensor:
        """Which rows are among the first ``many`` of all rows equal to them: [n] bool."""
        data, indices = self.matrix.data, self.matrix.indices
        spans = (slice(*span) for span in itertools.pairwise(self.matrix.indptr))
        return first_of_equal((indices[span].tobytes() + data[span].tobytes() for span in spans), many)

    def squared(self, query: Sparse, at: Tensor, to: Tensor) -> Tensor:
        """|x - y|² from differences, query rows ``at`` [b] against rows ``to`` [b, c]: [b, c]."""
        step = max(1, 2**16 // to.shape[1])
        parts = []
        for x, y in zip(torch.split(at, step), torch.split(to, step), strict=True):
            gap = query.matrix[x.repeat_interleave(y.shape[1]).numpy()] - self.matrix[y.flatten().numpy()]
            parts.append(torch.from_numpy(np.asarray(gap.multiply(gap).sum(axis=1))).view(y.shape))
        return torch.cat(parts)


def _unit_rows(matrix: Any) -> Any:
    """Rows of length 1, and one more column, 1 for rows of zeros."""
    lengths = np.diff(matrix.indptr)
    top = abs(matrix).max(axis=1).toarray().ravel()  # first: squares of tiny rows vanish
    empty = top == 0
    matrix.data /= np.repeat(np.where(empty, 1.0, top), lengths)
    norm = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.where(empty, 1.0, norm), lengths)
    return sp.csr_array(sp.hstack([matrix, sp.csr_array(empty[:, None].astype(np.float64))]))
