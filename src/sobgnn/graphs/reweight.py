"""Edge weights for graphs without any: Hadamard powers of 0/1 weights are all the same."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from torch import Tensor

from sobgnn.graphs.convert import check_graph
from sobgnn.graphs.edges import SMALLEST_WEIGHT
from sobgnn.graphs.graph import Graph

_COLUMNS_PER_BLOCK = 64  # of float64: what a step reads and writes stays in the cache for thousands of nodes


def reweight(
    graph: Graph,
    how: Literal["normalized", "pagerank", "features"] = "normalized",
    X: Any = None,
    *,
    teleport: float = 0.15,
    top_k: int = 64,
) -> Graph:
    r"""The graph with weights that tell its edges apart.

    Args:
        graph: Usually one whose weights are all 1.
        how: ``"normalized"``: :math:`D^{-1/2} A D^{-1/2}`, on the same edges.
            ``"pagerank"``: graph diffusion by personalized PageRank,
            :math:`a \sum_t (1-a)^t T^t` with T the symmetrically normalized adjacency with self-loops; each node
            keeps its ``top_k`` largest, so edges change.
            ``"features"``: :math:`(1 + \cos(x_i, x_j)) / 2` of the rows of X, on the same edges.
        X: Features [N, F], dense or scipy sparse, for ``"features"``.
        teleport: a, in (0, 1), for ``"pagerank"``.
        top_k: Entries a node keeps, for ``"pagerank"``.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, reweight
        >>> star = Graph.from_edges(torch.tensor([[0, 0, 0, 0], [1, 2, 3, 4]]), symmetrize="union")
        >>> reweight(star).weight.unique().tolist()  # 1 / sqrt(4 · 1)
        [0.5]
    """
    A = check_graph(graph).to_scipy(copy=False).astype(np.float64)
    if how == "normalized":
        weighted = _normalized(A)
    elif how == "features":
        weighted = _similarity(A, X)
    elif how == "pagerank":
        weighted = _pagerank(A, teleport, top_k)
    else:
        raise ValueError(f'`how` must be "normalized", "pagerank" or "features", but got {how!r}.')
    weighted.data = np.maximum(weighted.data, SMALLEST_WEIGHT).astype(np.float32)
    # Rounding may differ between the two directions of an edge; the union makes them one.
    return Graph.from_scipy(weighted, symmetrize="union").to(graph.device)


def normalized_edges(edges: sp.csr_array, degree: Tensor) -> sp.csr_array:
    r"""What ``"normalized"`` makes of new points' edges [M, N]: :math:`w_{ij} / \sqrt{d_i d_j}`.

    Args:
        edges: To the nodes of a graph; :math:`d_i` is the sum of a row.
        degree: :math:`d_j` of the nodes [N], which new edges do not change.
    """
    rows = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
    own, theirs = edges.sum(axis=1, dtype=np.float64), degree.cpu().numpy().astype(np.float64)
    scale = np.sqrt(own[rows] * np.maximum(theirs[edges.indices], 1))
    weight = np.maximum(edges.data / scale, SMALLEST_WEIGHT).astype(np.float32)
    return sp.csr_array((weight, edges.indices, edges.indptr), shape=edges.shape)


def _normalized(A: sp.csr_array) -> sp.coo_array:
    coo, root = A.tocoo(), np.sqrt(A.sum(axis=1))
    return sp.coo_array((coo.data / (root[coo.row] * root[coo.col]), (coo.row, coo.col)), shape=A.shape)


def _similarity(A: sp.csr_array, X: Any) -> sp.coo_array:
    if isinstance(X, Tensor):
        X = X.detach().cpu().double()
    X = X if sp.issparse(X) else np.asarray(X)
    if X.ndim != 2 or X.shape[0] != A.shape[0]:
        got = X.shape if X.ndim else X.item()
        raise ValueError(f'how="features" needs X with {A.shape[0]} rows, one per node, but got {got}.')
    if X.dtype.kind not in "fiub":
        raise TypeError(f'how="features" needs X of real numbers, but got {X.dtype}.')
    X = sp.csr_array(X, dtype=np.float64, copy=True) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    if not np.isfinite(X.data if sp.issparse(X) else X).all():
        raise ValueError('how="features" needs finite X, but got NaN or infinite entries.')
    X = scaled_rows(X)
    coo = A.tocoo()
    length = np.sqrt((X * X).sum(axis=1))
    product = np.empty(coo.nnz)
    for start in range(0, coo.nnz, 1 << 16):
        edge = slice(start, start + (1 << 16))
        product[edge] = np.asarray((X[coo.row[edge]] * X[coo.col[edge]]).sum(axis=1)).ravel()
    scale = length[coo.row] * length[coo.col]
    cosine = np.divide(product, scale, out=np.zeros_like(product), where=scale > 0)
    return sp.coo_array(((1 + cosine) / 2, (coo.row, coo.col)), shape=A.shape)


def scaled_rows(X: Any) -> Any:
    """Rows over their largest magnitude, whose squares neither vanish nor overflow; a sparse X in place."""
    if X.size == 0:
        return X
    largest = abs(X).max(axis=1)
    if not sp.issparse(X):
        return X / np.where(largest > 0, largest, 1.0)[:, None]
    largest = largest.toarray()
    X.data /= np.repeat(np.where(largest > 0, largest, 1.0), np.diff(X.indptr))
    return X


def _pagerank(A: sp.csr_array, teleport: float, top_k: int) -> sp.coo_array:
    if not (isinstance(teleport, (float, np.floating)) and 0 < teleport < 1):
        raise ValueError(f"`teleport` must be in (0, 1), but got {teleport!r}.")
    if not (isinstance(top_k, (int, np.integer)) and top_k >= 1):
        raise ValueError(f"`top_k` must be an integer of at least 1, but got {top_k!r}.")
    n = A.shape[0]
    if n == 0:
        return A.tocoo()
    T = _normalized(sp.csr_array(A + sp.eye_array(n))).tocsr()
    # x = a e + (1-a) T x by Chebyshev's iteration: T is symmetric with eigenvalues in [-1, 1], so t steps leave an
    # error of at most 2 rate^t, where adding up the series would leave (1-a)^t.
    radius = 1 - teleport
    rate = radius / (1 + np.sqrt(1 - radius**2))
    steps = int(np.ceil(np.log(5e-7) / np.log(rate)))
    kept = []
    for start in range(0, n, _COLUMNS_PER_BLOCK):  # N x block at a time, never N x N
        stop = min(start + _COLUMNS_PER_BLOCK, n)
        seed = np.zeros((n, stop - start))
        seed[np.arange(start, stop), np.arange(stop - start)] = teleport
        before, total, omega = np.zeros_like(seed), seed, 2.0
        for _ in range(steps):
            omega = 1 / (1 - radius**2 * omega / 4)
            before, total = total, omega * (radius * (T @ total) + seed - before) + before
        total[np.arange(start, stop), np.arange(stop - start)] = 0  # self-loops are the operators' business
        largest = np.argpartition(-total, min(top_k, n - 1), axis=0)[:top_k]
        value = np.take_along_axis(total, largest, axis=0)
        column = np.broadcast_to(np.arange(start, stop), value.shape)
        good = value > SMALLEST_WEIGHT
        kept.append((largest[good], column[good], value[good]))
    rows, columns, weight = (np.concatenate(part) for part in zip(*kept, strict=True))
    return sp.coo_array((weight, (rows, columns)), shape=A.shape)
