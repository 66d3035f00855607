from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from sobgnn import Graph, SobolevClassifier, knn_graph
from sobgnn.estimator.suggestion import suggest_points
from tests.oracle import random_graph


def clusters(sizes=(60, 30, 10), seed=0):
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    points = 20 * np.eye(len(sizes), 5)[group] + generator.normal(size=(len(group), 5))
    return points.astype(np.float32), group


def by_definition(graph, uncertainty, labelled, free, count):
    """The greedy choice, every gain computed anew from the dense definition."""
    adjacency = graph.to_scipy().toarray().astype(float)
    degree = adjacency.sum(axis=1)
    scale = np.where(degree > 0, 1 / np.sqrt(np.where(degree > 0, degree, 1)), 0)
    normalized = scale[:, None] * adjacency * scale
    walks = np.eye(len(degree)) + normalized + normalized @ normalized
    covering, chosen = list(labelled), []
    for _ in range(count):
        covered = walks[covering].max(axis=0) if covering else np.zeros(len(degree))
        gain = uncertainty * (uncertainty * np.maximum(0, walks - covered)).sum(axis=1)
        gain[~free] = -np.inf
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        covering.append(chosen[-1])
    return chosen


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_choice_is_that_of_the_definition(seed):
    graph = random_graph(seed=seed, nodes=40, density=0.15)
    generator = np.random.default_rng(seed)
    probabilities = generator.dirichlet(np.ones(2), 40)
    labelled, excluded = np.array([3, 5, 8, 13, 21, 34]), np.array([0, 1])
    free = ~np.isin(np.arange(40), [*labelled, *excluded])
    top = np.sort(probabilities, axis=1)
    uncertainty = 1 - (top[:, 1] - top[:, 0]) + 0.1
    found = suggest_points(graph, probabilities, labelled, 12, exclude=excluded)
    assert found.tolist() == by_definition(graph, uncertainty, labelled, free, 12)
    first = suggest_points(graph, None, [], 12)
    assert first.tolist() == by_definition(graph, np.ones(40), [], np.ones(40, dtype=bool), 12)
    assert found.tolist() != first.tolist()


def test_the_first_points_meet_every_cluster_and_are_typical_of_it():
    points, group = clusters()
    found = suggest_points(knn_graph(points, k=8), None, [], 3)
    assert set(group[found]) == {0, 1, 2}
    for row in found:
        own = points[group == group[row]]
        apart = np.linalg.norm(own - own.mean(axis=0), axis=1)
        assert np.linalg.norm(points[row] - own.mean(axis=0)) < np.median(apart)


def test_uncertainty_counts_from_three_labels_per_class_on():
    points, group = clusters((50, 50))
    graph = knn_graph(points, k=8)
    probabilities = np.where(group[:, None] == 0, [0.5, 0.5], [0.999, 0.001])  # all of cluster 0 is uncertain
    few, enough = np.array([0, 1, 50, 51, 52]), np.array([0, 1, 2, 50, 51, 52])
    assert set(group[suggest_points(graph, probabilities, few, 2)]) == {0, 1}
    assert set(group[suggest_points(graph, probabilities, enough, 4)]) == {0}


def test_points_without_a_way_to_a_label_are_uncertain():
    points, group = clusters((30, 30))
    graph = knn_graph(points, k=5)
    probabilities = np.tile([1.0, 0.0], (60, 1))
    found = suggest_points(graph, probabilities, np.arange(6), 3, reached=group == 0)
    assert set(group[found]) == {1}


@pytest.mark.parametrize("strategy", ["auto", "typical", "uncertain", "random"])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_every_strategy_gives_distinct_free_points_the_same_each_time(strategy, count):
    graph = random_graph(seed=1, nodes=30, density=0.2)
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    labelled, excluded = np.arange(9), np.array([9, 10])
    found = suggest_points(graph, probabilities, labelled, count, exclude=excluded, strategy=strategy)
    assert len(found) == len(set(found.tolist())) == min(count, 19)
    assert not set(found.tolist()) & {*range(11)}
    again = suggest_points(graph, probabilities, labelled, count, exclude=excluded, strategy=strategy)
    np.testing.assert_array_equal(found, again)


def test_a_star_of_a_hundred_thousand_points_needs_no_dense_walks():
    spokes = np.arange(1, 100_000)
    edges = sp.coo_array((np.ones(99_999), (np.zeros(99_999, dtype=int), spokes)), shape=(100_000, 100_000))
    graph = Graph.from_scipy(sp.csr_array(edges), symmetrize="union")
    assert suggest_points(graph, None, [], 3)[0] == 0


@given(st.integers(0, 2**31), st.integers(1, 12))
def test_graphs_with_isolated_nodes_and_any_probabilities_give_points(seed, nodes):
    graph = random_graph(seed=seed, nodes=nodes, density=0.2)
    probabilities = np.random.default_rng(seed).dirichlet(np.full(2, 0.05), nodes)
    assert sorted(suggest_points(graph, probabilities, [], nodes).tolist()) == list(range(nodes))


def test_the_estimator_suggests_before_it_is_fitted():
    points, group = clusters((40, 40, 40))
    found = SobolevClassifier(k=8).suggest(3, X=points)
    assert set(group[found]) == {0, 1, 2}
    with pytest.raises(ValueError, match="at least 1"):
        SobolevClassifier().suggest(0, X=points)


@pytest.mark.parametrize("strategy", ["auto", "typical", "uncertain"])
def test_of_equal_points_one_is_suggested_before_all_others(strategy):
    points, _ = clusters((30, 20))
    points = np.concatenate([points, np.repeat(points[:1] + 3, 25, axis=0)])
    graph = knn_graph(points, k=8)
    probabilities = np.full((75, 2), 0.5)
    found = suggest_points(graph, probabilities, np.arange(6), 45, strategy=strategy)
    assert (found >= 50).sum() == 1
    labelled = np.array([*range(5), 60])
    assert not (suggest_points(graph, probabilities, labelled, 45, strategy=strategy) >= 50).any()
    everything = suggest_points(graph, probabilities, labelled, 69, strategy=strategy)
    assert sorted(everything.tolist()) == sorted({*range(75)} - set(labelled.tolist()))
    assert (everything[45:] >= 50).all()
