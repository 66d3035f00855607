from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA

from sobgnn.estimator.features import FeatureMap

X = np.random.default_rng(0).normal(size=(200, 12)) * np.logspace(-3, 3, 12) + 5


@pytest.mark.parametrize("scale", ["range", "standard"])
def test_columns_are_centred_and_divided_by_their_size(scale):
    z = FeatureMap.fit(X, scale=scale, n_components=None, seed=0)(X)
    size = np.ptp(X, axis=0) if scale == "range" else X.std(axis=0)
    expected = (X - X.mean(axis=0)) / size
    expected /= np.sqrt(expected.var(axis=0).mean())
    np.testing.assert_allclose(z, expected, atol=1e-4)
    assert z.dtype == np.float32


def test_constant_columns_are_ignored_here_and_in_new_points():
    constant = np.column_stack([X, np.full(200, 1e8)])
    z = FeatureMap.fit(constant, scale="range", n_components=None, seed=0)
    moved = constant.copy()
    moved[:, -1] = 7.0
    np.testing.assert_array_equal(z(moved), z(constant))


@pytest.mark.parametrize("scale", ["range", None])
def test_many_columns_become_principal_components_of_mean_variance_one(scale):
    z = FeatureMap.fit(X, scale=scale, n_components=4, seed=0)(X)
    scaled = (X - X.mean(axis=0)) / np.ptp(X, axis=0) if scale else X
    theirs = PCA(4).fit_transform(scaled)
    theirs /= np.sqrt(theirs.var(axis=0).mean())
    np.testing.assert_allclose(np.abs(z), np.abs(theirs), atol=1e-3 * np.abs(theirs).max())


def test_sparse_rows_are_projected_have_length_one_and_mean_variance_one():
    S = sp.random_array((300, 2000), density=0.02, random_state=np.random.default_rng(0), format="csr")
    features = FeatureMap.fit(S, scale="range", n_components=10, seed=0)
    z = features(S)
    assert z.shape == (300, 10)
    assert z.var(axis=0).mean() == pytest.approx(1, rel=1e-4)
    assert features.center is not None
    length = np.linalg.norm(z / features.gain + features.center, axis=1)
    np.testing.assert_allclose(length, 1, rtol=1e-4)
    np.testing.assert_array_equal(FeatureMap.fit(S, scale="range", n_components=10, seed=0)(S), z)


def test_blocks_of_rows_do_not_show(monkeypatch):
    whole = FeatureMap.fit(X, scale="range", n_components=5, seed=0)
    monkeypatch.setattr("sobgnn.estimator.features._ROWS_PER_BLOCK", 7)
    parts = FeatureMap.fit(X, scale="range", n_components=5, seed=0)
    np.testing.assert_allclose(parts(X), whole(X), atol=1e-4)


@pytest.mark.parametrize("components", [None, 4])
@pytest.mark.parametrize("scale", ["range-unit", "unit"])
def test_unit_rows_are_centred_columns_divided_by_the_length_of_the_row(scale, components):
    features = FeatureMap.fit(X, scale=scale, n_components=components, seed=0)
    centred = X - X.mean(axis=0)
    if scale == "range-unit":
        centred /= np.ptp(X, axis=0)
    if components:
        centred = PCA(components).fit_transform(centred)
    expected = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    expected -= expected.mean(axis=0)
    expected /= np.sqrt(expected.var(axis=0).mean())
    got = features(X)
    if components:  # principal axes have no sign
        got, expected = np.abs(got - got.mean(axis=0)), np.abs(expected)
    np.testing.assert_allclose(got, expected, atol=2e-3)


@pytest.mark.parametrize("sparse", [False, True])
def test_rows_of_zeros_are_not_nearer_to_all_others_than_those_to_each_other(sparse):
    generator = np.random.default_rng(0)
    X = (generator.random((200, 60)) < 0.08).astype(float)
    X[:3] = 0
    if not sparse:
        X -= X.mean(axis=0)
        X[:3] = 0
    points = sp.csr_array(X) if sparse else X
    z = FeatureMap.fit(points, scale="unit", n_components=40 if sparse else None, seed=0)(points)
    distance = np.linalg.norm(z[:, None] - z[None], axis=2)
    np.fill_diagonal(distance, np.inf)
    nearest = np.argsort(distance, axis=1)[3:, :10]
    assert (nearest < 3).mean() < 0.1
