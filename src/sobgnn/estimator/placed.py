"""From raw X to what families read: maps, graphs, neighbors, for the training points and for new ones beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import set_threads
from sobgnn.estimator.features import FARTHEST, FeatureMap
from sobgnn.estimator.points import GIVEN, NEIGHBORS, NewPoints, PointGraph, Points
from sobgnn.estimator.scaling import Scales, decide_scales
from sobgnn.estimator.state import NOT_SAVED, shaped
from sobgnn.estimator.validation import Networks, check_whole
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.knn import gaussian_weights, mean_distance, nearest, neighbor_graph
from sobgnn.graphs.neighbors.index import NeighborIndex
from sobgnn.graphs.reweight import normalized_edges, reweight
from sobgnn.operators.new_points import attach

# Number of entries of X from which a GPU pays off, if ``device="auto"``.
_GPU_ENTRIES = 2_000_000
# Scales are decided again when there are this many times as many labels as at the last decision.
_MANY_MORE = 2
# Number of columns up to which trees and kernels read the original columns; for more, they read the networks' input.
_TREE_COLUMNS = 1024
# Multiplications in a neighbor search from which more threads pay off.
_THREADED_PRODUCTS = 1e10


@dataclass(frozen=True)
class NeighborSearch:
    """How a new point finds its neighbors among the training points.

    Args:
        places: The training points as the search reads them, float32 [N, D].
        bandwidth: σ of the training graph's kernel; ``None`` if it is local.
        reach: Distance of each training point to its k-th neighbor [N], for a local σ.
    """

    places: Tensor = field(metadata=shaped("points", "searched", most=FARTHEST))
    k: int
    metric: str = "euclidean"
    method: str = "auto"
    bandwidth: float | None = None
    reach: npt.NDArray[np.float32] | None = field(default=None, metadata=shaped("points", least=0, most=np.inf))

    @classmethod
    def of(
        cls, places: npt.NDArray[np.float32], settings: Mapping[str, Any], device: torch.device, threads: int = 1
    ) -> tuple[Graph, NeighborSearch]:
        """The graph of the k nearest neighbors of points [N, D], or of all others if they are fewer, and the search."""
        k, metric, bandwidth = min(int(settings["k"]), len(places) - 1), settings["metric"], settings["bandwidth"]
        held = torch.from_numpy(places).to(device)
        # The neighbors do not depend on the number of threads.
        large = float(len(places)) * places.size >= _THREADED_PRODUCTS
        with set_threads(threads) if large else contextlib.nullcontext():
            found = nearest(held if held.is_cuda else places, k, metric=metric, method=settings["method"])
        graph = neighbor_graph(found, bandwidth, settings["symmetrize"])
        sigma = mean_distance(found.distances) if bandwidth == "mean" else bandwidth
        search = cls(held, k, metric, settings["method"])
        if bandwidth == "local":
            return graph, replace(search, reach=found.distances[:, -1].copy())
        return graph, replace(search, bandwidth=float(sigma))

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
    def _held(self) -> NeighborIndex:
        return NeighborIndex(self.places, self.metric)  # type: ignore[arg-type]

    @property
    def many(self) -> int | None:
        """Minimum number of new points at once for which cells are used; ``None``: the search is always exact."""
        return self._held.index_queries if self.method != "exact" else None

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Raise ValueError if the settings are invalid."""
        check_whole("k", self.k, most=max(1, sizes["points"] - 1))
        known = self.metric in ("euclidean", "cosine") and self.method in ("auto", "exact", "cells")
        if self.reach is None:
            # It is 0 if every neighbor is a copy of its point.
            known = known and self.bandwidth is not None and 0 <= self.bandwidth < np.inf
        if not known:
            raise ValueError("its settings for the neighbor search are invalid")


