"""Graphs in other forms (scipy, edge lists) to Graph, and edges of new points."""

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
    name = type(given).__name__
    way = "Graph.from_edges(edge_index, edge_weight)"
    if sp.issparse(given):
        way = "Graph.from_scipy(matrix)"
    elif not isinstance(given, (tuple, list)) and hasattr(given, "edge_index"):
        way = "Graph.from_edges(data.edge_index, data.edge_weight, data.num_nodes)"
    raise TypeError(f"`graph` must be a sobgnn.Graph, but got {name}. Make one with {way}.")


def as_graph(given: Any, n: int) -> Graph:
    """A graph of n nodes, on the CPU: a Graph, scipy adjacency, ``edge_index`` or ``(edge_index, edge_weight)``."""
    if isinstance(given, Graph):
        graph = given
    elif sp.issparse(given):
        graph = Graph.from_scipy(given, symmetrize="union", sum_duplicates=True)
    elif not _is_edges(given):
        raise ValueError(
            f"graph must be a sobgnn.Graph, a scipy sparse matrix, edge_index [2, E] or (edge_index, edge_weight), but "
            f"got {_named(given)}."
        )
    elif isinstance(given, tuple):
        edge_index, edge_weight = given
        graph = Graph.from_edges(edge_index, edge_weight, n, symmetrize="union")
    else:
        graph = Graph.from_edges(given, num_nodes=n, symmetrize="union")
    if graph.num_nodes != n:
        raise ValueError(f"graph must have one node per row of X, but got {graph.num_nodes} for {n} rows.")
    return graph.with_weight(graph.weight.detach()).to("cpu")  # a fit has no gradients for them


def _is_edges(given: Any) -> bool:
    """Whether something may be ``edge_index``, or that with weights."""
    if isinstance(given, tuple):
        return len(given) == 2 and not all(_is_pair(part) for part in given)
    if isinstance(given, list):
        return len(given) == 2 and not any(isinstance(part, tuple) for part in given)
    shape = getattr(given, "shape", None)
    return shape is not None and len(shape) == 2 and shape[0] == 2


def _is_pair(part: Any) -> bool:
    return isinstance(part, (tuple, list)) and len(part) == 2 and all(isinstance(node, int) for node in part)


def _named(given: Any) -> str:
    """What was given, and how it becomes one of the forms that are understood."""
    name = type(given).__name__
    if hasattr(given, "edge_index"):
        return f"{name}. Pass its edge_index, or (edge_index, edge_weight)"
    if hasattr(given, "adj") and hasattr(given, "nodes"):
        return f"a {name} of networkx. Pass networkx.to_scipy_sparse_array(graph, nodelist=...), rows of X in order"
    shape = getattr(given, "shape", None)
    if shape is not None:
        if getattr(given, "is_sparse", False) or "sparse" in str(getattr(given, "layout", "")):
            return "a sparse tensor of torch. Pass its indices and values as (edge_index, edge_weight)"
        dense = len(shape) == 2 and shape[0] == shape[1]
        return f"an array of shape {list(shape)}" + (". Pass scipy.sparse.csr_array(graph)" if dense else "")
    if isinstance(given, (list, tuple)):
        return f"a {name} of {len(given)}. Pass pairs of nodes as numpy.array(pairs).T"
    return name


def as_edges(given: Any, m: int, n: int) -> sp.csr_array:
    """New points' edges to training points, checked: float32 CSR [m, n]."""
    if not sp.issparse(given) or given.shape != (m, n):
        shape = getattr(given, "shape", type(given).__name__)
        dense = not sp.issparse(given) and shape == (m, n)
        raise ValueError(
            f"graph must be scipy sparse with shape {(m, n)}: new points by training points; got "
            + ("a dense array. Pass scipy.sparse.csr_array(graph)." if dense else f"{shape}.")
        )
    if given.dtype.kind not in "fiub":
        raise ValueError(f"graph must hold real weights, but got {given.dtype}.")
    edges = sp.csr_array(given, dtype=np.float64, copy=True)  # the caller's stays as it is
    edges.sum_duplicates()
    edges.eliminate_zeros()  # in scipy an entry of 0 is no edge
    return sp.csr_array((float32_weights(edges.data), edges.indices, edges.indptr), shape=edges.shape)
