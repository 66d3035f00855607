"""Search by cells against exact search: recall, ties, few points, threads, with and without compiled code."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn._system.process import set_threads
from sobgnn.graphs.knn import AUTO_EXACT_COST, nearest
from sobgnn.graphs.neighbors import cells
from sobgnn.graphs.neighbors.cells import Cells
from sobgnn.graphs.neighbors.exact import Groups, Heaps, compiled, scan, search_exact
from sobgnn.graphs.neighbors.points import Dense, peak


@pytest.fixture(params=["compiled", "portable"])
def backend(request, monkeypatch):
    if request.param == "portable":
        monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    elif not compiled(torch.device("cpu")):
        pytest.skip("there is no compiled kernel")
    return request.param


def mixture(n=4000, d=8, seed=0):
    generator = np.random.default_rng(seed)
    centers = 4 * generator.normal(size=(12, d))[generator.integers(12, size=n)]
    return (generator.normal(size=(n, d)) + centers).astype(np.float32)


def hits(found, truth):
    return np.mean([len(set(a) & set(b)) for a, b in zip(found, truth, strict=True)]) / truth.shape[1]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_recall_asked_for_is_reached_with_exact_distances_in_order(metric, backend):
    X = mixture()
    truth = nearest(X, 10, metric=metric, method="exact")
    for recall in (0.8, 0.99):
        found = nearest(X, 10, metric=metric, method="cells", recall=recall)
        assert recall <= found.recall <= 1
        assert hits(found.indices, truth.indices) > recall - 0.02
        assert (found.indices != np.arange(len(X))[:, None]).all()
        same = found.indices == truth.indices
        np.testing.assert_allclose(found.distances[same], truth.distances[same], rtol=1e-6)
        assert (np.diff(found.distances, axis=1) >= 0).all()


def test_more_cells_are_searched_where_the_nearest_ones_miss_neighbors():
    X = np.random.default_rng(0).normal(size=(6000, 16)).astype(np.float32)
    truth = nearest(X, 10).indices
    few, found = (nearest(X, 10, method="cells", recall=recall) for recall in (0.5, 0.99))
    assert 0.5 <= few.recall < 0.9
    assert abs(hits(few.indices, truth) - few.recall) < 0.03
    assert found.recall >= 0.99
    assert hits(found.indices, truth) > 0.98


def test_queries_are_searched_in_their_own_nearest_cells(backend):
    X, Q = mixture(), mixture(300, seed=1)
    base = Dense(X, peak(X))
    query, made = base.beside(Q), Cells(base)
    near = made.enough(10, 0.99)[0]
    found, truth = made.search(query, np.arange(300), 10, 2 * near), search_exact(base, query, 10)
    assert hits(found[0], truth[0]) > 0.98
    np.testing.assert_allclose(found[1][:, 0], truth[1][:, 0], rtol=1e-6)


def test_threads_and_runs_do_not_change_a_digit_and_the_backend_hardly_a_neighbor(monkeypatch):
    X = mixture(6000)
    found = []
    for threads in (1, 2, 2):
        with set_threads(threads):
            found.append(nearest(X, 7, method="cells"))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].indices, other.indices)
        np.testing.assert_array_equal(found[0].distances, other.distances)
        assert found[0].recall == other.recall
    monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    assert hits(nearest(X, 7, method="cells").indices, found[0].indices) > 0.97


def test_few_queries_find_what_many_would(backend, monkeypatch):
    X = torch.from_numpy(mixture())
    base = Dense(X, peak(X))
    made, query = Cells(base, size=16), base.beside(X[:500] + 0.1)
    rows = np.arange(500)
    at_once = made.search(query, rows, 7, 5)
    monkeypatch.setattr(cells, "_VISITS", 1000)  # in several parts
    in_parts = made.search(query, rows, 7, 5)
    monkeypatch.setattr(cells, "_FEW", 0)  # one cell of each query after the other
    in_turn = made.search(query, rows, 7, 5)
    for found, squared in (at_once, in_parts):
        np.testing.assert_array_equal(found, in_turn[0])
        np.testing.assert_array_equal(squared, in_turn[1])


@pytest.mark.parametrize(
    "X",
    [
        np.repeat(mixture(6, 4), 500, 0),
        np.zeros((2000, 2), np.float32),
        np.vstack([np.zeros((2500, 4), np.float32), mixture(500, 4)]),
    ],
    ids=["copies", "zeros", "half equal"],
)
def test_equal_points_are_cut_into_cells_of_bounded_size_and_found(X, backend):
    made = Cells(Dense(X, peak(X)))
    assert np.diff(made.start).max() <= 4 * cells.SIZE
    distinct, copies = np.unique(X, axis=0, return_counts=True)
    assert len(made.order) <= np.minimum(copies, cells.SIZE).sum() + 4 * cells.SIZE * len(distinct)
    assert len(np.unique(X[made.order], axis=0)) == len(distinct)
    truth, found = (nearest(X, 20, method=method) for method in ("exact", "cells"))
    right = (found.distances <= truth.distances[:, -1:] + 1e-6).mean()
    assert right == 1 or (len(distinct) > 12 and right > 0.985)
    assert all(len(set(row)) == 20 for row in found.indices)
    assert (found.indices != np.arange(len(X))[:, None]).all()


@pytest.mark.parametrize(("n", "k"), [(2, 1), (300, 299), (700, 600)])
def test_few_points_and_many_neighbors_are_as_in_an_exact_search(n, k, backend):
    X = mixture(n, 3)
    truth, found = (nearest(X, k, method=method) for method in ("exact", "cells"))
    np.testing.assert_array_equal(found.indices, truth.indices)


def test_rows_whose_cells_have_too_few_points_are_searched_among_all(backend):
    X = mixture(600, 3)
    base = Dense(X, peak(X))
    indices, squared = Cells(base, size=8).search(base, np.arange(600), 40, 1)
    assert np.isfinite(squared).all()
    assert all(len(set(row)) == 40 for row in indices)


def test_auto_is_exact_up_to_its_cost_and_by_cells_past_it(monkeypatch):
    X = mixture(2000)
    assert nearest(X, 5).recall is None
    monkeypatch.setitem(AUTO_EXACT_COST, "cpu", 1e6)
    assert nearest(X, 5).recall >= 0.99
    assert nearest(sp.csr_array(X), 5).recall is None


@pytest.mark.cuda
def test_cells_on_cuda_reach_the_recall(monkeypatch):
    X = mixture(20_000)
    truth = nearest(X, 10).distances[:, -1]
    found = nearest(torch.from_numpy(X).cuda(), 10, method="cells")
    assert found.recall >= 0.99
    assert (found.distances[:, -1] <= 1.001 * truth).mean() >= 0.985
    monkeypatch.setitem(AUTO_EXACT_COST, "cuda", 1e6)
    assert nearest(torch.from_numpy(X).cuda(), 10).recall is not None


def test_a_scan_keeps_the_smallest_scores_of_each_group(backend):
    generator = np.random.default_rng(0)
    for width, most in ((1, 1), (5, 3), (33, 17)):
        y, x = (torch.from_numpy(generator.normal(size=(n, width)).astype(np.float32)) for n in (700, 50))
        listed, cell = generator.permutation(700).astype(np.int32), generator.integers(-1, 3, 50).astype(np.int32)
        spans = np.array([[0, 300], [300, 300], [290, 700]])
        heaps = Heaps(50, most, torch.device("cpu"))
        for _ in range(2):  # points of a second scan are compared with those of the first
            scan(y, y.square().sum(1), x, Groups.by_cell(cell, spans, listed), heaps)
            if most > 1:
                break
        scores = (y.square().sum(1) - 2 * x @ y.T).numpy()
        for q in range(50):
            names = listed[slice(*spans[cell[q]])] if cell[q] >= 0 else listed[:0]
            expected, kept = np.sort(scores[q, names])[:most], heaps.scores[q].numpy()
            assert kept[0] == kept.max()
            np.testing.assert_allclose(np.sort(kept)[: len(expected)], expected, rtol=1e-4, atol=1e-4)
            if len(expected):
                np.testing.assert_allclose(scores[q, heaps.found[q]], kept, rtol=1e-4, atol=1e-4)
            else:
                assert (heaps.found[q] == -1).all()
