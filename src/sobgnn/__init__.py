"""Sparse Sobolev graph neural networks: labels for many points from a few."""

from sobgnn import sobolev, spectrum
from sobgnn.classifier import SobolevClassifier
from sobgnn.conv import SobolevConv
from sobgnn.graph import Graph
from sobgnn.knn import graph_from_neighbors, knn_graph
from sobgnn.model import SSobGNN
from sobgnn.operators import SobolevOperators
from sobgnn.weights import reweight

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "SSobGNN",
    "SobolevClassifier",
    "SobolevConv",
    "SobolevOperators",
    "graph_from_neighbors",
    "knn_graph",
    "reweight",
    "sobolev",
    "spectrum",
]
