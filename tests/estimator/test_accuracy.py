from __future__ import annotations

import numpy as np
import pytest

from sobgnn.estimator.accuracy import estimate_accuracy
from sobgnn.estimator.interval import wilson_interval
from sobgnn.estimator.labels import Labels, with_folds


def labels_of(*counts, chosen=False):
    codes = np.repeat(np.arange(len(counts)), counts)
    return with_folds(codes, np.ones(len(codes)), len(counts), np.random.default_rng(0), chosen)


def predictions(labels, right):
    """Out-of-fold probabilities of which some are right."""
    codes = labels.codes[labels.judged]
    return np.eye(labels.classes)[np.where(right, codes, (codes + 1) % labels.classes)]


def test_a_class_counts_as_much_as_it_is_common():
    labels = labels_of(12, 12, chosen=True)
    accuracy, _, weight = estimate_accuracy(predictions(labels, labels.codes == 0), labels, np.array([0.9, 0.1]))
    assert accuracy == pytest.approx(0.9)
    assert weight[labels.codes == 0].sum() == pytest.approx(0.9)


def test_classes_that_are_never_held_out_count_as_unknown():
    labels = labels_of(40, 36, 2, 1, 1)
    shares = np.array([40, 36, 2, 1, 1]) / 80
    accuracy, (low, high), _ = estimate_accuracy(predictions(labels, np.arange(76) % 4 > 0), labels, shares)
    # Three of four are right; half as many of the class with two labels, and none where the class has one.
    assert accuracy == pytest.approx(0.75 * (76 / 80 + 0.5 * 2 / 80))
    inner = wilson_interval(0.75 * 76 / 2, 76 / 2)
    assert low == pytest.approx(inner[0] * 76 / 80)
    assert high == pytest.approx(inner[1] * 78 / 80 + 1 / 80)
    # The only label of a class that was chosen says nothing of classes without any.
    chosen = Labels(labels.index, labels.codes, labels.weight, labels.fold, 5, chosen=True)
    assert estimate_accuracy(predictions(labels, np.arange(76) % 4 > 0), chosen, shares)[0] > accuracy


def test_without_held_out_labels_nothing_is_known():
    labels = labels_of(1, 1, 2)
    accuracy, interval, _ = estimate_accuracy(np.zeros((0, 3)), labels, np.full(3, 1 / 3))
    assert np.isnan(accuracy)
    assert interval == (0, 1)


def test_the_interval_is_wide_enough_for_labels_that_predict_each_other():
    # By a symmetric kernel that knows little: the truth is the accuracy on many new points.
    covered = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        y, fold = np.arange(60) % 2, np.arange(60) // 2 % 4
        x = generator.normal(size=(60, 4)) + 0.3 * y[:, None]
        new = generator.normal(size=(1000, 4)) + 0.3 * (np.arange(1000) % 2)[:, None]
        signs = 2.0 * y - 1
        kernel = np.exp(-np.square(x[:, None] - x).sum(axis=2)) * (fold[:, None] != fold)
        truth = np.mean((np.exp(-np.square(new[:, None] - x).sum(axis=2)) @ signs > 0) == np.arange(1000) % 2)
        labels = Labels(np.arange(60), y, np.ones(60), fold, 2)
        _, (low, high), _ = estimate_accuracy(predictions(labels, (kernel @ signs > 0) == y), labels, np.full(2, 0.5))
        covered += low <= truth <= high
    assert covered >= 188


@pytest.mark.parametrize("truth", [0.6, 0.9])
def test_the_interval_holds_the_accuracy_of_labels_at_random(truth):
    labels = labels_of(30, 30)
    covered = 0
    for seed in range(300):
        right = np.random.default_rng(seed).random(60) < truth
        _, (low, high), _ = estimate_accuracy(predictions(labels, right), labels, np.full(2, 0.5))
        covered += low <= truth <= high
    assert covered >= 285
