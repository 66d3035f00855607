from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph, knn_graph
from sobgnn.estimator import spreading
from sobgnn.estimator.spreading import Smoother, diffuse, poisson_potential, strongest
from tests.oracle import adjacency, normalized_adjacency


def fixed_point(graph, start, strength, fixed):
    """The limit of P = (1 - a) P0 + a D^-1/2 A D^-1/2 P at free nodes, by solving for them; rows sum to 1."""
    degree = adjacency(graph).sum(axis=1)
    walk = normalized_adjacency(graph)
    free = ~fixed & (degree > 0)
    system = np.eye(len(walk)) - strength * np.where(free[:, None], walk, 0)
    right = np.where(free[:, None], (1 - strength) * start, start)
    limit = np.linalg.solve(system, right)
    return limit / limit.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("strength", [0.5, 0.8, 0.98])
def test_diffused_labels_are_the_fixed_point(islands, graph30, strength):
    for graph in (islands, graph30):
        start, fixed = np.zeros((graph.num_nodes, 3)), np.isin(np.arange(graph.num_nodes), [0, 4])
        start[[0, 4], [2, 1]] = 1
        got = diffuse(Smoother(graph), strength, torch.tensor([0, 4]), torch.tensor([2, 1]), 3)
        with np.errstate(invalid="ignore"):
            expected = fixed_point(graph, start, strength, fixed)
        # Where no label reaches, all classes are alike.
        np.testing.assert_allclose(got, np.where(np.isnan(expected), 1 / 3, expected), atol=1e-3)


def test_diffused_labels_are_right_where_hardly_anything_of_them_arrives():
    # Two labels in a cluster of 60 points, and one weak edge to a cluster of 60 more, nearer to the first label.
    rng = np.random.default_rng(0)
    near = knn_graph(rng.normal(size=(60, 3)), k=6).to_scipy().toarray()
    far = knn_graph(rng.normal(size=(60, 3)), k=6).to_scipy().toarray()
    joined = np.block([[near, np.zeros((60, 60))], [np.zeros((60, 60)), far]])
    joined[7, 60] = joined[60, 7] = 1e-12
    graph = Graph.from_scipy(sp.csr_array(joined))
    start, fixed = np.zeros((120, 2)), np.isin(np.arange(120), [0, 4])
    start[[0, 4], [0, 1]] = 1
    expected = fixed_point(graph, start, 0.98, fixed)
    got = diffuse(Smoother(graph), 0.98, torch.tensor([0, 4]), torch.tensor([0, 1]), 2)
    np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize("most", [spreading._MOST_AT_ONCE, 100])
def test_several_sets_of_labels_diffuse_at_once_or_in_turn(graph30, most, monkeypatch):
    monkeypatch.setattr(spreading, "_MOST_AT_ONCE", most)
    spread, index = Smoother(graph30), torch.tensor([0, 4, 7])
    both = diffuse(spread, 0.9, index, torch.tensor([[2, 1, -1], [2, 1, 0]]), 3)
    torch.testing.assert_close(both[:, 0], diffuse(spread, 0.9, index[:2], torch.tensor([2, 1]), 3))
    torch.testing.assert_close(both[:, 1], diffuse(spread, 0.9, index, torch.tensor([2, 1, 0]), 3))


@pytest.mark.parametrize("rows", [7, 1000])
def test_the_strongest_edges_of_each_node_are_kept(graph30, rows, monkeypatch):
    monkeypatch.setattr(spreading, "_SORTED_ROWS", rows)
    dense = adjacency(graph30)
    heaviest = np.zeros_like(dense, dtype=bool)
    for row in range(30):
        heaviest[row, np.argsort(-dense[row], kind="stable")[:2]] = True
    expected = np.where((heaviest | heaviest.T) & (dense > 0), dense, 0)
    np.testing.assert_allclose(adjacency(strongest(graph30, 2)), expected, rtol=1e-6)
    np.testing.assert_allclose(adjacency(strongest(graph30, 30)), dense, rtol=1e-6)


def test_the_order_in_which_nodes_are_held_does_not_show_on_any_device(graph30, monkeypatch):
    index, codes = torch.tensor([3, 7, 9]), torch.tensor([[0, 1, -1], [0, 1, 2]])
    expected = diffuse(Smoother(graph30), 0.9, index, codes, 3)
    monkeypatch.setattr(spreading, "_MANY_NODES", 10)
    smoother = Smoother(graph30)
    assert not torch.equal(smoother.order, torch.arange(30))  # else the test proves nothing
    for own in (smoother, smoother.to("cpu")):
        torch.testing.assert_close(diffuse(own, 0.9, index, codes, 3), expected)


@pytest.mark.parametrize("in_order", [False, True])
def test_the_potential_of_sources_solves_the_poisson_equation(in_order, monkeypatch):
    if in_order:
        monkeypatch.setattr("sobgnn.estimator.spreading._MANY_NODES", 10)
    graph = knn_graph(np.random.default_rng(0).normal(size=(60, 3)), k=6)
    sources = torch.tensor([[1.0, -0.5, -0.5], [-1.0, 0.5, 0.5]], dtype=torch.float64)
    spread = Smoother(graph).powered(2)
    assert (spread.order is not None) is in_order
    u = poisson_potential(spread, torch.tensor([4, 50]), sources)
    A = graph.to_scipy().toarray().astype(np.float64) ** 2
    right = np.zeros((60, 3))
    right[[4, 50]] = sources
    want = np.linalg.solve(np.diag(A.sum(axis=1)) - (1 - 1e-4) * A, right)
    np.testing.assert_allclose(u, want, atol=2e-4 * np.abs(want).max())


def two_lines(count):
    """Two parallel lines of points, joined along each alone, and a label at the beginning of each."""
    along = np.linspace(0, 20, count)
    X = np.concatenate([np.stack([along, np.full(count, height)], axis=1) for height in (0.0, 5.0)])
    return Smoother(knn_graph(X, k=2)), torch.tensor([0, count])


def test_potentials_on_a_long_line_solve_their_equation():
    spread, index = two_lines(300)
    sources = torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=torch.float64)
    found = poisson_potential(spread, index, sources).double().numpy()
    degree = adjacency(spread.graph).sum(axis=1)
    right = np.zeros((600, 2))
    right[index.numpy()] = sources.numpy()
    exact = np.linalg.solve(np.diag(degree) - (1 - 1e-4) * adjacency(spread.graph), right)
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
