"""Graphs in other forms (scipy, edge lists) to Graph, and edges of new points."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from sobgnn.graphs.graph import Graph, check_weights


def as_graph(given: Any, n: int) -> Graph:
    """A graph of n nodes, on the CPU: a Graph, scipy adjacency, ``edge_index`` or ``(edge_index, edge_weight)``."""
    if isinstance(given, Graph):
        graph = given
    elif sp.issparse(given):
        graph = Graph.from_scipy(given, symmetrize="union")
    elif isinstance(given, tuple):
        edge_index, edge_weight = given
        graph = Graph.from_edges(edge_index, edge_weight, n, symmetrize="union")
    else:
        graph = Graph.from_edges(given, num_nodes=n, symmetrize="union")
    if graph.num_nodes != n:
        raise ValueError(f"graph must have one node per row of X, but got {graph.num_nodes} for {n} rows.")
    return graph.to("cpu")


def as_edges(given: Any, m: int, n: int) -> sp.csr_array:
    """New points' edges to training points, checked: float32 CSR [m, n]."""
    if not sp.issparse(given) or given.shape != (m, n):
        shape = getattr(given, "shape", type(given).__name__)
        raise ValueError(f"graph must be scipy sparse with shape {(m, n)}: new points by training points; got {shape}.")
    with np.errstate(over="ignore"):
        edges = sp.csr_array(given, dtype=np.float32, copy=True)  # the caller's stays as it is
    edges.sum_duplicates()
    check_weights(edges.data)
    return edges
