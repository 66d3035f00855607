from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn import Graph, knn_graph
from sobgnn.paper.models import MODELS
from sobgnn.paper.models.contract import Labels, Source
from sobgnn.paper.models.predictors import _sized, laplace, poisson, poisson_mbo, shifted_laplace


def predicted(model: str, graph: Graph, y: Labels) -> Labels:
    return MODELS[model].predict(Source(graph, torch.empty(0)), y, {"power": 1.0}, 0)


@pytest.fixture
def blobs() -> tuple[np.ndarray, np.ndarray, Graph]:
    """Two clouds of 60 points that touch."""
    generator = np.random.default_rng(0)
    X = np.concatenate([generator.normal(-1.2, 0.6, (60, 2)), generator.normal(1.2, 0.6, (60, 2))])
    return X, np.repeat([0, 1], 60), knn_graph(X, k=8)


def test_laplace_learning_is_the_harmonic_function_of_the_labels(blobs: tuple) -> None:
    _, truth, graph = blobs
    y = np.full(120, -1)
    labeled = [3, int(graph.indices[graph.indptr[3]]), 20, 110]  # two of them neighbors
    y[labeled] = truth[labeled]
    W = graph.to_scipy().toarray().astype(np.float64)
    L = np.diag(W.sum(axis=1)) - W
    known = y >= 0
    want = np.linalg.solve(L[~known][:, ~known], W[~known][:, known] @ np.eye(2)[y[known]])
    np.testing.assert_allclose(laplace(graph, y, 1.0)[~known], want, atol=1e-3)
    np.testing.assert_array_equal(predicted("Laplace", graph, y)[~known], want.argmax(axis=1))
    u = np.eye(2)[truth]
    u[~known] = want
    np.testing.assert_allclose(shifted_laplace(graph, y, 1.0), u - u.mean(axis=0) + [0.75, 0.25], atol=1e-3)


def test_poisson_learning_solves_the_poisson_equation_of_centred_labels(blobs: tuple) -> None:
    _, truth, graph = blobs
    y = np.full(120, -1)
    y[[3, 70, 110]] = truth[[3, 70, 110]]
    W = graph.to_scipy().toarray().astype(np.float64)
    degree = W.sum(axis=1)
    source = np.zeros((120, 2))
    source[y >= 0] = np.eye(2)[y[y >= 0]]
    source[y >= 0] -= source[y >= 0].mean(axis=0)
    u = np.linalg.lstsq(np.diag(degree) - W, source, rcond=None)[0]
    u -= (degree[:, None] * u).sum(axis=0) / degree.sum()
    np.testing.assert_allclose(poisson(graph, y, 1.0), u, atol=1e-2 * np.abs(u).max())
    clear = (np.abs(u[:, 0] - u[:, 1]) > 0.05 * np.abs(u).max()) & (y < 0)
    assert clear.mean() > 0.5
    got = predicted("Poisson", graph, y)
    np.testing.assert_array_equal(got[clear], u.argmax(axis=1)[clear])


def test_a_part_of_the_graph_without_labels_or_an_isolated_point_still_gets_labels() -> None:
    graph = Graph.from_edges(np.array([[0, 1, 3], [1, 2, 4]]), np.ones(3), num_nodes=6, symmetrize="union")
    y = np.array([0, -1, 1, -1, -1, -1])
    for model in ("Laplace", "ShiftedLaplace", "Poisson", "PoissonMBO"):
        labels = predicted(model, graph, y)
        assert set(labels) <= {0, 1}
        assert labels[0] == 0
        assert labels[2] == 1


def test_sizes_that_are_told_count_more_than_those_of_the_labels(blobs: tuple) -> None:
    _, truth, graph = blobs
    y = np.full(120, -1)
    y[[3, 40, 41, 42, 70]] = truth[[3, 40, 41, 42, 70]]
    labels, told = (poisson_mbo(graph, y, 1.0, sizes).argmax(dim=1).numpy() for sizes in (None, np.array([0.5, 0.5])))
    assert abs(told.mean() - 0.5) < abs(labels.mean() - 0.5)
    assert (told == truth).mean() > (labels == truth).mean()


def test_a_labeled_point_keeps_its_label(blobs: tuple) -> None:
    _, truth, graph = blobs
    y = np.where(np.arange(120) % 4 == 0, truth, -1)
    y[8] = 1  # among those of class 0
    assert poisson_mbo(graph, y, 1.0)[8].argmax() == 0
    assert predicted("PoissonMBO", graph, y)[8] == 1


def test_poisson_mbo_is_its_steps_written_densely(blobs: tuple) -> None:
    _, truth, graph = blobs
    y = np.full(120, -1)
    y[[3, 40, 70]] = truth[[3, 40, 70]]  # the first class has two labels of three, so two thirds of the points
    W = graph.to_scipy().toarray().astype(np.float64)
    L = np.diag(W.sum(axis=1)) - W
    source = np.zeros((120, 2))
    source[y >= 0] = np.eye(2)[y[y >= 0]] - [2 / 3, 1 / 3]
    u = poisson(graph, y, 1.0).numpy()
    for _ in range(20):
        for _ in range(40):
            u = u - (L @ u - source) / W.sum(axis=1).max()
        u = np.eye(2)[_sized(torch.from_numpy(u), torch.tensor([2 / 3, 1 / 3], dtype=torch.float64))]
    got = predicted("PoissonMBO", graph, y)
    # A rounding may decide about a point between two classes.
    assert (got[y < 0] == u.argmax(axis=1)[y < 0]).mean() > 0.98
    assert (got == 0).mean() > (predicted("Poisson", graph, y) == 0).mean() - 0.01
