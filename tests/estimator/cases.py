"""Points and labels on which families are tried."""

from __future__ import annotations

import numpy as np
import torch

from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.placed import NeighborSearch
from sobgnn.estimator.points import NewPoints, PointGraph, Points
from sobgnn.estimator.validation import Networks
from sobgnn.operators.new_points import attach


def points_of(X, graph=None, classes=2, name="neighbors", **more):
    """Points X [N, F] that families read as they are, with a graph if one is given."""
    own = np.asarray(X.toarray() if hasattr(X, "toarray") else X, np.float32)
    graphs = {} if graph is None else {name: PointGraph(graph, 2, 0.5)}
    return Points(torch.from_numpy(own), graphs, classes, **{"columns": own, "rows": X, "seed": 1, **more})


def neighbors(X, k=8, threads=1):
    """The graph of the k nearest neighbors of X [N, F]."""
    settings = {"k": k, "metric": "euclidean", "method": "exact", "bandwidth": "mean", "symmetrize": "union"}
    return NeighborSearch.of(np.asarray(X, np.float32), settings, torch.device("cpu"), threads)[0]


def labels_of(y, labeled, weight=None, seed=0):
    """The first labels of y [N], in folds."""
    codes = np.where(np.arange(len(y)) < labeled, y, -1)
    weight = np.ones(labeled) if weight is None else weight
    return with_folds(codes, weight, int(np.max(y)) + 1, np.random.default_rng(seed))


def clouds(seed=0):
    """120 points of three classes, 45 of them labeled; points, labels, truth."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, 120)
    X = (generator.normal(size=(3, 5))[y] * 2 + generator.normal(size=(120, 5))).astype(np.float32)
    networks = Networks(alpha=2, epsilon=0.5, hidden_channels=16, n_members=5, epochs=40, lr=0.02)
    return points_of(X, neighbors(X, 6), 3, networks=networks), labels_of(y, 45), y


def new_points(points, rows):
    """Some training points again, as new ones with the same edges."""
    joined = {name: attach(own.operators, own.graph.to_scipy()[rows]) for name, own in points.graphs.items()}
    own = None if points.rows is None else points.rows[rows]
    return NewPoints(points.points[rows], points.columns[rows], joined, points, own)
