"""Points to a weighted graph: neighbors, Gaussian kernel, symmetrization."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.graphs.edges import SMALLEST_WEIGHT, symmetrize_csr
from sobgnn.graphs.graph import Graph, Symmetrize, as_numpy, graph_from_csr
from sobgnn.graphs.neighbors import nearest

Bandwidth = Literal["mean", "local"] | float


def knn_graph(
    X: Any,
    k: int = 30,
    metric: Literal["euclidean", "cosine"] = "euclidean",
    bandwidth: Bandwidth = "mean",
    symmetrize: Symmetrize = "union",
    method: Literal["auto", "exact", "cells"] = "auto",
    *,
    recall: float = 0.99,
    device: torch.device | str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Graph:
    r"""The weighted k-nearest-neighbor graph of points.

    .. math:: w_{ij} = \exp(-d_{ij}^2 / \sigma^2)

    for each j among the k nearest points of i, i itself left out.

    Args:
        X: Points [N, F]: array, tensor, DataFrame or scipy sparse matrix. Not changed.
        k: Neighbors of each point, 1 <= k < N.
        metric: Distance d; cosine distance is 1 - cos.
        bandwidth: σ. ``"mean"``: the mean distance to a retained neighbor, so that weights do not change with
            the units of X; ``"local"``: :math:`\sigma^2 = \sigma_i \sigma_j` with
            :math:`\sigma_i` the distance to i's k-th neighbor; or a number.
        symmetrize: ``"union"`` keeps an edge that either end chose, ``"mutual"`` one that both chose.
        method: ``"exact"``, ``"cells"`` (approximate, for many points) or ``"auto"``, by size.
        recall: Share of true neighbors that an approximate search has to find.
        device: Where to search and where the graph goes: X's own device by default.
        progress: Called with (points done, points in all).

    A zero bandwidth (all retained distances 0) gives weight 1 to every edge. Weights that would vanish are
    raised to the smallest normal float32, so that an outlier stays joined to its neighbors.

    Examples:
        >>> from sobgnn import knn_graph
        >>> graph = knn_graph([[0.0], [1.0], [3.0]], k=1, bandwidth=1.0)
        >>> graph.to_scipy().toarray().astype(float).round(3).tolist()  # exp(-1) and exp(-4)
        [[0.0, 0.368, 0.0], [0.368, 0.0, 0.018], [0.0, 0.018, 0.0]]
    """
    check_bandwidth(bandwidth)
    if symmetrize not in ("union", "mutual"):
        raise ValueError(f'`symmetrize` must be "union" or "mutual", but got {symmetrize!r}.')
    found = nearest(X, k, metric=metric, method=method, recall=recall, device=device, progress=progress)
    if device is None:
        device = X.device if isinstance(X, Tensor) else "cpu"
    return graph_from_neighbors(found.indices, found.distances, bandwidth, symmetrize, neighbor_recall=found.recall).to(
        device
    )


def graph_from_neighbors(
    indices: npt.ArrayLike | Tensor,
    distances: npt.ArrayLike | Tensor,
    bandwidth: Bandwidth = "mean",
    symmetrize: Symmetrize = "union",
    *,
    neighbor_recall: float | None = None,
) -> Graph:
    """The graph of :func:`knn_graph` from neighbors already found: ``indices`` and ``distances`` [N, k].

    Both may be arrays, memory maps, tensors or lists. Distances are in the metric's own units, ascending in each row.

    Examples:
        >>> import numpy as np
        >>> from sobgnn import graph_from_neighbors
        >>> graph_from_neighbors(np.array([[1], [0], [1]]), np.array([[1.0], [1.0], [2.0]])).num_edges
        4
    """
    check_bandwidth(bandwidth)
    indices, distances = as_numpy(indices, "indices"), as_numpy(distances, "distances")
    if indices.size and indices.dtype.kind not in "iu":
        raise TypeError(f"indices must hold integers, but got {indices.dtype}. Cast them to int64.")
    if distances.size and distances.dtype.kind not in "fiu":
        raise TypeError(f"distances must hold real numbers, but got {distances.dtype}. Cast them to float32.")
    if indices.ndim != 2 or indices.shape != distances.shape:
        raise ValueError(
            f"indices and distances must both have shape [N, k], but got {indices.shape} and {distances.shape}."
        )
    n, k = indices.shape
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        raise ValueError(f"Neighbor indices must lie in [0, {n}), but got {indices.min()} to {indices.max()}.")
    if np.any(indices == np.arange(n)[:, None]):
        raise ValueError("A point is listed among its own neighbors. Leave it out.")
    if distances.size and not (distances.min() >= 0 and distances.max() < math.inf):
        raise ValueError(
            f"distances must be finite and at least 0, but got {distances.min()} to {distances.max()}. Search again "
            "among finite points."
        )
    weight = gaussian_weights(indices, distances, bandwidth)
    indptr = np.arange(0, n * k + 1, k, dtype=np.int32 if n * k < 2**31 else np.int64)
    csr = sp.csr_array((weight.ravel(), indices.astype(indptr.dtype).ravel(), indptr), shape=(n, n))
    csr.sort_indices()
    if not csr.has_canonical_format:
        raise ValueError("A point lists a neighbor twice. Neighbors must be distinct.")
    return graph_from_csr(symmetrize_csr(csr, symmetrize), neighbor_recall)


def gaussian_weights(
    indices: npt.NDArray[Any],
    distances: npt.NDArray[Any],
    bandwidth: Bandwidth | tuple[npt.NDArray[Any], npt.NDArray[Any]],
) -> npt.NDArray[np.float32]:
    """exp(-d²/σ²) in float32 for distances [M, k], with ``bandwidth`` as in :func:`knn_graph`.

    A pair of arrays gives σ of the rows [M] and of the points [N] that ``indices`` point to, for local
    bandwidths of points outside the graph.
    """
    if isinstance(bandwidth, tuple):
        own, others = bandwidth
        scale = np.sqrt(own[:, None]) * np.sqrt(others[indices])
    elif bandwidth == "local":
        reach = distances[:, -1].astype(np.float64)
        scale = np.sqrt(reach[:, None]) * np.sqrt(reach[indices])
    else:
        scale = np.asarray(mean_distance(distances) if bandwidth == "mean" else bandwidth, dtype=np.float64)
    # d/σ before squaring: squares of very small or large distances would leave the range of floats.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = distances / scale
    ratio = np.where(distances == 0, 0.0, ratio)
    with np.errstate(over="ignore", under="ignore"):
        weight: npt.NDArray[np.float32] = np.exp(-np.square(ratio)).astype(np.float32)
    return weight.clip(SMALLEST_WEIGHT)


def mean_distance(distances: npt.NDArray[Any]) -> float:
    """The bandwidth ``"mean"``: the mean of all retained distances."""
    return float(distances.mean(dtype=np.float64)) if distances.size else 0.0


def check_bandwidth(bandwidth: object) -> None:
    """Raise unless ``bandwidth`` is "mean", "local" or a positive number."""
    if bandwidth in ("mean", "local"):
        return
    if isinstance(bandwidth, bool) or not isinstance(bandwidth, (int, float, np.floating, np.integer)):
        raise ValueError(f'`bandwidth` must be "mean", "local" or a positive number, but got {bandwidth!r}.')
    if not (math.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(f"`bandwidth` must be positive and finite, but got {bandwidth}.")
