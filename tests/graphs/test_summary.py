from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sobgnn.graphs.graph import Graph
from sobgnn.graphs.summary import assortativity
from tests.oracle import adjacency, graph_of, graphs


def test_numbers_of_a_graph_made_by_hand(islands):
    report = islands.describe()
    assert (report.nodes, report.edges, report.isolated) == (6, 4, 1)
    assert (report.components, report.largest_component) == (3, 3)
    assert report.degree_quantiles == (0.0, 1.0, 1.5, 2.0, 2.0)
    # Each undirected edge counts in both its directions: 0.25, 0.25, 0.5, 0.5, 1, 1, 2, 2.
    assert report.weight_quantiles == (0.25, 0.4375, 0.75, 1.25, 2.0)
    assert report.agreement is None
    assert report.neighbor_recall is None


@pytest.mark.parametrize("unknown", [None, float("nan"), -1])
def test_unknown_labels_beside_text_take_no_part_in_the_agreement(islands, unknown):
    numbers = islands.describe([0, 0, 1, -1, 1, 0]).agreement
    texts = ["a", "a", "b", unknown, "b", "a"]
    assert islands.describe(texts).agreement == numbers
    assert islands.describe(np.array(texts, dtype=object)).agreement == numbers


def test_agreement_is_the_share_of_powered_weight_between_equal_labels(islands):
    # Equal: 0-1 (0.5) and 3-4 (2); unequal: 1-2 (0.25) and 0-2 (1).
    agreement = islands.describe([0, 0, 1, 1, 1, 0], orders=3).agreement
    expected = [(0.5**r + 2**r) / (0.5**r + 2**r + 0.25**r + 1) for r in (1, 2, 3)]
    assert agreement == pytest.approx(expected)


def test_labels_that_do_not_fit_are_refused(islands):
    with pytest.raises(ValueError, match=r"one label per node, but got shape \(5,\) for 6 nodes"):
        islands.describe(np.zeros(5))


@given(graph=graphs(), seed=st.integers(0, 100))
def test_agreement_is_a_share_for_weights_of_any_size(graph, seed):
    y = np.random.default_rng(seed).integers(0, 2, graph.num_nodes)
    report = graph.describe(y, orders=64)
    assert len(report.agreement) == 64
    if graph.num_edges:
        assert np.all((np.array(report.agreement) >= 0) & (np.array(report.agreement) <= 1))
        A = adjacency(graph) / adjacency(graph).max()
        equal = y[:, None] == y[None, :]
        assert report.agreement[1] == pytest.approx((A**2)[equal].sum() / (A**2).sum(), rel=1e-9)
    assert report.isolated == int((adjacency(graph).sum(axis=1) == 0).sum())
    assert report.largest_component <= graph.num_nodes


def test_the_text_says_all_of_it_in_a_few_lines(path5):
    graph = Graph(path5.indptr, path5.indices, path5.weight, neighbor_recall=0.981)
    text = str(graph.describe([0, 0, 1, 1, 1], orders=2))
    assert "5 nodes, 4 edges, 0 isolated nodes" in text
    assert "1 components, the largest of 5 nodes" in text
    assert "measured recall 0.981" in text
    assert "per power  73.3 %  81.2 %" in text
    assert len(text.splitlines()) == 6


def test_a_graph_without_edges_and_one_without_nodes_have_reports():
    report = graph_of(np.zeros((3, 3))).describe([0, 0, 1])
    assert (report.edges, report.components, report.weight_quantiles) == (0, 3, (0.0,) * 5)
    empty = Graph.from_edges(np.zeros((2, 0), dtype=int)).describe()
    assert (empty.nodes, empty.components, empty.largest_component) == (0, 0, 0)


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
