from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from sobgnn.neighbors import nearest
from sobgnn.neighbors.held import HeldPoints
from sobgnn.neighbors.hnsw import LINKS
from sobgnn.neighbors.index import Index, check_links

pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def searched():
    X = np.random.default_rng(0).normal(size=(2000, 6)).astype(np.float32)
    return X, nearest(X, 5, method="hnsw").searched


def test_an_exact_search_has_no_index():
    X = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
    assert nearest(X, 5, method="exact").searched is None


@pytest.mark.parametrize("k", [3, 12])
def test_the_index_of_a_search_finds_the_neighbors_of_new_points(searched, k):
    X, index = searched
    held = HeldPoints(torch.from_numpy(X), index=index)
    assert held.index_queries == 1
    new = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    found, distances = held.nearest(new, k, approximate=True)
    _, expected = held.nearest(new, k)
    assert found.shape == (40, k)
    assert (distances <= expected[:, -1:] * (1 + 1e-6)).mean() > 0.95


def test_made_again_from_its_links_it_answers_the_same(searched):
    X, index = searched
    points, new = torch.from_numpy(X), np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    expected = HeldPoints(points, index=index).nearest(new, 5, approximate=True)
    check_links(index.links, len(X), LINKS)
    for again in (Index(links=index.links), pickle.loads(pickle.dumps(index))):
        found = HeldPoints(points, index=again).nearest(new, 5, approximate=True)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


@pytest.mark.parametrize(("name", "place", "value"), [
    ("neighbors", 0, 2000), ("neighbors", 0, -2), ("levels", 3, 0), ("levels", 3, 7), ("entry", 0, 2000),
    ("effort", 0, 0),
])  # fmt: skip
def test_links_that_lead_out_of_memory_are_refused(searched, name, place, value):
    X, index = searched
    links = {key: part.copy() for key, part in index.links.items()}
    links[name][place] = value
    with pytest.raises(ValueError, match="contradict"):
        HeldPoints(torch.from_numpy(X), index=Index(links=links)).nearest(X[:1], 5, approximate=True)


def test_a_link_of_an_upper_level_to_a_point_below_it_is_refused(searched):
    X, index = searched
    links = {key: part.copy() for key, part in index.links.items()}
    high, low = int(np.argmax(links["levels"] > 1)), int(np.argmax(links["levels"] == 1))
    end = LINKS * int((links["levels"][: high + 1].astype(np.int64) + 1).sum())
    links["neighbors"][end - LINKS * (int(links["levels"][high]) - 1)] = low
    with pytest.raises(ValueError, match="contradict"):
        check_links(links, len(X), LINKS)
