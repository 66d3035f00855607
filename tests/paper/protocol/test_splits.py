from __future__ import annotations

import numpy as np
import pytest

from sobgnn.paper.protocol.splits import development_and_test, per_class, ten_percent


def test_the_shares_are_10_45_45_and_the_parts_are_disjoint() -> None:
    development, test = development_and_test(1000)
    split = ten_percent(development, 1000, seed=3)
    assert (len(split.train), len(split.validation), len(test)) == (100, 450, 450)
    parts = np.concatenate([*split, test])
    np.testing.assert_array_equal(np.sort(parts), np.arange(1000))


def test_a_split_is_a_function_of_its_seed() -> None:
    development, _ = development_and_test(300)
    again, _ = development_and_test(300)
    np.testing.assert_array_equal(development, again)
    first, same, other = (ten_percent(development, 300, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.train, same.train)
    assert not np.array_equal(first.train, other.train)


def test_labels_per_class_are_that_many_of_each_and_as_many_validate() -> None:
    y = np.random.default_rng(0).integers(4, size=400)
    development, test = development_and_test(400)
    split = per_class(development, y, seed=1, count=5)
    assert np.bincount(y[split.train]).tolist() == [5] * 4
    assert np.bincount(y[split.validation]).tolist() == [5] * 4
    assert not set(split.train) & set(split.validation)
    assert not (set(split.train) | set(split.validation)) & set(test)


def test_a_class_of_few_points_is_shared_between_training_and_validation() -> None:
    y = np.array([0] * 40 + [1] * 6)
    development = np.arange(46)
    split = per_class(development, y, seed=0, count=20)
    assert np.bincount(y[split.train]).tolist() == [20, 3]
    assert np.bincount(y[split.validation]).tolist() == [20, 3]


def test_a_share_that_leaves_nothing_to_validate_is_an_error() -> None:
    development, _ = development_and_test(100)
    with pytest.raises(ValueError, match="Pass a smaller share"):
        ten_percent(development, 100, seed=0, share=0.9)
