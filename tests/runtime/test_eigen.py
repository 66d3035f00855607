from __future__ import annotations

import numpy as np
import pytest

from sobgnn.runtime.eigen import eigen


@pytest.mark.parametrize("small", [2048, 10], ids=["one thread", "numpy's threads"])
def test_values_are_in_order_and_vectors_rebuild_the_matrix(monkeypatch, small):
    monkeypatch.setattr("sobgnn.runtime.eigen._SMALL", small)
    half = np.random.default_rng(0).normal(size=(40, 25))
    matrix = half.T @ half
    values, vectors = eigen(matrix)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(vectors * values @ vectors.T, matrix, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(25), atol=1e-12)


def test_the_matrix_is_left_as_it_was_whatever_its_strides():
    matrix = np.arange(16.0).reshape(4, 4)
    symmetric = (matrix + matrix.T)[::-1, ::-1]
    before = symmetric.copy()
    np.testing.assert_allclose(eigen(symmetric)[0], np.linalg.eigvalsh(before), atol=1e-10)
    np.testing.assert_array_equal(symmetric, before)
