from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn import Graph
from sobgnn.estimator.families.given import STRENGTH, PageRankLinear, spread, transition, unit_rows
from sobgnn.estimator.points import PointGraph
from tests.estimator.cases import labels_of, points_of


def case(width):
    generator = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = generator.normal(size=(90, width)) + np.eye(3, width)[y]
    likely = np.where(y[:, None] == y, 0.15, 0.02)
    half = np.triu(generator.random((90, 90)) < likely, 1)
    graph = Graph.from_scipy(sp.csr_array((half + half.T).astype(float)))
    return points_of(X, graph, 3, "given"), labels_of(y, 30), y


def test_spreading_is_the_closed_form():
    points, _, _ = case(5)
    step = transition(points.graphs["given"].graph)
    found = spread(step, points.rows)
    exact = (1 - STRENGTH) * np.linalg.solve(np.eye(90) - STRENGTH * step.toarray(), points.rows)
    np.testing.assert_allclose(found, exact, atol=0.05)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_few_columns_are_spread_themselves_with_the_same_outcome(form):
    points, labels, y = case(5)
    # Columns of zeros change no product, and outnumber the labels: now only labeled rows are spread.
    wide = np.hstack([points.rows, np.zeros((90, 60))])
    few, many = (PageRankLinear("given").fit(replace(points, rows=form(rows)), labels) for rows in (points.rows, wide))
    whole = few.fitted.predict(points)
    np.testing.assert_allclose(whole, many.fitted.predict(points), atol=1e-4)
    np.testing.assert_allclose(few.out_of_fold, many.out_of_fold, atol=1e-4)
    np.testing.assert_allclose(few.fitted.weight, many.fitted.weight[:5], atol=1e-3)
    assert (whole.argmax(dim=1).numpy() == y)[30:].mean() > 0.7


def test_unit_rows_have_length_one_and_zeros_stay():
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    for form in (np.asarray, sp.csr_array):
        found = unit_rows(form(X))
        np.testing.assert_allclose(found.toarray() if sp.issparse(found) else found, [[0.6, 0.8], [0, 0]])


def test_points_that_are_all_spread_alike_tell_nothing():
    points, labels, _ = case(4)
    ring = np.roll(np.eye(90), 1, axis=1)
    graphs = {"given": PointGraph(Graph.from_scipy(sp.csr_array(ring + ring.T)), 2, 0.5)}
    for width in (1, 60):  # columns spread themselves, and labeled rows alone
        rows = np.random.default_rng(0).uniform(1, 9, (90, 1)) * np.ones((1, width))
        learned = PageRankLinear("given").fit(replace(points, graphs=graphs, rows=rows), labels)
        assert float(np.abs(learned.fitted.weight).max()) == 0
        np.testing.assert_allclose(learned.fitted.predict(points), 1 / 3, atol=1e-3)
