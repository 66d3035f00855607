"""The k nearest neighbors of points: exact in blocks on CPU and CUDA, or approximate by cells."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn._system.process import check_device
from sobgnn.graphs.neighbors.cells import search_cells
from sobgnn.graphs.neighbors.distances import dense_spaces, distances, sparse_spaces
from sobgnn.graphs.neighbors.exact import Progress, query_cost, search_exact
from sobgnn.graphs.neighbors.points import check_k, check_pair, check_points

__all__ = ["AUTO_EXACT_COST", "Neighbors", "check_points", "nearest"]

Metric = Literal["euclidean", "cosine"]
Method = Literal["auto", "exact", "cells"]

# Up to this cost (of all queries, by query_cost) method="auto" searches exactly: some minutes on two cores, two seconds
# on an H200. MNIST's 70 000 × 784 costs 6.3e12; with 10 features, 200 000 points reach the limit of a CPU.
AUTO_EXACT_COST = {"cpu": 2e13, "cuda": 1e14}


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
    queries: Any = None,
    metric: Metric = "euclidean",
    method: Method = "auto",
    recall: float = 0.99,
    device: torch.device | str | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Neighbors:
    """The k nearest rows of X: of each row of X without itself, or of each row of ``queries``.

    "Itself" is the row, not the place: a duplicate of a point is its neighbor, at distance 0. Exact neighbors
    are those of the float64 distances between the rows as given. X is only read; a memory map is read in
    blocks, and the working copy is float32.

    Args:
        X: [N, F] numpy array or memory map, torch tensor, DataFrame or scipy sparse matrix; any real dtype.
        k: Neighbors per row, 1 <= k < N (k <= N with ``queries``).
        queries: [M, F], of any of these kinds; sparse exactly if X is.
        metric: "euclidean", or "cosine" for 1 - cos. A row of zeros has cosine distance 0 to other rows of
            zeros and 1 to all other rows.
        method: "exact"; "cells" (dense X): exact search in the cells of a k-means clustering that are nearest to each
            row; "auto" is exact for sparse X and up to ``AUTO_EXACT_COST``, and uses cells past it.
        recall: What cells must reach on 1000 sampled rows: more of them are searched until they do, or all points.
            Distances and order are exact; only the choice of neighbors is approximate.
        device: Where to compute; default: where X is. Sparse X is searched on the CPU.
        seed: Of the clustering and the sample; exact search draws nothing. The number of threads changes nothing.
        progress: Called with (rows done, rows in all).
    """
    if metric not in get_args(Metric):
        raise ValueError(f"`metric` must be 'euclidean' or 'cosine', but got {metric!r}.")
    if method not in get_args(Method):
        raise ValueError(f"`method` must be 'auto', 'exact' or 'cells', but got {method!r}.")
    if not 0 < recall <= 1:
        raise ValueError(f"`recall` must be above 0 and at most 1, but got {recall!r}.")
    check_device(device)
    cosine = metric == "cosine"
    points = check_points(X, cosine=cosine)
    asked = None if queries is None else check_points(queries, name="queries", cosine=cosine)
    check_k(k, points.shape[0], without_itself=asked is None)
    if asked is not None:
        check_pair(points, asked, device)

    if sp.issparse(points):
        if method == "cells":
            raise ValueError(
                "`method='cells'` needs dense X, but got a sparse matrix. Reduce it first (TruncatedSVD), or use "
                "method='exact'."
            )
        sparse, sought = sparse_spaces(points, asked, cosine=cosine)
        found, squared = search_exact(sparse, sought, k, None, progress)
        return Neighbors(found, distances(squared, sparse), None)

    place = points.device if isinstance(points, Tensor) else torch.device("cpu")
    place = place if device is None else torch.device(device)
    cost = query_cost(*points.shape) * (points if asked is None else asked).shape[0]
    if method == "auto" and cost > AUTO_EXACT_COST.get(place.type, np.inf):
        method = "cells"
    base, query = dense_spaces(points, asked, cosine=cosine, device=place)
    if method == "cells":
        found, squared, reached = search_cells(base, query, k, recall, seed, progress)
        return Neighbors(found, distances(squared, base), reached)
    found, squared = search_exact(base, query, k, None, progress)
    return Neighbors(found, distances(squared, base), None)
