"""The partition of nodes over ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.graphs.graph import Graph
from sobgnn.graphs.locality import locality_order


@dataclass(frozen=True)
class Partition:
    """N nodes in an order that keeps neighbors close, cut into one contiguous run per rank.

    Attributes:
        order: int64 [N]. Position p holds node ``order[p]``.
        bounds: int64 [ranks+1]. Rank r holds positions ``bounds[r]`` to ``bounds[r+1]``.
    """

    order: npt.NDArray[np.int64]
    bounds: npt.NDArray[np.int64]

    @classmethod
    def of(cls, graph: Graph, ranks: int, order: npt.NDArray[Any] | None = None) -> Partition:
        """Cut ``graph`` so that every rank has about the same number of edges, in ``order`` or by locality."""
        if not 1 <= ranks <= max(graph.num_nodes, 1):
            raise ValueError(f"`ranks` must be between 1 and the number of nodes {graph.num_nodes}, but got {ranks}.")
        order = locality_order(graph) if order is None else np.asarray(order, dtype=np.int64)
        # A node costs its edges and itself, so that isolated nodes are spread too.
        cost = np.cumsum(graph.degree.numpy()[order] + 1)
        targets = cost[-1] * np.arange(1, ranks) / ranks
        cuts = np.searchsorted(cost, targets)
        bounds = np.concatenate([[0], cuts, [len(order)]]).astype(np.int64, order="C")
        # Every rank gets at least one node, even if one hub has most of the edges.
        steps = np.arange(ranks + 1)
        bounds = np.maximum.accumulate(bounds - steps) + steps
        return cls(order, np.minimum(bounds, len(order) - steps[::-1]))

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        return len(self.bounds) - 1

    def nodes(self, rank: int) -> npt.NDArray[np.int64]:
        """The nodes of a rank, in its order."""
        return self.order[self.bounds[rank] : self.bounds[rank + 1]]
