"""Graphs: points to graph, weights, an order of the nodes, a summary."""

from sobgnn.graphs.graph import Graph, Symmetrize
from sobgnn.graphs.knn import Bandwidth, graph_from_neighbors, knn_graph
from sobgnn.graphs.reweight import reweight

__all__ = ["Bandwidth", "Graph", "Symmetrize", "graph_from_neighbors", "knn_graph", "reweight"]
