from __future__ import annotations

import numpy as np
import pytest

from sobgnn.preparation import CANDIDATES, choose_scale


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
def test_the_scaling_whose_neighbours_agree_with_the_labels_is_chosen(data, unit):
    X, y = data()
    assert choose_scale(X, y, 5, None, np.random.default_rng(0)).endswith("unit") == unit


def test_one_label_per_class_decides_nothing():
    X, y = rays()
    codes = np.full(len(y), -1)
    for code in range(8):
        codes[np.flatnonzero(y == code)[0]] = code
    assert choose_scale(X, codes, 5, None, np.random.default_rng(0)) == CANDIDATES[0]


def test_many_points_are_judged_by_a_sample(monkeypatch):
    X, y = rays(2000)
    monkeypatch.setattr("sobgnn.preparation._POINTS", 800)
    monkeypatch.setattr("sobgnn.preparation._LABELS", 700)
    assert choose_scale(X, y, 5, None, np.random.default_rng(0)).endswith("unit")
