from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn import knn_graph
from sobgnn.estimator import smoothing
from sobgnn.estimator.smoothing import Spread, diffuse, poisson_potential, smooth, strongest, with_labels
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


@pytest.mark.parametrize("strength", [0.0, 0.3, 0.8])
def test_smoothing_is_the_fixed_point(islands, graph30, strength):
    for graph in (islands, graph30):
        n = graph.num_nodes
        start = torch.rand(n, 3, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
        start, fixed = with_labels(start, torch.tensor([0, 4]), torch.tensor([2, 1]))
        got = smooth(Spread(graph), start, strength, fixed)
        np.testing.assert_allclose(got, fixed_point(graph, start.numpy(), strength, fixed.numpy()), atol=2e-3)
        np.testing.assert_allclose(got.sum(dim=1), 1, rtol=1e-5)


def test_several_signals_at_once_are_those_one_by_one(graph30):
    start = torch.rand(30, 2, 3).softmax(dim=2)
    fixed = torch.rand(30, 2) < 0.2
    together = smooth(Spread(graph30), start, 0.6, fixed)
    for signal in range(2):
        torch.testing.assert_close(
            together[:, signal], smooth(Spread(graph30), start[:, signal], 0.6, fixed[:, signal])
        )


def test_nodes_may_be_fixed_in_all_signals_or_in_none(graph30):
    start, fixed = torch.rand(30, 2, 3).softmax(dim=2), torch.arange(30) < 4
    spread = Spread(graph30)
    every, none = fixed.unsqueeze(1).expand(30, 2), torch.zeros(30, 2, dtype=torch.bool)
    torch.testing.assert_close(smooth(spread, start, 0.6, fixed), smooth(spread, start, 0.6, every))
    torch.testing.assert_close(smooth(spread, start, 0.6), smooth(spread, start, 0.6, none))


def test_known_labels_stay_and_isolated_nodes_keep_their_own(islands):
    start = torch.full((6, 2), 0.5)
    start[5] = torch.tensor([0.9, 0.1])
    start, fixed = with_labels(start, torch.tensor([1]), torch.tensor([0]))
    got = smooth(Spread(islands), start, 0.9, fixed)
    torch.testing.assert_close(got[1], torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(got[5], torch.tensor([0.9, 0.1]))
    assert (got[[0, 2], 0] > 0.8).all()
    torch.testing.assert_close(got[3], torch.tensor([0.5, 0.5]))


def test_what_it_is_given_is_not_changed(graph30):
    start = torch.rand(30, 3).softmax(dim=1)
    before = start.clone()
    labelled, _ = with_labels(start, torch.tensor([0]), torch.tensor([1]))
    smooth(Spread(graph30), labelled, 0.5)
    assert torch.equal(start, before)


def test_the_order_in_which_nodes_are_held_does_not_show(graph30, monkeypatch):
    start = torch.rand(graph30.num_nodes, 2, 3, generator=torch.Generator().manual_seed(0))
    fixed = torch.zeros(graph30.num_nodes, 2, dtype=torch.bool)
    fixed[3, 0] = fixed[7, 1] = True
    expected = smooth(Spread(graph30), start, 0.9, fixed)
    monkeypatch.setattr(smoothing, "_MANY_NODES", 10)
    spread = Spread(graph30)
    assert not torch.equal(spread.order, torch.arange(graph30.num_nodes))  # else the test proves nothing
    torch.testing.assert_close(smooth(spread, start, 0.9, fixed), expected)


def test_diffused_labels_are_the_fixed_point_from_zeros(islands, graph30):
    for graph in (islands, graph30):
        start, fixed = with_labels(torch.zeros(graph.num_nodes, 3), torch.tensor([0, 4]), torch.tensor([2, 1]))
        got = diffuse(Spread(graph), 0.8, torch.tensor([0, 4]), torch.tensor([2, 1]), 3)
        with np.errstate(invalid="ignore"):
            expected = fixed_point(graph, start.numpy(), 0.8, fixed.numpy())
        # Where no label reaches, all classes are alike.
        np.testing.assert_allclose(got, np.where(np.isnan(expected), 1 / 3, expected), atol=5e-3)


def test_several_sets_of_labels_diffuse_at_once(graph30):
    spread, index = Spread(graph30), torch.tensor([0, 4, 7])
    both = diffuse(spread, 0.9, index, torch.tensor([[2, 1, -1], [2, 1, 0]]), 3)
    torch.testing.assert_close(both[:, 0], diffuse(spread, 0.9, index[:2], torch.tensor([2, 1]), 3))
    torch.testing.assert_close(both[:, 1], diffuse(spread, 0.9, index, torch.tensor([2, 1, 0]), 3))


@pytest.mark.parametrize("rows", [7, 1000])
def test_the_strongest_edges_of_each_node_are_kept(graph30, rows, monkeypatch):
    monkeypatch.setattr(smoothing, "_SORTED_ROWS", rows)
    dense = adjacency(graph30)
    heaviest = np.zeros_like(dense, dtype=bool)
    for row in range(30):
        heaviest[row, np.argsort(-dense[row], kind="stable")[:2]] = True
    expected = np.where((heaviest | heaviest.T) & (dense > 0), dense, 0)
    np.testing.assert_allclose(adjacency(strongest(graph30, 2)), expected, rtol=1e-6)
    np.testing.assert_allclose(adjacency(strongest(graph30, 30)), dense, rtol=1e-6)


def test_on_another_device_an_operator_keeps_its_order(graph30, monkeypatch):
    monkeypatch.setattr(smoothing, "_MANY_NODES", 20)
    spread = Spread(graph30)
    start = torch.rand(30, 2, generator=torch.Generator().manual_seed(0)).softmax(dim=1)
    assert not torch.equal(spread.order, torch.arange(30))  # else losing it would not show
    moved = spread.to("cpu")
    torch.testing.assert_close(smooth(moved, start, 0.6), smooth(spread, start, 0.6))


@pytest.mark.parametrize("in_order", [False, True])
def test_the_potential_of_sources_solves_the_poisson_equation(in_order, monkeypatch):
    if in_order:
        monkeypatch.setattr("sobgnn.estimator.smoothing._MANY_NODES", 10)
    graph = knn_graph(np.random.default_rng(0).normal(size=(60, 3)), k=6)
    sources = torch.tensor([[1.0, -0.5, -0.5], [-1.0, 0.5, 0.5]], dtype=torch.float64)
    spread = Spread(graph).powered(2)
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
    return Spread(knn_graph(X, k=2)), torch.tensor([0, count])


def test_labels_reach_the_end_of_a_line_that_is_longer_than_the_usual_steps():
    spread, index = two_lines(300)
    found = diffuse(spread, 0.98, index, torch.tensor([0, 1]), 2)
    assert (found.argmax(dim=1) == torch.arange(600) // 300).all()
    assert (found.amax(dim=1) > 0.99).all()


def test_potentials_on_a_long_line_solve_their_equation():
    spread, index = two_lines(300)
    sources = torch.tensor([[0.5, -0.5], [-0.5, 0.5]], dtype=torch.float64)
    found = poisson_potential(spread, index, sources).double().numpy()
    degree = adjacency(spread.graph).sum(axis=1)
    right = np.zeros((600, 2))
    right[index.numpy()] = sources.numpy()
    exact = np.linalg.solve(np.diag(degree) - (1 - 1e-4) * adjacency(spread.graph), right)
    assert np.abs(found - exact).max() < 0.02 * np.abs(exact).max()
