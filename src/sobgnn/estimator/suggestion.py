"""Which points to label next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.spreading import strongest
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.knn import knn_graph

Strategy = Literal["auto", "typical", "uncertain", "random"]
# Added to every uncertainty: points that are predicted with confidence still count a little, so that errors can be
# found.
_LEAST = 0.1
# Labels per class from which a model's uncertainty is trusted. Measured in results/labeling.md.
_TRUSTED = 3
# Two-step walks with more entries than this use only each point's strongest edges, or are left out.
_MOST_WALKS = 2e7
_STRONGEST = 8


def suggest_points(
    graph: Graph,
    probabilities: npt.NDArray[np.floating] | None,
    labeled: npt.NDArray[np.int64] | Sequence[int],
    count: int,
    *,
    reached: npt.NDArray[np.bool_] | None = None,
    exclude: npt.NDArray[np.int64] | Sequence[int] = (),
    strategy: Strategy = "auto",
    seed: int = 0,
    walks: sp.csr_array | None = None,
) -> npt.NDArray[np.int64]:
    r"""Unlabeled points whose labels would help most, best first.

    Points are chosen one by one, each time the one with the largest gain

    .. math:: g_i = u_i \sum_j u_j \max(0, K_{ij} - c_j), \qquad K = I + \hat{A} + \hat{A}^2,
        \qquad c_j = \max_{l \text{ labeled or chosen}} K_{lj}

    where :math:`u` is one minus the gap between the two largest probabilities, and :math:`\hat{A}` the normalized
    adjacency. The sum is the uncertainty around i that no label covers yet, so a chosen point is itself uncertain, in a
    dense region, and away from labeled points. Without probabilities, or with fewer than 3 labels per class, u = 1: the
    first points are typical (in dense regions of the graph) and differ from each other. Measurements of the rule are in
    results/labeling.md. Of equal points, all but one come last.

    Args:
        graph: A graph of N nodes.
        probabilities: [N, C], or ``None`` if nothing was fitted yet.
        labeled: Points that have a label.
        count: Number of points; fewer if fewer are left.
        reached: bool [N], whether a point's component holds a label; others have u = 1. ``None``: all.
        exclude: Unlabeled points that must not be suggested.
        strategy: ``"auto"``; ``"typical"`` keeps u = 1; ``"uncertain"`` orders only by u; ``"random"``.
        seed: Seed of ``"random"``.
        walks: Result of :func:`two_step_walks` for the graph, to reuse it between calls.
    """
    if strategy not in get_args(Strategy):
        raise ValueError(f"`strategy` must be one of {get_args(Strategy)}, but got {strategy!r}.")
    labeled, exclude = (np.asarray(rows, dtype=np.int64) for rows in (labeled, exclude))
    free = np.ones(graph.num_nodes, dtype=bool)
    free[labeled] = False
    free[exclude] = False
    count = min(count, int(free.sum()))
    if strategy == "random":
        return np.random.default_rng(seed).permutation(np.flatnonzero(free))[:count]
    uncertainty = np.ones(graph.num_nodes)
    trusted = probabilities is not None and len(labeled) >= _TRUSTED * probabilities.shape[1]
    if probabilities is not None and (strategy == "uncertain" or (strategy == "auto" and trusted)):
        top = np.sort(probabilities, axis=1)[:, -2:].astype(np.float64)
        uncertainty = 1 - (top[:, -1] - top[:, 0] if top.shape[1] > 1 else np.zeros(len(top)))
        uncertainty = (uncertainty if reached is None else np.where(reached, uncertainty, 1.0)) + _LEAST
    copy = _copies(graph)
    new = free & ~np.isin(copy, copy[labeled])  # a copy of a labeled point adds nothing new
    if strategy == "uncertain":
        order = np.argsort(-uncertainty, kind="stable")
        order = order[free[order]]
        repeated = np.ones(len(order), dtype=bool)
        repeated[np.unique(copy[order], return_index=True)[1]] = False
        return order[np.argsort(repeated | ~new[order], kind="stable")][:count].astype(np.int64)
    walks = two_step_walks(graph) if walks is None else walks
    chosen = _cover(walks, uncertainty, labeled, new, count, copy)
    while len(chosen) < count:  # only copies are left
        free[chosen] = False
        more = _cover(walks, uncertainty, np.concatenate([labeled, chosen]), free.copy(), count - len(chosen), copy)
        chosen = np.concatenate([chosen, more])
    return chosen


def suggest_first(
    X: Any,
    count: int,
    *,
    k: int = 10,
    n_components: int | None = 256,
    metric: Literal["euclidean", "cosine"] = "euclidean",
    strategy: Strategy = "auto",
) -> npt.NDArray[np.int64]:
    """Rows of X [N, F], all unlabeled, whose labels would help most, on the k-NN graph of scaled X."""
    from sklearn.utils.validation import check_array

    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
    points = FeatureMap.fit(X, scale="range", n_components=n_components, seed=0)(X)
    return suggest_points(knn_graph(points, min(k, len(points) - 1), metric), None, [], count, strategy=strategy)


def _copies(graph: Graph) -> npt.NDArray[np.int64]:
    """A number for each point [N], the same for equal ones: edges of weight 1 connect them, if others weigh less."""
    adjacency = graph.to_scipy(copy=False)
    equal = adjacency.data == 1
    if not equal.any() or equal.all():
        return np.arange(graph.num_nodes)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(adjacency.indptr))[equal]
    pairs = (equal[equal], (rows, adjacency.indices[equal]))
    return np.asarray(connected_components(sp.csr_array(pairs, shape=adjacency.shape), directed=False)[1], np.int64)


def two_step_walks(graph: Graph) -> sp.csr_array:
    """I + Â + Â², symmetric, [N, N] sparse; without Â² if a few nodes have so many edges that it would be dense."""
    adjacency = sp.csr_array(graph.to_scipy(copy=False), dtype=np.float64)
    if _two_steps(adjacency) > _MOST_WALKS:
        adjacency = sp.csr_array(strongest(graph, _STRONGEST).to_scipy(copy=False), dtype=np.float64)
    degree = np.asarray(adjacency.sum(axis=1)).ravel()
    scale = sp.diags_array(1 / np.sqrt(np.where(degree > 0, degree, 1.0)))
    normalized = sp.csr_array(scale @ adjacency @ scale, dtype=np.float32)
    walks = sp.eye_array(graph.num_nodes, dtype=np.float32) + normalized
    if _two_steps(adjacency) <= _MOST_WALKS:
        walks = walks + normalized @ normalized
    walks = sp.csr_array(walks)
    walks.sort_indices()
    return walks


def _two_steps(adjacency: sp.csr_array) -> float:
    """Number of walks of two steps, at least the number of entries of Â²."""
    return float(np.square(np.diff(adjacency.indptr).astype(np.float64)).sum())


def _cover(
    walks: sp.csr_array,
    uncertainty: npt.NDArray[np.float64],
    labeled: npt.NDArray[np.int64],
    free: npt.NDArray[np.bool_],
    count: int,
    copy: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The greedy choice of :func:`suggest_points` among distinct points; it may return fewer than ``count``.

    Gains are updated around each chosen point.
    """
    indptr, indices, data = walks.indptr, walks.indices, walks.data
    nodes = len(uncertainty)
    covered = np.zeros(nodes)
    for node in labeled:
        near = slice(indptr[node], indptr[node + 1])
        covered[indices[near]] = np.maximum(covered[indices[near]], data[near])
    rows = np.repeat(np.arange(nodes), np.diff(indptr))
    gain = np.bincount(rows, uncertainty[indices] * np.maximum(0, data - covered[indices]), minlength=nodes)
    chosen: list[int] = []
    while len(chosen) < count and free.any():
        score = np.where(free, uncertainty * gain, -np.inf)
        best = int(score.argmax())
        chosen.append(best)
        near = slice(indptr[best], indptr[best + 1])
        better = data[near] > covered[indices[near]]
        changed, reach = indices[near][better], data[near][better]
        # K is symmetric: the rows of the changed nodes are the columns in which gains shrink.
        around = walks[changed]
        node = np.repeat(np.arange(len(changed)), np.diff(around.indptr))
        before, after = covered[changed][node], reach[node]
        lost = uncertainty[changed][node] * (np.maximum(0, around.data - before) - np.maximum(0, around.data - after))
        gain -= np.bincount(around.indices, lost, minlength=nodes)
        covered[changed] = reach
        free[copy == copy[best]] = False
    return np.array(chosen, dtype=np.int64)
