"""What users give as a graph, to Graph; and edges of new points."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sobgnn.graphs.edges import float32_weights
from sobgnn.graphs.graph import Graph


def check_graph(given: Any) -> Graph:
    """Return a graph as it is; raise for anything else, with a hint how to make a graph of it."""
    if isinstance(given, Graph):
        return given
    way = "Graph.from_scipy(matrix)" if sp.issparse(given) else "Graph.from_edges(edge_index, edge_weight)"
    if hasattr(given, "edge_index"):
        way = "Graph.from_edges(data.edge_index, data.edge_weight, data.num_nodes)"
    raise TypeError(f"`graph` must be a sobgnn.Graph, but got {type(given).__name__}. Make one with {way}.")


def as_graph(given: Any, n: int) -> Graph:
    """A graph of n nodes, on the CPU: a Graph, scipy adjacency, ``edge_index`` or ``(edge_index, edge_weight)``."""
    edge_index, edge_weight = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    shape = tuple(getattr(edge_index, "shape", ()))
    listed = isinstance(edge_index, list) and len(edge_index) == 2 and not isinstance(edge_index[0], tuple)
    if isinstance(given, Graph):
        graph = given
    elif sp.issparse(given):
        graph = Graph.from_scipy(given, symmetrize="union", sum_duplicates=True)
    elif listed or (len(shape) == 2 and shape[0] == 2):
        graph = Graph.from_edges(edge_index, edge_weight, n, symmetrize="union")
    else:
        raise ValueError(
            "graph must be a sobgnn.Graph, a scipy sparse matrix, edge_index [2, E] or (edge_index, edge_weight), but "
            f"got {type(given).__name__}{f' of shape {list(shape)}' if shape else ''}. Of networkx: pass "
            "networkx.to_scipy_sparse_array(graph, nodelist=...), rows of X in order; of PyG: data.edge_index; of a "
            "dense matrix: scipy.sparse.csr_array(matrix); of pairs: numpy.array(pairs).T."
        )
    if graph.num_nodes != n:
        raise ValueError(f"graph must have one node per row of X, but got {graph.num_nodes} for {n} rows.")
    return graph.with_weight(graph.weight.detach()).to("cpu")  # a fit has no gradients for them


def as_edges(given: Any, m: int, n: int) -> sp.csr_array:
    """New points' edges to training points, checked: float32 CSR [m, n]."""
    if not sp.issparse(given) or given.shape != (m, n):
        got = f"shape {given.shape}" if sp.issparse(given) else type(given).__name__
        raise ValueError(
            f"graph must be scipy sparse with shape {(m, n)}: new points by training points; got {got}. Of a dense "
            "array pass scipy.sparse.csr_array(graph)."
        )
    if given.dtype.kind not in "fiub":
        raise ValueError(f"graph must hold real weights, but got {given.dtype}.")
    edges = sp.csr_array(given, dtype=np.float64, copy=True)  # the caller's stays as it is
    edges.sum_duplicates()
    edges.eliminate_zeros()  # in scipy an entry of 0 is no edge
    return sp.csr_array((float32_weights(edges.data), edges.indices, edges.indptr), shape=edges.shape)
