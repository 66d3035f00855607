from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import SobolevClassifier
from sobgnn.estimator.copies import held_together


def scaled(X):
    return torch.from_numpy(X.toarray() if sp.issparse(X) else X).float()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_labeled_copies_are_held_together_where_the_unlabeled_points_have_none(form):
    rows = np.random.default_rng(0).normal(size=(6, 3))
    X = form(np.concatenate([rows[:2], rows[:2], rows[2:]]))
    codes = np.array([0, 1, 0, 1, 0, -1, -1, -1])
    together = held_together(X, codes, scaled(X))
    assert (together[:, None] == together).sum() == 9  # two pairs and one by itself


def test_copies_are_no_matter_where_the_unlabeled_points_are_copies_too():
    X = np.tile([[0.0, 1.0], [1.0, 0.0]], (10, 1))
    assert held_together(X, np.where(np.arange(20) < 10, 0, -1), scaled(X)) is None


def test_without_unlabeled_points_a_few_copies_are_held_together_and_rows_of_few_values_are_not():
    rows = np.random.default_rng(0).normal(size=(10, 2))
    for times, found in ((3, True), (9, False), (1, False)):
        X = np.tile(rows, (times, 1))
        assert (held_together(X, np.zeros(len(X), np.int64), scaled(X)) is not None) == found


def test_minus_zero_and_zero_are_copies():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [5.0, 5.0]])
    assert held_together(X, np.array([0, 1, -1]), scaled(X)).tolist() == [0, 0]


@pytest.mark.trains
def test_copies_do_not_make_noise_look_like_knowledge():
    generator = np.random.default_rng(3)
    rows, labels = generator.normal(size=(60, 5)), generator.integers(2, size=60)
    X = np.concatenate([rows, rows, rows, generator.normal(size=(100, 5))])
    y = np.concatenate([labels, labels, labels, np.full(100, -1)])
    fitted = SobolevClassifier(families=["forests", "diffusion"], random_state=0).fit(X, y)
    assert fitted.out_of_fold_accuracy_ < 0.7


def several_rows_of_each(labeled, others, rows=4, seed=0):
    """Rows of each of some objects, a little apart; those of the first objects are labeled, by a coin."""
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(labeled + others, 20))  # in so many columns none is near another by chance
    X = np.repeat(centers, rows, axis=0) + 0.01 * generator.normal(size=((labeled + others) * rows, 20))
    y = np.repeat(generator.integers(2, size=labeled + others), rows)
    return X, np.where(np.arange(len(y)) < labeled * rows, y, -1)


def test_near_copies_are_held_together_where_the_unlabeled_points_have_none():
    X, codes = several_rows_of_each(20, 30)
    together = held_together(X, codes, scaled(X))
    assert together.tolist() == np.repeat(np.arange(20), 4).tolist()
    # Labels at random: other rows of the same objects are among those to be predicted.
    shuffled = np.random.default_rng(1).permutation(codes)
    assert held_together(X, shuffled, scaled(X)) is None


def test_a_dense_place_where_much_was_labeled_is_no_origin():
    generator = np.random.default_rng(0)
    X = np.concatenate([0.01 * generator.normal(size=(60, 2)), 5 + generator.normal(size=(100, 2))])
    assert held_together(X, np.where(np.arange(160) < 60, np.arange(160) % 2, -1), scaled(X)) is None


@pytest.mark.trains
def test_near_copies_do_not_make_noise_look_like_knowledge_and_count_once():
    X, y = several_rows_of_each(50, 100)
    fitted = SobolevClassifier(families=["forests", "diffusion"], random_state=0).fit(X, y)
    assert fitted.out_of_fold_accuracy_ < 0.75
    assert np.isfinite(fitted.out_of_fold_probabilities_).all(axis=1).sum() == 50
    assert "150 further labels are of copies or near copies" in fitted.describe()
