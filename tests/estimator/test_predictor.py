from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import SobolevClassifier


@pytest.fixture(scope="module")
def fitted():
    generator = np.random.default_rng(0)
    y = generator.integers(0, 3, 150)
    X = generator.normal(size=(3, 4))[y] * 2 + generator.normal(size=(150, 4))
    labels = np.where(np.arange(150) < 45, y, -1)
    classifier = SobolevClassifier(families=["sobolev", "diffusion"], epochs=30, n_members=2, k=5, random_state=0)
    return classifier.fit(X, labels).predictor_, X, generator.normal(size=(40, 4))


def test_a_point_is_predicted_as_it_is_among_others(fitted):
    predictor, _, new = fitted
    together = predictor(new)
    one_by_one = np.concatenate([predictor(new[row : row + 1]) for row in range(len(new))])
    np.testing.assert_allclose(together, one_by_one, atol=1e-5)
    np.testing.assert_allclose(together.sum(axis=1), 1, atol=1e-5)


def test_the_distance_to_the_nearest_training_point_and_the_progress_are_told(fitted):
    predictor, X, new = fitted
    distance, told = np.empty(len(new), np.float32), []
    predictor(new, progress=lambda done, total: told.append((done, total)), nearest=distance)
    places = predictor.placed.maps.networks
    expected = np.linalg.norm(places(new)[:, None] - places(X)[None], axis=2).min(axis=1)
    np.testing.assert_allclose(distance, expected, atol=1e-4)
    assert told == [(40, 40)]


def test_spacing_is_the_distance_to_the_nearest_other_training_point(fitted):
    predictor, _, _ = fitted
    places = predictor.placed.search.places.numpy()
    gaps = np.linalg.norm(places[:, None] - places[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    np.testing.assert_allclose(predictor.spacing(), gaps.min(axis=1), atol=1e-4)


@pytest.fixture
def joined():
    """Points, some labels, and a graph of 0/1 weights whose neighbors mostly agree."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 200)
    X = generator.normal(size=(200, 6)) + np.eye(6)[truth]
    likely = np.where(truth[:, None] == truth, 0.1, 0.01)
    half = np.triu(generator.random((200, 200)) < likely, 1)
    return X, np.where(np.arange(200) % 5 == 0, truth, -1), sp.csr_array((half + half.T).astype(float))


@pytest.mark.parametrize("family", ["sobolev", "pagerank", "links"])
def test_training_points_that_come_again_with_their_edges_get_what_they_had(joined, family, tmp_path):
    X, y, graph = joined
    settings = {"families": [family], "class_priors": None, "epochs": 40, "random_state": 0}
    model = SobolevClassifier(**settings).fit(X, y, graph=graph)
    again = model.predict_proba(X, graph=graph)
    assert np.abs(again - model.outcome_.distributions).max() < 0.1
    model.save(tmp_path / "model")
    loaded = SobolevClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X, graph=graph), again)


@pytest.mark.parametrize("family", ["pagerank", "links"])
def test_edges_are_counted_alike_at_new_points_too(joined, family):
    X, y, graph = joined
    heavy = graph.copy()
    rows = np.repeat(np.arange(200), np.diff(heavy.indptr))
    heavy.data = 1.0 + 50 * ((rows + heavy.indices) % 3 == 0)
    found = [
        SobolevClassifier(families=[family], class_priors=None, random_state=0).fit(X, y, graph=graph)
        for graph in (graph, heavy)
    ]
    np.testing.assert_allclose(
        found[0].predict_proba(X, graph=graph), found[1].predict_proba(X, graph=heavy), atol=1e-5
    )


@pytest.mark.parametrize("ambient", ["autocast", "default device"])
def test_what_is_set_for_all_of_torch_changes_nothing(joined, ambient):
    X, y, _ = joined
    model = SobolevClassifier(families=["sobolev", "linear"], epochs=20, n_members=2, k=5, random_state=0)
    want = model.fit(X, y).predict_proba(X[:20])
    before = torch.get_default_device()
    try:
        with torch.autocast("cpu", torch.bfloat16, enabled=ambient == "autocast"):
            if ambient == "default device":
                torch.set_default_device("meta")
            got = [model.predict_proba(X[:20]), model.fit(X, y).predict_proba(X[:20])]
    finally:
        torch.set_default_device(before)
    for found in got:
        np.testing.assert_array_equal(found, want)
