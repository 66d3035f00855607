"""X, y and a graph as people give them, to what a fit works on: points, a graph, and who learns from which labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.estimator.ensemble import Labels, stratified_folds
from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.predictor import Attaching
from sobgnn.estimator.scaling import Scales
from sobgnn.graphs.given import as_graph
from sobgnn.graphs.graph import Graph, Symmetrize
from sobgnn.graphs.knn import Bandwidth, graph_from_neighbors, mean_distance
from sobgnn.graphs.reweight import reweight
from sobgnn.neighbors import nearest
from sobgnn.runtime.ranks import Ranks

# Parts of the labels that are held out in turn. Members beyond that many learn from all labels.
FOLDS = 4


class Points(NamedTuple):
    """What networks read of X and what neighbours are found by; often the same.

    Attributes:
        features: X to what networks read.
        z: float32 [N, D], that.
        place: X to what neighbours are found by.
        places: float32 [N, D'], that.
    """

    features: FeatureMap
    z: npt.NDArray[np.float32]
    place: FeatureMap
    places: npt.NDArray[np.float32]

    def attached(self, attaching: Attaching, device: torch.device) -> Attaching:
        """How new points are joined, by the neighbours' own scaling where they have one."""
        if self.place is self.features:
            return attaching
        return replace(attaching, features=self.place, points=torch.from_numpy(self.places).to(device))


def scaled_points(X: Any, scales: Scales, n_components: int | None, seed: int) -> Points:
    """X [N, F], dense or sparse, in both scalings."""
    features = FeatureMap.fit(X, scale=scales.networks, n_components=n_components, seed=seed)
    z = features(X)
    if scales.neighbors == scales.networks:
        return Points(features, z, features, z)
    place = FeatureMap.fit(X, scale=scales.neighbors, n_components=n_components, seed=seed)
    return Points(features, z, place, place(X))


def given_graph(graph: Any, count: int, alpha: int) -> tuple[Graph, Attaching]:
    """A graph of so many points in any form that is understood; one of 0/1 weights gets others where α > 1."""
    built = as_graph(graph, count)
    if alpha > 1 and built.num_edges and bool((built.weight == 1).all()):
        built = reweight(built)  # powers of 0/1 weights would all be the same
    return built, Attaching(0)


def neighbor_graph(
    places: npt.NDArray[np.float32],
    k: int,
    metric: Literal["euclidean", "cosine"],
    method: Literal["auto", "exact", "hnsw"],
    bandwidth: Bandwidth,
    symmetrize: Symmetrize,
    ranks: Ranks,
) -> tuple[Graph, Attaching]:
    """The graph of each point's k nearest neighbours, or of all others where these are fewer."""
    k = min(k, len(places) - 1)
    device = ranks.device
    found = nearest(
        torch.from_numpy(places).to(device) if device.type == "cuda" else places, k,
        metric=metric, method=method, ranks=ranks,
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


def shared_labels(
    codes: npt.NDArray[np.int64],
    weight: npt.NDArray[np.float64],
    hold_out: bool,
    n_members: int,
    generator: np.random.Generator,
) -> Labels:
    """Who learns from which labels.

    Args:
        codes: int64 [N], -1 where unlabelled.
        weight: float64 [L], of the labelled points.
        hold_out: Whether labels are held out in turn.
        n_members: Members of a family; where they are fewer than the folds, some labels are never held out.
        generator: Draws folds and seeds.
    """
    index = np.flatnonzero(codes >= 0)
    given = codes[index]
    folds = min(FOLDS, int(np.bincount(given).max())) if hold_out else 1
    fold = stratified_folds(given, folds, generator) if folds > 1 else np.full(len(given), -1)
    fold[fold >= n_members] = -1
    seeds = [int(seed) for seed in generator.integers(2**31, size=n_members)]
    return Labels(index, given, weight, fold, seeds)
