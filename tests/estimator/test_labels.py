from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch

from sobgnn import SobolevClassifier
from sobgnn.estimator.labels import copies_together, encode_labels, with_folds


def labels(counts, seed=0):
    codes = np.concatenate([np.full(count, code) for code, count in enumerate(counts)] + [np.full(30, -1)])
    return with_folds(codes, np.ones(sum(counts)), len(counts), np.random.default_rng(seed))


def test_folds_are_even_and_stratified():
    made = labels([8, 8, 9])
    assert made.folds == 4
    np.testing.assert_array_equal(np.bincount(made.fold[made.codes == 0]), [2, 2, 2, 2])
    assert np.ptp(np.bincount(made.fold)) <= 1


def test_classes_with_fewer_than_three_labels_are_never_held_out():
    made = labels([10, 2, 3, 1])
    np.testing.assert_array_equal(made.judged, np.isin(made.codes, [0, 2]))
    known = made.known()
    assert known[:, ~made.judged].all()
    assert known[-1].all()


def test_with_fewer_than_two_labels_per_class_on_average_nothing_is_held_out():
    assert labels([4, 1, 1, 1]).folds == 0
    assert labels([5, 1, 1, 1]).folds == 4


def test_a_class_weighs_the_same_in_every_signal():
    made = labels([5, 9, 2])
    by_class = made.shares() @ np.eye(3)[made.codes]
    np.testing.assert_allclose(by_class, np.broadcast_to(by_class[-1], by_class.shape))
    np.testing.assert_allclose(made.shares().sum(axis=1), 1)
    assert (made.shares()[:-1][~made.known()[:-1]] == 0).all()


def test_out_of_fold_takes_each_label_from_the_signal_that_does_not_see_it():
    made = labels([6, 6])
    signals = torch.arange(made.folds + 1.0).view(-1, 1, 1).expand(-1, 42, 2)
    np.testing.assert_array_equal(made.out_of_fold(signals)[:, 0], made.fold)


@pytest.mark.parametrize("missing", [None, float("nan"), pd.NA])
def test_large_numbers_beside_missing_ones_stay_apart(missing):
    given = np.array([2**53, 2**53 + 1, missing, 2**53 + 2], dtype=object)
    classes, codes = encode_labels(given, 4)
    np.testing.assert_array_equal(classes, [2**53, 2**53 + 1, 2**53 + 2])
    np.testing.assert_array_equal(codes, [0, 1, -1, 2])


@pytest.mark.parametrize("missing", [None, float("nan"), -1, pd.NA])
def test_a_list_of_texts_keeps_what_is_unknown_unknown(missing):
    classes, codes = encode_labels(["a", missing, "b", "-2"], 4)
    assert classes.tolist() == ["-2", "a", "b"]
    np.testing.assert_array_equal(codes, [1, -1, 2, 0])


@pytest.mark.parametrize("y", [[0.0, 1.0, -1.0, np.nan], np.array([0, 1, -1, None], dtype=object)])
def test_two_marks_for_unlabelled_are_mentioned_since_one_may_be_a_class(y):
    with pytest.warns(UserWarning, match="If -1 is a class, give it another name"):
        _, codes = encode_labels(y, 4)
    np.testing.assert_array_equal(codes, [0, 1, -1, -1])


def test_labels_that_go_together_are_in_one_fold_and_count_once():
    codes = np.repeat([0, 1], 12)
    together = np.arange(24) // 3  # four different rows of each class, three times each
    fold = with_folds(codes, np.ones(24), 2, np.random.default_rng(0), together=together).fold
    for number in range(8):
        assert len(set(fold[together == number])) == 1
    assert sorted(fold[::3][:4]) == [0, 1, 2, 3]
    few = with_folds(codes, np.ones(24), 2, np.random.default_rng(0), together=np.arange(24) // 6).fold
    assert (few == -1).all()  # two different rows of each class


def test_minus_one_among_texts_of_numbers_is_a_class_and_that_is_said():
    with pytest.warns(UserWarning, match='The text "-1" is treated as a class'):
        classes, codes = encode_labels(np.array(["-1", "0", "1", "0"]), 4)
    assert classes.tolist() == ["-1", "0", "1"]
    assert codes.tolist() == [0, 1, 2, 1]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_labeled_copies_are_copies_together_where_the_unlabeled_points_have_none(form):
    rows = np.random.default_rng(0).normal(size=(6, 3))
    X = form(np.concatenate([rows[:2], rows[:2], rows[2:]]))
    codes = np.array([0, 1, 0, 1, 0, -1, -1, -1])
    together = copies_together(X, codes)
    assert (together[:, None] == together).sum() == 9  # two pairs and one by itself


def test_copies_are_no_matter_where_the_unlabeled_points_are_copies_too():
    X = np.tile([[0.0, 1.0], [1.0, 0.0]], (10, 1))
    assert copies_together(X, np.where(np.arange(20) < 10, 0, -1)) is None


def test_without_unlabeled_points_a_few_copies_are_copies_together_and_rows_of_few_values_are_not():
    rows = np.random.default_rng(0).normal(size=(10, 2))
    for times, found in ((3, True), (9, False), (1, False)):
        X = np.tile(rows, (times, 1))
        assert (copies_together(X, np.zeros(len(X), np.int64)) is not None) == found


def test_minus_zero_and_zero_are_copies():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [5.0, 5.0]])
    assert copies_together(X, np.array([0, 1, -1])).tolist() == [0, 0]


@pytest.mark.trains
def test_copies_do_not_make_noise_look_like_knowledge():
    generator = np.random.default_rng(3)
    rows, labels = generator.normal(size=(60, 5)), generator.integers(2, size=60)
    X = np.concatenate([rows, rows, rows, generator.normal(size=(100, 5))])
    y = np.concatenate([labels, labels, labels, np.full(100, -1)])
    fitted = SobolevClassifier(families=["forests", "diffusion"], random_state=0).fit(X, y)
    assert fitted.out_of_fold_accuracy_ < 0.7
