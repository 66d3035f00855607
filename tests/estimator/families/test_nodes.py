from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from sobgnn.estimator.families.trees import joined, of_forest


def table(classes, rows=200, seed=0):
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 6)).astype(np.float32)
    return X, generator.integers(0, classes, rows) if classes > 2 else (X[:, 0] + X[:, 1] > 0).astype(int)


@pytest.mark.parametrize("grow", [RandomForestClassifier, ExtraTreesClassifier])
@pytest.mark.parametrize("classes", [2, 5])
def test_forests_predict_as_scikit_learn_does(grow, classes):
    X, y = table(classes)
    forest = grow(20, random_state=0).fit(X[:100], y[:100])
    trees = of_forest(forest, classes)
    np.testing.assert_allclose(trees.predict(X), forest.predict_proba(X), atol=1e-6)


def test_a_value_at_the_threshold_goes_left_as_in_scikit_learn():
    generator = np.random.default_rng(0)
    X = (2 * generator.integers(0, 3, (80, 4))).astype(np.float32)  # even numbers: thresholds are odd ones
    forest = RandomForestClassifier(20, random_state=0).fit(X, (X[:, 0] > X[:, 1]).astype(int))
    between = generator.integers(0, 5, (60, 4)).astype(np.float32)
    np.testing.assert_allclose(of_forest(forest, 2).predict(between), forest.predict_proba(between), atol=1e-6)


def test_a_class_that_was_not_there_has_no_share():
    X, y = table(3)
    forest = RandomForestClassifier(5, random_state=0).fit(X, np.where(y == 1, 2, y))
    assert (of_forest(forest, 3).predict(X)[:, 1] == 0).all()


def test_a_part_of_the_trees_predicts_as_those_trees_do():
    X, y = table(4)
    forest = RandomForestClassifier(9, random_state=0).fit(X[:100], y[:100])
    expected = np.mean([tree.predict_proba(X) for tree in forest.estimators_[2:7]], axis=0)
    trees = of_forest(forest, 4)
    np.testing.assert_allclose(trees.part(2, 7).predict(X), expected, atol=1e-6)
    np.testing.assert_array_equal(joined([trees.part(0, 2), trees.part(2, 9)]).predict(X), trees.predict(X))


def changed(trees, name, change):
    return replace(trees, **{name: change(getattr(trees, name).copy())})


def first(value):
    def change(part):
        part.flat[0] = value
        return part

    return change


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("column", first(99)),
        ("left", first(0)),  # a walk that would never end
        ("right", first(10**6)),
        ("root", first(-1)),
        ("root", lambda part: part[:0]),
        ("value", first(1e38)),
        ("value", lambda part: part[:, :2]),
        ("threshold", lambda part: part[:-1]),
    ],
)
def test_arrays_that_would_be_read_out_of_bounds_are_refused(name, change):
    X, y = table(4)
    trees = of_forest(RandomForestClassifier(3, random_state=0).fit(X, y), 4)
    trees.check({"columns": 6, "classes": 4})
    with pytest.raises(ValueError, match="its "):
        changed(trees, name, change).check({"columns": 6, "classes": 4})
