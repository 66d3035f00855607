from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn import SobolevClassifier
from sobgnn.estimator.labels import copies_together


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
