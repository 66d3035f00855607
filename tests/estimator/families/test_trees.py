from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier

from sobgnn import SobolevClassifier
from sobgnn.estimator.families import trees


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
