from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sobgnn import datasets
from sobgnn.paper import data as datafiles
from sobgnn.paper.data import Prepared, development_and_test, per_class, ten_percent


def test_a_seed_draws_10_percent_for_training_and_45_for_validation_and_all_seeds_share_the_test_points() -> None:
    development, test = development_and_test(1000)
    split = ten_percent(development, 1000, seed=3)
    assert (len(split.train), len(split.validation), len(test)) == (100, 450, 450)
    np.testing.assert_array_equal(np.sort(np.concatenate([*split, test])), np.arange(1000))
    np.testing.assert_array_equal(split.train, ten_percent(development_and_test(1000)[0], 1000, seed=3).train)
    assert not np.array_equal(split.train, ten_percent(development, 1000, seed=4).train)


@pytest.mark.parametrize(("counts", "expected"), [((130, 140, 130), [20, 20, 20]), ((40, 40, 6), [20, 20, 3])])
def test_labels_per_class_are_that_many_of_each_and_as_many_validate_or_half_of_a_small_class(
    counts: tuple[int, ...], expected: list[int]
) -> None:
    y = np.repeat(np.arange(3), counts)
    development = np.random.default_rng(0).permutation(len(y))
    split = per_class(development, y, seed=1, count=20)
    assert [np.bincount(y[part]).tolist() for part in split] == [expected, expected]
    assert not set(split.train) & set(split.validation)


def test_a_prepared_file_gives_back_the_graph_and_nearly_the_features(toy: Prepared, folder: Path) -> None:
    loaded = datafiles.load("toy", folder)
    np.testing.assert_array_equal(loaded.y, toy.y)
    assert (loaded.graph.to_scipy() != toy.graph.to_scipy()).nnz == 0
    np.testing.assert_allclose(loaded.X, toy.X, rtol=1e-3, atol=1e-6)
    fewer = loaded.with_k(5)
    assert int(fewer.graph.degree.min()) == 5
    assert fewer.deviation == loaded.deviation == "features in float16"


def test_the_graph_of_a_data_set_is_used_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12])
    edges = np.concatenate([ring, ring[::-1]], axis=1)
    X, y = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32), np.arange(12) % 2
    monkeypatch.setattr(datasets, "load", lambda name: datasets.Dataset(name, X, y, ("a", "b"), edges))
    given = datafiles.prepare("ring")
    assert given.graph.num_edges == 24
    np.testing.assert_allclose(given.graph.weight, 0.5)  # D^(-1/2) A D^(-1/2) where every degree is 2
    np.testing.assert_array_equal(given.X, X)
    datafiles.save(given, tmp_path)
    loaded = datafiles.load("ring", tmp_path)
    assert loaded.deviation == "own graph, features in float16"
    with pytest.raises(ValueError, match="ring has a graph of its own: there is no k to change"):
        loaded.with_k(5)


def test_a_data_set_whose_columns_have_units_is_standardized(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, [1, 100], size=(60, 2)).astype(np.float32)
    for standardize, deviations in ((True, [1, 1]), (False, X.std(axis=0))):
        loaded = datasets.Dataset("toy", X, np.arange(60) % 2, ("a", "b"), standardize=standardize)
        monkeypatch.setattr(datasets, "load", lambda name, loaded=loaded: loaded)
        np.testing.assert_allclose(datafiles.prepare("toy").X.std(axis=0), deviations, rtol=1e-5)


@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_damaged_prepared_file_is_one_line(folder: Path, kept: float) -> None:
    path = folder / "toy.npz"
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"toy\.npz is not a readable npz file.*`sobgnn reproduce prepare`\.$"):
        datafiles.load("toy", folder)
