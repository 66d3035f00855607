from __future__ import annotations

import numpy as np
import pytest

from sobgnn.estimator.scaling import CANDIDATES, Scales, decide_scales, looks_embedded

pytestmark = pytest.mark.trains


def rays(points=800, classes=8, seed=0):
    """Classes are directions; lengths say nothing and differ by orders of magnitude."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, classes, points)
    X = generator.normal(size=(classes, 30))[y] + 1.5 * generator.normal(size=(points, 30))
    return X * 30 ** generator.uniform(-1, 1, size=(points, 1)), y


def shells(points=300, seed=0):
    """Classes are distances from the origin; directions say nothing."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, points)
    X = generator.normal(size=(points, 3))
    return X / np.linalg.norm(X, axis=1, keepdims=True) * (1 + 2 * y[:, None]), y


@pytest.mark.parametrize(("data", "unit"), [(rays, True), (shells, False)])
def test_the_scaling_whose_neighbors_agree_with_the_labels_is_chosen(data, unit):
    X, y = data()
    assert decide_scales("auto", X, y, 5, None, np.random.default_rng(0)).neighbors.endswith("unit") == unit


def test_one_label_per_class_decides_nothing():
    X, y = shells()
    codes = np.full(len(y), -1)
    for code in range(2):
        codes[np.flatnonzero(y == code)[0]] = code
    assert decide_scales("auto", X, codes, 5, None, np.random.default_rng(0)) == Scales(CANDIDATES[0], CANDIDATES[0])
    assert decide_scales("auto", np.exp(5 * X), codes, 5, None, np.random.default_rng(0)) == Scales("rank", "rank")


def embedded(points=200, columns=48, seed=0):
    """Singular vectors: centered columns in one unit, some wider than others."""
    generator = np.random.default_rng(seed)
    return generator.normal(size=(points, columns)) * np.linspace(3, 1, columns)


def test_what_looks_like_embeddings_is_taken_for_directions_where_labels_are_few():
    X = embedded()
    codes = np.full(len(X), -1)
    codes[:3] = range(3)
    assert decide_scales("auto", X, codes, 5, None, np.random.default_rng(0)) == Scales("unit", "unit")
    codes[:12] = np.arange(12) % 3
    assert decide_scales("auto", X, codes, 5, None, np.random.default_rng(0)).neighbors == "unit"


@pytest.mark.parametrize(
    "other",
    [
        lambda X: X[:, :20],  # few columns
        lambda X: np.abs(X),  # pixels, counts
        lambda X: X + 5,  # not centered
        lambda X: (X - X.mean(axis=0)) / X.std(axis=0),  # standardized
        lambda X: X * np.logspace(0, 3, X.shape[1]),  # units of their own
        lambda X: X * np.logspace(-1, 1, len(X))[:, None],  # lengths that may tell something
        lambda X: np.zeros_like(X),
        lambda X: X[:1],
    ],
)
def test_other_columns_are_not_taken_for_embeddings(other):
    assert looks_embedded(embedded())
    assert looks_embedded(1e300 * embedded())
    assert not looks_embedded(other(embedded()))
