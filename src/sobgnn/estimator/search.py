"""The neighbor search: the graph of the training points' nearest neighbors, and edges from new points to them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import exactly
from sobgnn.estimator.settings import check_whole
from sobgnn.graphs.graph import Graph, Symmetrize
from sobgnn.graphs.knn import Bandwidth, gaussian_weights, graph_from_neighbors, mean_distance
from sobgnn.graphs.neighbors import nearest
from sobgnn.graphs.neighbors.held import HeldPoints

Metric = Literal["euclidean", "cosine"]
Method = Literal["auto", "exact", "cells"]
# Multiplications in a neighbor search from which more threads pay off.
_THREADED_PRODUCTS = 1e10


@dataclass(frozen=True)
class NeighborSearch:
    """How a new point finds its neighbors among the training points.

    Args:
        places: float32 [N, D], the training points as the search reads them.
        k: Number of neighbors of a new point.
        metric: Distance.
        method: How neighbors are found.
        recall: Share of true neighbors that an approximate search must find.
        bandwidth: σ of the training graph's kernel; ``None`` if it is local.
        reach: Distance of each training point to its k-th neighbor [N], for a local σ.
    """

    places: Tensor
    k: int
    metric: str = "euclidean"
    method: str = "auto"
    recall: float = 0.99
    bandwidth: float | None = None
    reach: npt.NDArray[np.float32] | None = None

    def edges(
        self, z: npt.NDArray[np.float32], *, approximate: bool = False
    ) -> tuple[sp.csr_array, npt.NDArray[np.float32]]:
        """Edges of new points z [M, D] to the nearest training points, CSR [M, N], and the nearest one's distance."""
        device = self.places.device
        queries = torch.from_numpy(z).to(device) if device.type == "cuda" else z
        indices, distances = self._held.nearest(queries, self.k, approximate=approximate)
        bandwidth: Any = self.bandwidth
        if self.reach is not None:
            bandwidth = (distances[:, -1].astype(np.float64), self.reach.astype(np.float64))
        weight = gaussian_weights(indices, distances, bandwidth)
        indptr = np.arange(0, weight.size + 1, self.k, dtype=np.int32)
        shape = (len(z), len(self.places))
        edges = sp.csr_array((weight.ravel(), indices.astype(np.int32).ravel(), indptr), shape=shape)
        return edges, distances[:, 0]

    def spacing(self, most: int = 5000) -> npt.NDArray[np.float32] | None:
        """Distances of up to ``most`` training points, evenly spread over the rows, to the nearest other one.

        ``None`` if there is no other point.
        """
        if len(self.places) < 2:
            return None
        rows = np.unique(np.linspace(0, len(self.places) - 1, most).astype(np.int64))
        chosen = self.places[torch.from_numpy(rows).to(self.places.device)]
        queries = chosen if chosen.is_cuda else chosen.numpy()
        indices, distances = self._held.nearest(queries, 2, approximate=self.many == 1)
        # Of equal points any may come first; the other one is then at distance 0.
        return np.where(indices[:, 0] == rows, distances[:, 1], distances[:, 0])

    @cached_property
    def _held(self) -> HeldPoints:
        return HeldPoints(self.places, self.metric, self.recall)  # type: ignore[arg-type]

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which cells are used; ``None``: the search is always exact."""
        return self._held.index_queries if self.method != "exact" else None

    def check(self, count: int) -> None:
        """Raise ValueError if the fields, which may be those of a file, contradict each other or ``count`` points."""
        check_whole("k", self.k, most=max(1, count - 1))
        known = self.metric in ("euclidean", "cosine") and self.method in ("auto", "exact", "cells")
        if self.reach is None:
            # It is 0 if every neighbor is a copy of its point.
            known = known and self.bandwidth is not None and 0 <= self.bandwidth < np.inf
        else:
            known = known and self.reach.shape == (count,) and bool((self.reach >= 0).all())
        if not known or not 0 < self.recall <= 1:
            raise ValueError("its settings for the neighbor search are invalid")


def neighbor_graph(
    places: npt.NDArray[np.float32],
    k: int,
    metric: Metric,
    method: Method,
    bandwidth: Bandwidth,
    symmetrize: Symmetrize,
    device: torch.device | str = "cpu",
    threads: int = 1,
) -> tuple[Graph, NeighborSearch]:
    """The graph of each point's k nearest neighbors, or of all others if there are fewer, and the search of new ones.

    Args:
        places: Points [N, D].
        k, metric, method, bandwidth, symmetrize: As in :class:`~sobgnn.SobolevClassifier`.
        device: Device to search on.
        threads: Number of threads that the search may use.
    """
    k = min(int(k), len(places) - 1)
    held = torch.from_numpy(places).to(device)
    # The neighbors do not depend on the number of threads.
    large = float(len(places)) * places.size >= _THREADED_PRODUCTS
    with exactly(threads) if large else contextlib.nullcontext():
        found = nearest(held if held.is_cuda else places, k, metric=metric, method=method)
    graph = graph_from_neighbors(found.indices, found.distances, bandwidth, symmetrize, neighbor_recall=found.recall)
    local = bandwidth == "local"
    sigma = mean_distance(found.distances) if bandwidth == "mean" else bandwidth
    return graph, NeighborSearch(
        held,
        k,
        metric,
        method,
        bandwidth=None if local else float(sigma),
        reach=found.distances[:, -1].copy() if local else None,
    )
