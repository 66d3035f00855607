"""Poisson learning: its equation, how far a label reaches, sizes of classes, and when it takes part."""

from __future__ import annotations

import numpy as np
import pytest

from sobgnn import Graph, SobolevClassifier
from sobgnn.estimator.families.spreading import DiffusedLabels, PoissonLabels
from sobgnn.estimator.fit import chosen_families, fit_families
from sobgnn.estimator.labels import with_folds
from tests.estimator.cases import neighbors, points_of


def problem_of(X, graph=None):
    return points_of(X, neighbors(X) if graph is None else graph)


def labels_at(index, codes, count, chosen=True):
    y = np.full(count, -1)
    y[index] = codes
    return with_folds(y, np.ones(len(index)), int(max(codes)) + 1, np.random.default_rng(0), chosen)


def clouds(count=300, columns=40, apart=1.5, seed=0):
    """Two clouds in many columns, their truth, and the row of one label each."""
    generator = np.random.default_rng(seed)
    truth = np.arange(count) % 2
    return generator.normal(size=(count, columns)) + apart * truth[:, None], truth


def test_a_label_reaches_the_end_of_its_cluster_where_diffused_labels_fade():
    # Two chains of 40 nodes, each labeled at its first one, which a weak edge joins to the last one of the other.
    edges = np.array([[i, i + 1] for i in range(79)]).T
    graph = Graph.from_edges(edges, np.where(edges[0] == 39, 0.2, 1.0), num_nodes=80, symmetrize="union")
    problem = problem_of(np.arange(80.0)[:, None], graph)
    labels, truth = labels_at([0, 40], [0, 1], 80), np.repeat([0, 1], 40)
    found = PoissonLabels("neighbors").fit(problem, labels).fitted.spread.argmax(dim=1).numpy()
    faded = DiffusedLabels("neighbors").fit(problem, labels).fitted.spread.argmax(dim=1).numpy()
    assert (found == truth).mean() > 0.95
    assert (faded == truth).mean() < 0.85


@pytest.mark.parametrize(("apart", "trusted"), [(1.5, True), (0.0, False)])
def test_it_has_a_share_where_points_form_clusters(apart, trusted):
    X, truth = clouds(apart=apart)
    points, labels = problem_of(X), labels_at([0, 1], truth[:2], 300)
    fit = fit_families(points, labels, chosen_families(["diffusion", "poisson", "forests"], points, labels))
    shares = dict(zip([member.name for member in fit.members], fit.blend.shares, strict=True))
    assert (shares.get("poisson", 0) > 0.4) is trusted
    if trusted:
        assert (fit.distributions.argmax(dim=1).numpy() == truth).mean() > 0.95


def test_an_isolated_point_and_a_part_without_labels_are_even():
    graph = Graph.from_edges(np.array([[0, 1, 3], [1, 2, 4]]), np.full(3, 0.5), num_nodes=6, symmetrize="union")
    found = PoissonLabels("neighbors").fit(problem_of(np.zeros((6, 1)), graph), labels_at([0, 2], [0, 1], 6))
    probabilities = found.fitted.spread.numpy()
    assert np.isfinite(probabilities).all()
    np.testing.assert_array_equal(probabilities[[0, 2]].argmax(axis=1), [0, 1])
    np.testing.assert_allclose(probabilities[3:], 0.5, atol=1e-3)


@pytest.mark.cuda
def test_a_gpu_gives_what_the_cpu_gives_and_the_same_bits_every_time():
    X, truth = clouds()
    given = np.full(300, -1)
    given[:4] = truth[:4]
    cpu = SobolevClassifier(random_state=0, device="cpu").fit(X, given)
    gpu, again = (SobolevClassifier(random_state=0, device="cuda").fit(X, given) for _ in range(2))
    assert gpu.family_shares_["poisson"] > 0.1
    assert (cpu.transduction_ == gpu.transduction_).mean() > 0.98
    np.testing.assert_array_equal(gpu.label_distributions_, again.label_distributions_)


@pytest.mark.parametrize("unit", [1e-30, 1e13, 1e37])
def test_the_unit_of_the_weights_does_not_matter(unit):
    X, truth = clouds()
    graph = neighbors(X)
    labels = labels_at([0, 1], truth[:2], 300)
    scaled = graph.with_weight((graph.weight.double() * unit).float())
    found, expected = (
        PoissonLabels("neighbors").fit(problem_of(X, each), labels).fitted.spread for each in (scaled, graph)
    )
    np.testing.assert_allclose(found, expected, atol=1e-3)
