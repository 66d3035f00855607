from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from sobgnn import SobolevClassifier
from sobgnn.estimator.families import trees
from sobgnn.estimator.families.trees import joined, of_forest
from sobgnn.estimator.state import check_parts


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
    check_parts(trees, {"columns": 6, "classes": 4})
    with pytest.raises(ValueError, match="its "):
        check_parts(changed(trees, name, change), {"columns": 6, "classes": 4})


@pytest.mark.parametrize(("kind", "forest"), [("random", RandomForestClassifier), ("extra", ExtraTreesClassifier)])
def test_trees_are_those_of_scikit_learn(kind, forest):
    draw = np.random.default_rng(0)
    X, y, weight = draw.normal(size=(60, 8)).astype(np.float32), draw.integers(3, size=60), draw.random(60)
    found = trees.grown(kind, 6, X, y, weight, np.random.default_rng(5))
    seed = int(np.random.default_rng(5).integers(2**31))
    expected = forest(6, max_features=4, random_state=seed).fit(X, y, sample_weight=weight * 60)
    assert len({tree.random_state for tree in expected.estimators_}) == 6
    for own, other in zip(found.estimators_, expected.estimators_, strict=True):
        np.testing.assert_array_equal(own.tree_.threshold, other.tree_.threshold)
        np.testing.assert_array_equal(own.tree_.value, other.tree_.value)


def test_many_classes_have_fewer_trees_and_the_description_says_so(monkeypatch):
    X = np.random.default_rng(0).normal(size=(60, 6)).astype(np.float32)
    y = np.where(np.arange(60) < 40, np.arange(60) % 20, -1)
    monkeypatch.setattr(trees, "_MOST_SHARES", 40 * 20 * 10)
    model = SobolevClassifier(families=["forests"], random_state=0).fit(X, y)
    assert len(model.predictor_.members[0].fitted.trees.root) == 2 * 10
    assert "only 20 trees, as points or classes are many" in model.describe()
