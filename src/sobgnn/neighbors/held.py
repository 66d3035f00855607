"""Training points kept for later searches, exact or by an index: the neighbors of new points."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sobgnn.neighbors.exact import query_cost, search_exact
from sobgnn.neighbors.hnsw import ask, build, raise_effort
from sobgnn.neighbors.index import Index
from sobgnn.neighbors.points import check_k
from sobgnn.neighbors.spaces import Dense, beside, dense_spaces, distances, peak
from sobgnn.runtime.packages import installed

# Minimum cost of an exact query for which an index is several times faster, and minimum number of queries at once for
# which this makes up for building it. With very many points it is built for fewer, so that later calls need not wait.
INDEX_COST, INDEX_QUERIES = 16_000_000, 30_000
MANY_COST, FEWER_QUERIES = 80_000_000, 5_000
# The effort is set on sampled points, but new ones are harder to find a way to: of noisy copies of mnist's digits 0.7 %
# lose most of their neighbors at an effort of 16, and 0.1 % at this one.
_LEAST_EFFORT = 64
# Queries larger than the points by more than this are searched in a scale of their own.
_LARGER = 2.0**20


class HeldPoints:
    """Points prepared once, and indexed once where that pays.

    The result of a search depends only on the points and the queries, not on earlier searches.

    Args:
        points: [N, F], finite; searched on their device. They are not copied and must not change.
        metric: As for :func:`sobgnn.neighbors.nearest`.
        recall: Recall that an index must reach on sampled points.
        index: Index of these points from an earlier search; it is used for all approximate searches.
    """

    def __init__(
        self,
        points: Tensor,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        recall: float = 0.95,
        index: Index | None = None,
    ) -> None:
        self.points, self.cosine, self.recall = points, metric == "cosine", recall
        self._indexes: dict[int, Any] = {}
        self.index = index if points.device.type == "cpu" and installed("faiss") else None

    def __getstate__(self) -> dict[str, Any]:
        # An index is built again from the points where it is needed, and is the same then.
        kept = {"points": self.points, "cosine": self.cosine, "recall": self.recall, "index": self.index}
        return {**kept, "_indexes": {}}

    @property
    def can_index(self) -> bool:
        """Whether an index serves many queries better: many points, on a CPU, with faiss there."""
        large = query_cost(*self.points.shape) >= INDEX_COST and self.points.device.type == "cpu"
        return large and installed("faiss")

    @property
    def index_queries(self) -> int | None:
        """Minimum number of queries at once for which an index is used; ``None``: the search is always exact."""
        if self.index is not None:
            return 1
        if not self.can_index:
            return None
        return FEWER_QUERIES if query_cost(*self.points.shape) >= MANY_COST else INDEX_QUERIES

    def nearest(
        self, queries: npt.NDArray[np.float32] | Tensor, k: int, *, approximate: bool = False
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Indices and distances [M, k] of the k nearest points of finite queries [M, F], nearest first.

        Args:
            queries: On the points' device.
            k: At most N.
            approximate: Use an HNSW index, whose effort is set on sampled points; distances and order are still exact.
        """
        check_k(k, len(self.points), without_itself=False)
        if not len(queries):
            return np.empty((0, k), np.int64), np.empty((0, k), np.float32)
        base = self._base
        if not self.cosine and peak(queries) * base.scale > _LARGER:
            base, query = dense_spaces(self._rows, queries, cosine=False, device=base.device)
            found, squared = search_exact(base, query, k)
            return found, distances(squared, base)
        query = beside(base, queries)
        if not approximate:
            found, squared = search_exact(base, query, k)
        else:
            found, squared = ask(self._index(base, k), base, query, k, np.arange(query.n))
        return found, distances(squared, base)

    def _index(self, base: Dense, k: int) -> Any:
        """The index for searches of k neighbors, built and measured at the first of them unless one was given."""
        if self.index is not None:
            made = self.index.of(base)
            made.hnsw.efSearch = max(made.hnsw.efSearch, _LEAST_EFFORT, k + 1)
            return made
        if k not in self._indexes:
            self._indexes = {k: build(base, k)}
            most = min(k, base.n - 1)
            raise_effort(self._indexes[k], base, base, most, self.recall, 0, least=_LEAST_EFFORT)
        return self._indexes[k]

    @property
    def _rows(self) -> Any:
        return self.points.numpy() if self.points.device.type == "cpu" else self.points

    @cached_property
    def _base(self) -> Dense:
        return dense_spaces(self._rows, None, cosine=self.cosine, device=self.points.device)[0]
