"""Training points kept for later searches, exact or by cells: the neighbors of new points."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sobgnn.graphs.neighbors.cells import Cells
from sobgnn.graphs.neighbors.exact import query_cost, search_exact
from sobgnn.graphs.neighbors.points import Dense, distances, peak

# Minimum cost of an exact query for which cells are several times faster, and minimum number of queries at once for
# which this makes up for clustering the points. Very many points are clustered for any query, so that later calls need
# not wait.
INDEX_COST, INDEX_QUERIES = 16_000_000, 30_000
MANY_COST = 80_000_000
# New points are harder to find than sampled points, on which the number of cells is set.
_MORE_CELLS = 2
# Queries larger than the points by more than this are searched in a scale of their own.
_LARGER = 2.0**20


class NeighborIndex:
    """Points prepared once, and clustered once where that pays.

    The result of a search depends only on the points and the queries, not on earlier searches.

    Args:
        points: [N, F], finite; searched on their device. They are not copied and must not change.
        metric: As for :func:`sobgnn.graphs.knn.nearest`.
        recall: Recall that cells must reach on sampled points.
    """

    def __init__(
        self, points: Tensor, metric: Literal["euclidean", "cosine"] = "euclidean", recall: float = 0.99
    ) -> None:
        self.points, self.cosine, self.recall = points, metric == "cosine", recall
        self._near: dict[int, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What is made from the points is made again where it is needed, and is the same then.
        return {"points": self.points, "cosine": self.cosine, "recall": self.recall, "_near": {}}

    @property
    def index_queries(self) -> int | None:
        """Minimum number of queries at once for which cells are used; ``None``: the search is always exact."""
        cost = query_cost(*self.points.shape)
        if self.points.device.type != "cpu" or cost < INDEX_COST:
            return None
        return 1 if cost >= MANY_COST else INDEX_QUERIES

    def nearest(
        self, queries: npt.NDArray[np.float32] | Tensor, k: int, *, approximate: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Indices and distances [M, k] of the k nearest points of finite queries [M, F], nearest first.

        Args:
            queries: On the points' device.
            k: At most N.
            approximate: Search cells, whose number is set on sampled points; distances and order are still exact.
        """
        if not len(queries):
            return np.empty((0, k), np.int64), np.empty((0, k), np.float32)
        base, largest = self._base, 0.0 if self.cosine else peak(queries)
        if largest * base.scale > _LARGER:
            base, approximate = Dense(self.points, largest, device=base.device), False
        query = base.beside(queries)
        if not approximate:
            found, squared = search_exact(base, query, k)
        else:
            if k not in self._near:
                self._near[k] = self._cells.enough(min(k, base.n - 1), self.recall)[0]
            found, squared = self._cells.search(query, np.arange(query.n), k, _MORE_CELLS * self._near[k])
        return found, distances(squared, base)

    @cached_property
    def _base(self) -> Dense:
        return Dense(self.points, 1.0 if self.cosine else peak(self.points), cosine=self.cosine)

    @cached_property
    def _cells(self) -> Cells:
        return Cells(self._base)
