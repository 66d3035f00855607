"""From X and a given graph to what families learn on: points, columns and views."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.problem import GIVEN, NEIGHBORS, Problem, View
from sobgnn.estimator.scaling import Scales, decide_scales
from sobgnn.estimator.settings import Networks
from sobgnn.graphs.graph import Graph, Symmetrize
from sobgnn.graphs.knn import Bandwidth, graph_from_neighbors, mean_distance
from sobgnn.graphs.reweight import reweight
from sobgnn.neighbors import nearest
from sobgnn.operators import SobolevOperators
from sobgnn.runtime.process import exactly

# Number of entries of X from which a GPU pays off, if ``device="auto"``.
_GPU_ENTRIES = 2_000_000
# Multiplications in a neighbor search from which more threads pay off.
_THREADED_PRODUCTS = 1e10
# Scales are decided again when there are this many times as many labels as at the last decision.
_MANY_MORE = 2
# Number of columns up to which trees and kernels read the original columns; for more, they read the networks' input.
_TREE_COLUMNS = 1024


@dataclass(frozen=True)
class Maps:
    """Maps from raw X [N, F] to what families read.

    Attributes:
        networks: To the networks' input.
        neighbors: To what the neighbor search reads; often the same.
        trees: To what trees and kernels read, each column separately; ``None``: the networks' input.
    """

    networks: FeatureMap
    neighbors: FeatureMap
    trees: FeatureMap | None

    @classmethod
    def fit(cls, X: Any, scales: Scales, n_components: int | None, seed: int) -> Maps:
        """Fit the maps to X, dense or sparse, with the given scalings."""
        networks = FeatureMap.fit(X, scale=scales.networks, n_components=n_components, seed=seed)
        neighbors = networks
        if scales.neighbors != scales.networks:
            neighbors = FeatureMap.fit(X, scale=scales.neighbors, n_components=n_components, seed=seed)
        trees = None
        wide = sp.issparse(X) and n_components is not None and X.shape[1] > n_components
        if not wide and X.shape[1] <= _TREE_COLUMNS:
            # Scale does not matter to trees, but it does to single precision.
            trees = FeatureMap.fit(X, scale="range", n_components=None, seed=seed)
        return cls(networks, neighbors, trees)

    def columns(self, X: Any, points: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """What trees and kernels read of X; ``points`` are the networks' input."""
        return points if self.trees is None else self.trees(X)


@dataclass(frozen=True)
class Attaching:
    """How a new point finds its neighbors among the training points.

    Args:
        k: Number of neighbors of a new point.
        metric: Distance.
        method: Neighbor search.
        recall: Share of true neighbors that an approximate search must find.
        bandwidth: σ of the training graph's kernel; ``None`` if it is local.
        reach: Distance of each training point to its k-th neighbor [N], for a local σ.
    """

    k: int
    metric: Any = "euclidean"
    method: Any = "auto"
    recall: float = 0.99
    bandwidth: float | None = None
    reach: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Placed:
    """Points and what was computed from them; only the choice of scales depends on the labels.

    Attributes:
        labels: Number of labels when the scales were decided.
        scales: How X is scaled.
        maps: Maps from raw features to what families read.
        places: float32 [N, D'], the points as the neighbor search reads them.
        attaching: How new points find neighbors.
        problem: What families learn from.
    """

    labels: int
    scales: Scales
    maps: Maps
    places: npt.NDArray[np.float32]
    attaching: Attaching
    problem: Problem