@dataclass(frozen=True)
class Maps:
    """Maps from raw X [N, F] to what families read.

    Attributes:
        networks: To the networks' input.
        neighbors: To what the neighbor search reads; ``None``: the networks' input.
        trees: To what trees and kernels read, each column separately; ``None``: the networks' input.
    """

    networks: FeatureMap
    neighbors: FeatureMap | None
    trees: FeatureMap | None

    @classmethod
    def fit(cls, X: Any, scales: Scales, n_components: int | None, seed: int) -> Maps:
        """Fit the maps to X, dense or sparse, with the given scalings."""
        networks = FeatureMap.fit(X, scale=scales.networks, n_components=n_components, seed=seed)
        neighbors, trees = None, None
        if scales.neighbors != scales.networks:
            neighbors = FeatureMap.fit(X, scale=scales.neighbors, n_components=n_components, seed=seed)
        wide = sp.issparse(X) and n_components is not None and X.shape[1] > n_components
        if not wide and X.shape[1] <= _TREE_COLUMNS:
            # Scale does not matter to trees, but it does to single precision.
            trees = FeatureMap.fit(X, scale="range", n_components=None, seed=seed)
        return cls(networks, neighbors, trees)

    def __call__(self, X: Any) -> tuple[npt.NDArray[np.float32], ...]:
        """What networks, the neighbor search, and trees and kernels read of X."""
        z = self.networks(X)
        return z, z if self.neighbors is None else self.neighbors(X), z if self.trees is None else self.trees(X)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of columns of each of these."""
        return tuple((part or self.networks).num_outputs for part in (self.networks, self.neighbors, self.trees))


@dataclass(frozen=True)
class Placed:
    """Points and what was computed from them; only the choice of scales depends on the labels.

    Attributes:
        labels: Number of labels when the scales were decided.
    """

    scales: Scales
    maps: Maps
    points: Points
    search: NeighborSearch
    labels: int = field(default=0, metadata=NOT_SAVED)

    def beside(
        self, X: Any, edges: sp.csr_array | None, approximate: bool
    ) -> tuple[NewPoints, npt.NDArray[np.float32]]:
        """New points X [M, F] as families read them, and their distances to the nearest training point [M].

        ``edges``, CSR [M, N], are those to the training points in the given graph; if ``approximate``, neighbors are
        found by cells.
        """
        points = self.points
        z, places, columns = self.maps(X)
        near, distance = self.search.edges(places, approximate=approximate)
        joined = {NEIGHBORS: attach(points.graphs[NEIGHBORS].operators, near)}
        if GIVEN in points.graphs:
            own = sp.csr_array((len(z), points.count), dtype=np.float32) if edges is None else edges
            given = points.graphs[GIVEN]
            own = normalized_edges(own, given.graph.degree) if given.reweighted else own
            joined[GIVEN] = attach(given.operators, own)
        return NewPoints(torch.from_numpy(z).to(points.device), columns, joined, points, X), distance

    @property
    def sizes(self) -> dict[str, int]:
        """The sizes that shapes of saved arrays name."""
        width, searched, columns = self.maps.widths
        return {
            "points": self.points.count, "classes": self.points.classes, "features": self.maps.networks.num_features,
            "width": width, "searched": searched, "columns": columns,
        }  # fmt: skip

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Raise ValueError if points or neighbors are missing, or are other numbers."""
        if not points.count or points.points.dtype != torch.float32 or self.search.places.dtype != torch.float32:
            raise ValueError("its points have another type, or there are none")
        if NEIGHBORS not in points.graphs or not set(points.graphs) <= {NEIGHBORS, GIVEN} or points.classes < 2:
            raise ValueError("its neighbors are missing")


def make_points(
    settings: Mapping[str, Any],
    X: Any,
    codes: npt.NDArray[np.int64],
    graph: Graph | None,
    generator: np.random.Generator,
    report: Callable[..., bool],
    threads: int,
    known: Placed | None = None,
) -> Placed:
    """Compute points, columns and graphs from X [N, F].

    Args:
        settings: The estimator's parameters by name.
        X: Raw points, dense or sparse.
        codes: [N], classes as numbers from 0; -1: unlabeled.
        graph: A graph of the points, if one is given.
        generator: Random numbers for scales, projections and the families' seed.
        report: Called when neighbors are found; families report their steps to it.
        threads: Number of threads that the neighbor search may use.
        known: The result for the same X and graph with other labels. It is reused unless the labels decide on other
            scales, which is checked when their number has doubled since the last check.
    """
    alpha, epsilon, n_components = settings["alpha"], settings["epsilon"], settings["n_components"]
    count, classes = int((codes >= 0).sum()), int(codes.max()) + 1
    if known is not None and count < _MANY_MORE * known.labels:
        return replace(known, points=replace(known.points, classes=classes, report=report))
    scales = decide_scales(settings["scale"], X, codes, settings["k"], n_components, generator)
    if known is not None and scales == known.scales:
        return replace(known, labels=count, points=replace(known.points, classes=classes, report=report))
    device, graphs = _device(settings["device"], X), {}
    if graph is not None:
        # Weights that are all 1 would have equal powers: they become those of the normalized adjacency.
        plain = alpha > 1 and graph.num_edges > 0 and bool((graph.weight == 1).all())
        graphs[GIVEN] = PointGraph((reweight(graph) if plain else graph).to(device), alpha, epsilon, reweighted=plain)
    maps = Maps.fit(X, scales, n_components, int(generator.integers(2**31)))
    z, places, columns = maps(X)
    near, search = NeighborSearch.of(places, settings, device, threads)
    graphs[NEIGHBORS] = PointGraph(near.to(device), alpha, epsilon, (settings["k"] + 1) // 2)
    report("neighbors", 1, 1)
    families = settings["families"]
    foreign = not isinstance(families, str) and any(isinstance(entry, tuple) for entry in families)
    points = Points(
        points=search.places if places is z else torch.from_numpy(z).to(device),
        graphs=graphs,
        classes=classes,
        networks=Networks.of(settings),
        columns=columns,
        rows=X if graph is not None or foreign else None,
        seed=int(generator.integers(2**31)),
        report=report,
    )
    return Placed(scales, maps, points, search, count)


def _device(device: str | torch.device | None, X: Any) -> torch.device:
    """The device to compute on: the one given, or, for "auto", a GPU if there is one and X is large enough."""
    if device is None or device == "auto":
        large = X.shape[0] * min(X.shape[1], 256) >= _GPU_ENTRIES
        return torch.device("cuda" if device == "auto" and large and torch.cuda.is_available() else "cpu")
    return torch.device(device)
