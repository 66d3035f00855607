"""The nearest neighbors of points, and their weighted graph: Gaussian kernel, symmetrization."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import check_device
from sobgnn.graphs.edges import SMALLEST_WEIGHT, csr_tensors, symmetrize_csr
from sobgnn.graphs.graph import Graph, Symmetrize, as_numpy
from sobgnn.graphs.neighbors.cells import SIZE, Cells
from sobgnn.graphs.neighbors.exact import Progress, query_cost, search_exact
from sobgnn.graphs.neighbors.points import Dense, check_points, distances
from sobgnn.graphs.neighbors.sparse import Sparse

Bandwidth = Literal["mean", "local"] | float
Metric = Literal["euclidean", "cosine"]
Method = Literal["auto", "exact", "cells"]

# Up to this cost (of all queries, by query_cost) method="auto" searches exactly: some minutes on two cores, two seconds
# on an H200. MNIST's 70 000 × 784 costs 6.3e12; with 10 features, 200 000 points reach the limit of a CPU.
AUTO_EXACT_COST = {"cpu": 2e13, "cuda": 1e14}


def knn_graph(
    X: Any,
    k: int = 30,
    metric: Metric = "euclidean",
    bandwidth: Bandwidth = "mean",
    symmetrize: Symmetrize = "union",
    method: Method = "auto",
    *,
    recall: float = 0.99,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
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
    graph = neighbor_graph(found, bandwidth, symmetrize)
    return graph if torch.device(device).type == "cpu" else graph.to(device)


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
    n = len(indices)
    if indices.size and (indices.min() < 0 or indices.max() >= n):
        raise ValueError(f"Neighbor indices must lie in [0, {n}), but got {indices.min()} to {indices.max()}.")
    if np.any(indices == np.arange(n)[:, None]):
        raise ValueError("A point is listed among its own neighbors. Leave it out.")
    if distances.size and not (distances.min() >= 0 and distances.max() < math.inf):
        raise ValueError(
            f"distances must be finite and at least 0, but got {distances.min()} to {distances.max()}. Search again "
            "among finite points."
        )
    return neighbor_graph(Neighbors(indices, distances, neighbor_recall), bandwidth, symmetrize)


def neighbor_graph(found: Neighbors, bandwidth: Bandwidth = "mean", symmetrize: Symmetrize = "union") -> Graph:
    """The graph of the neighbors that :func:`nearest` found."""
    n, k = found.indices.shape
    weight = gaussian_weights(found.indices, found.distances, bandwidth)
    indptr = np.arange(0, n * k + 1, k, dtype=np.int32 if n * k < 2**31 else np.int64)
    csr = sp.csr_array((weight.ravel(), found.indices.astype(indptr.dtype).ravel(), indptr), shape=(n, n))
    csr.sort_indices()
    if not csr.has_canonical_format:
        raise ValueError("A point lists a neighbor twice. Neighbors must be distinct.")
    return Graph(*csr_tensors(symmetrize_csr(csr, symmetrize)), neighbor_recall=found.recall)


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


class Neighbors(NamedTuple):
    """The k nearest points of each row, nearest first; equal distances by smaller index.

    Cosine distances are computed from rows divided by their lengths, so of two that are equal only without rounding
    either may come first, and dense and sparse X may differ there.

    Attributes:
        indices: [M, k] int64, rows of X.
        distances: [M, k] float32, in the units of X (euclidean) or 1 - cos (cosine).
        recall: Share of the true neighbors found, measured on a sample; None for an exact search.
    """

    indices: npt.NDArray[np.int64]
    distances: npt.NDArray[np.float32]
    recall: float | None


def nearest(
    X: Any,
    k: int,
    *,
    metric: Metric = "euclidean",
    method: Method = "auto",
    recall: float = 0.99,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Neighbors:
    """The k nearest other rows of each row of X.

    "Other" is the row, not the place: a duplicate of a point is its neighbor, at distance 0. Exact neighbors
    are those of the float64 distances between the rows as given. X is only read; a memory map is read in
    blocks, and the working copy is float32. The number of threads changes nothing.

    Args:
        X: [N, F] numpy array or memory map, torch tensor, DataFrame or scipy sparse matrix; any real dtype.
        k: Neighbors per row, 1 <= k < N.
        metric: "euclidean", or "cosine" for 1 - cos. A row of zeros has cosine distance 0 to other rows of
            zeros and 1 to all other rows.
        method: "exact"; "cells" (dense X): exact search in the cells of a k-means clustering that are nearest to each
            row; "auto" is exact for sparse X and up to ``AUTO_EXACT_COST``, and uses cells past it.
        recall: What cells must reach on 1000 sampled rows: more of them are searched until they do, or all points.
            Distances and order are exact; only the choice of neighbors is approximate.
        device: Where to compute; default: where X is. Sparse X is searched on the CPU.
        progress: Called with (rows done, rows in all).
    """
    if metric not in get_args(Metric):
        raise ValueError(f"`metric` must be 'euclidean' or 'cosine', but got {metric!r}.")
    if method not in get_args(Method):
        raise ValueError(f"`method` must be 'auto', 'exact' or 'cells', but got {method!r}.")
    if not 0 < recall <= 1:
        raise ValueError(f"`recall` must be above 0 and at most 1, but got {recall!r}.")
    if device is not None:
        check_device(device)
    cosine = metric == "cosine"
    points, largest = check_points(X, cosine=cosine)
    n = points.shape[0]
    if isinstance(k, bool) or not isinstance(k, int | np.integer):
        raise TypeError(f"`k` must be an integer, but got {k!r}.")
    if k < 1:
        raise ValueError(f"`k` must be at least 1, but got k={k}.")
    if k >= n:
        way = f"Pass k={n - 1} or fewer." if n > 1 else "Give at least two points."
        raise ValueError(f"`k` must be smaller than the number of points, but got k={k} for {n} points. {way}")
    if sp.issparse(points) and method == "cells":
        raise ValueError(
            "`method='cells'` needs dense X, but got a sparse matrix. Reduce it first (TruncatedSVD), or use "
            "method='exact'."
        )
    reached = None
    if sp.issparse(points):
        base: Any = Sparse(points, largest, cosine=cosine)
    else:
        base = Dense(points, largest, cosine=cosine, device=None if device is None else torch.device(device))
        costly = query_cost(*points.shape) * n > AUTO_EXACT_COST.get(base.device.type, np.inf)
        if method == "cells" or (method == "auto" and costly):
            cells = Cells(base, size=max(SIZE, 2 * k))
            near, reached = cells.enough(k, recall)
            if near < cells.count:
                found, squared = cells.search(base, np.arange(n), k, near, progress)
                return Neighbors(found, distances(squared, base), reached)
    found, squared = search_exact(base, base, k, None, progress)
    return Neighbors(found, distances(squared, base), reached)
