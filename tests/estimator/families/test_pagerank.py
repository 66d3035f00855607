from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import Graph
from sobgnn.estimator.families.pagerank import STRENGTH, PageRankLinear, spread, transition, unit_rows
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.placing import view_of
from sobgnn.estimator.problem import Problem


def case(width):
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = generator.normal(size=(90, width)) + np.eye(3, width)[y]
    likely = np.where(y[:, None] == y, 0.15, 0.02)
    half = np.triu(generator.random((90, 90)) < likely, 1)
    graph = Graph.from_scipy(sp.csr_array((half + half.T).astype(float)))
    labels = with_folds(np.where(np.arange(90) < 30, y, -1), np.ones(30), 3, generator)
    points = torch.from_numpy(X).float()
    return Problem(points, points.numpy(), {"given": view_of(graph, 2, 0.5, torch.device("cpu"))}, 3, rows=X), labels, y


def test_spreading_is_the_closed_form():
    problem, _, _ = case(5)
    step = transition(problem.views["given"].graph)
    found = spread(step, problem.rows)
    exact = (1 - STRENGTH) * np.linalg.solve(np.eye(90) - STRENGTH * step.toarray(), problem.rows)
    np.testing.assert_allclose(found, exact, atol=0.05)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_few_columns_are_spread_themselves_with_the_same_outcome(form):
    problem, labels, y = case(5)
    # Columns of zeros change no product, and outnumber the labels: now only labeled rows are spread.
    wide = np.hstack([problem.rows, np.zeros((90, 60))])
    few, many = (
        PageRankLinear("given").fit(Problem(problem.points, problem.columns, problem.views, 3, rows=form(rows)), labels)
        for rows in (problem.rows, wide)
    )
    np.testing.assert_allclose(few.probabilities(), many.probabilities(), atol=1e-4)
    np.testing.assert_allclose(few.weight, many.weight[:5], atol=1e-3)
    assert (few.probabilities()[-1].argmax(dim=1).numpy() == y)[30:].mean() > 0.7


def test_unit_rows_have_length_one_and_zeros_stay():
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    for form in (np.asarray, sp.csr_array):
        found = unit_rows(form(X))
        np.testing.assert_allclose(found.toarray() if sp.issparse(found) else found, [[0.6, 0.8], [0, 0]])


def test_points_that_are_all_spread_alike_tell_nothing():
    problem, labels, _ = case(4)
    ring = np.roll(np.eye(90), 1, axis=1)
    graph = Graph.from_scipy(sp.csr_array(ring + ring.T))
    views = {"given": view_of(graph, 2, 0.5, torch.device("cpu"))}
    for width in (1, 60):  # columns spread themselves, and labeled rows alone
        rows = np.random.default_rng(0).uniform(1, 9, (90, 1)) * np.ones((1, width))
        fitted = PageRankLinear("given").fit(Problem(problem.points, problem.columns, views, 3, rows=rows), labels)
        assert float(fitted.weight.abs().max()) == 0
        np.testing.assert_allclose(fitted.probabilities()[-1], 1 / 3, atol=1e-3)