def place(
    settings: Mapping[str, Any],
    X: Any,
    codes: npt.NDArray[np.int64],
    graph: Graph | None,
    generator: np.random.Generator,
    tell: Callable[..., bool],
    device: torch.device,
    threads: int,
    known: Placed | None = None,
) -> Placed:
    """Compute points, columns and graphs from X [N, F].

    Args:
        settings: The estimator's parameters by name.
        X: Raw points, dense or sparse.
        codes: int64 [N], classes as numbers from 0; -1: unlabeled.
        graph: A graph of the points, or ``None``.
        generator: Random numbers for scales, projections and the families' seed.
        tell: Called when neighbors are found; families report their steps to it.
        device: Device of the families.
        threads: Number of threads that the neighbor search may use.
        known: The result for the same X and graph with other labels. It is reused unless the labels decide on other
            scales, which is checked when their number has doubled since the last check.
    """
    k, alpha, epsilon = settings["k"], settings["alpha"], settings["epsilon"]
    count = int((codes >= 0).sum())

    def problem_of(before: Placed) -> Problem:
        return replace(before.problem, classes=int(codes.max()) + 1, tell=tell)

    if known is not None and count < _MANY_MORE * known.labels:
        return replace(known, problem=problem_of(known))
    views: dict[str, View] = {}
    if graph is not None:
        given, reweighted = given_graph(graph, alpha)
        views[GIVEN] = view_of(given, alpha, epsilon, device, reweighted=reweighted)
    scales = decide_scales(settings["scale"], X, codes, k, settings["n_components"], generator)
    if known is not None and scales == known.scales:
        return replace(known, labels=count, problem=problem_of(known))
    maps = Maps.fit(X, scales, settings["n_components"], int(generator.integers(2**31)))
    points = maps.networks(X)
    places = points if maps.neighbors is maps.networks else maps.neighbors(X)
    near, attaching = neighbor_graph(
        places,
        k,
        settings["metric"],
        settings["method"],
        settings["bandwidth"],
        settings["symmetrize"],
        device,
        threads,
    )
    views[NEIGHBORS] = view_of(near, alpha, epsilon, device, (k + 1) // 2)
    tell("neighbors", 1, 1)
    problem = Problem(
        points=as_tensor(points, device),
        columns=maps.columns(X, points),
        views=views,
        classes=int(codes.max()) + 1,
        networks=Networks.of(settings),
        rows=X if graph is not None else None,
        seed=int(generator.integers(2**31)),
        tell=tell,
    )
    return Placed(count, scales, maps, places, attaching, problem)


def device_for(device: str | torch.device | None, X: Any) -> str | torch.device:
    """The device to compute on: the one given, or, for "auto", a GPU if there is one and X is large enough."""
    if device is None:
        return "cpu"
    if device != "auto":
        return device
    large = X.shape[0] * min(X.shape[1], 256) >= _GPU_ENTRIES
    return "cuda" if large and torch.cuda.is_available() else "cpu"


def given_graph(graph: Graph, alpha: int) -> tuple[Graph, bool]:
    """The given graph, and whether it was reweighted.

    If α > 1, weights that are all 1 become those of the normalized adjacency: otherwise all powers would be equal.
    """
    if alpha > 1 and graph.num_edges and bool((graph.weight == 1).all()):
        return reweight(graph), True
    return graph, False


def neighbor_graph(
    places: npt.NDArray[np.float32],
    k: int,
    metric: Literal["euclidean", "cosine"],
    method: Literal["auto", "exact", "cells"],
    bandwidth: Bandwidth,
    symmetrize: Symmetrize,
    device: torch.device,
    threads: int = 1,
) -> tuple[Graph, Attaching]:
    """The graph of each point's k nearest neighbors, or of all others if there are fewer."""
    k = min(int(k), len(places) - 1)
    # The neighbors do not depend on the number of threads.
    large = float(len(places)) * places.size >= _THREADED_PRODUCTS
    with exactly(threads) if large else contextlib.nullcontext():
        found = nearest(
            torch.from_numpy(places).to(device) if device.type == "cuda" else places, k,
            metric=metric, method=method,
        )  # fmt: skip
    graph = graph_from_neighbors(found.indices, found.distances, bandwidth, symmetrize, neighbor_recall=found.recall)
    local = bandwidth == "local"
    sigma = mean_distance(found.distances) if bandwidth == "mean" else bandwidth
    return graph, Attaching(
        k,
        metric,
        method,
        bandwidth=None if local else float(sigma),
        reach=found.distances[:, -1].copy() if local else None,
    )


def view_of(
    graph: Graph,
    alpha: int,
    epsilon: float,
    device: torch.device,
    strongest: int | None = None,
    *,
    reweighted: bool = False,
) -> View:
    """A graph as families use it; labels diffuse over each point's ``strongest`` edges, or over all of them."""
    with warnings.catch_warnings():
        # Points with few distinct positions, such as integers in one column, have edges of equal weight: no user can
        # change that.
        warnings.filterwarnings("ignore", message="All edge weights are 1")
        operators = SobolevOperators(graph.to(device), alpha, epsilon)
    return View(graph, operators, strongest, reweighted)


def as_tensor(array: npt.NDArray[np.float32], device: torch.device) -> Tensor:
    """An array on the families' device."""
    return torch.from_numpy(array).to(device)
