from __future__ import annotations

import numpy as np
import pytest

from sobgnn import Graph
from sobgnn.graphs.summary import assortativity


def test_assortativity_is_newmans_over_the_edges_between_points_that_are_left():
    # Two triangles, one edge between them, and a point that is left out.
    edges = np.array([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3), (5, 6)]).T
    graph = Graph.from_edges(edges, np.linspace(0.5, 1.0, 8), num_nodes=7, symmetrize="union")
    classes, left_out = np.array([0, 0, 0, 1, 1, 1, 0]), np.array([6])
    e = np.array([[6, 1], [1, 6]]) / 14
    a = e.sum(axis=1)
    expected = (np.trace(e) - np.square(a).sum()) / (1 - np.square(a).sum())
    assert assortativity(graph, classes, left_out) == pytest.approx(expected)
    assert assortativity(graph, np.arange(7), left_out) < 0
    assert assortativity(graph, np.zeros(7, int), left_out) == 0
    assert assortativity(graph, classes, np.arange(7)) == 0
    assert assortativity(graph, classes) == assortativity(graph, classes, np.zeros(0, int))
