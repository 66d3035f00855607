from __future__ import annotations

import numpy as np
import pytest

from sobgnn import SobolevClassifier
from sobgnn.estimator.frequencies import (
    check_class_priors,
    chosen_by_class,
    class_frequencies,
    estimate_priors,
    evenness,
    matching,
    shift_priors,
    supported_power,
)
from sobgnn.estimator.labels import Labels

EVEN = np.full(3, 1 / 3)


def labels_of(*counts, chosen=True, held=True):
    """Labels in four folds, so many of each class; if chosen class by class, classes have equal weight."""
    codes = np.repeat(np.arange(len(counts)), counts)
    weight = (len(codes) / (len(counts) * np.array(counts)))[codes] if chosen else np.ones(len(codes))
    fold = np.arange(len(codes)) % 4 if held else np.full(len(codes), -1)
    return Labels(np.arange(len(codes)), codes, weight, fold, len(counts), chosen)


def points(frequencies, learned=EVEN, count=5000, seed=0):
    """True posteriors, under learned class frequencies, of normal points that follow others."""
    generator = np.random.default_rng(seed)
    y = generator.choice(len(frequencies), count, p=frequencies)
    centers = 2.0 * np.arange(len(frequencies))
    x = centers[y] + generator.normal(size=count)
    p = np.exp(-0.5 * np.square(x[:, None] - centers)) * learned
    return y, p / p.sum(axis=1, keepdims=True)


def decided(p, labels, own=None, option="auto", **more):
    own = np.eye(labels.classes)[labels.codes[labels.judged]] * 0.9 + 0.1 / labels.classes if own is None else own
    return class_frequencies(option, np.arange(labels.classes), p, own, labels, **more)


def test_frequencies_are_found_where_the_labels_had_others():
    truth = np.array([0.75, 0.15, 0.1])
    y, p = points(truth)
    # The definition, for one step from the result: a mean of posteriors, and the prior with 0.3 of their number.
    found = estimate_priors(p, EVEN)
    again = (0.3 * EVEN + shift_priors(p, found / EVEN).mean(axis=0)) / 1.3
    np.testing.assert_allclose(found, again, atol=1e-4)
    assert np.abs(found - truth).max() < np.abs(EVEN - truth).max() / 2
    result = decided(p, labels_of(5, 5, 5))
    assert (shift_priors(p, result.factor).argmax(axis=1) == y).mean() > (p.argmax(axis=1) == y).mean()
    assert result.assumed[0] > 0.5


def test_a_small_difference_is_taken_for_the_models_errors_and_a_little_more_changes_little():
    _, near = points(np.array([0.36, 0.33, 0.31]))
    found = decided(near, labels_of(4, 4, 4))
    np.testing.assert_allclose(found.assumed, EVEN, atol=0.01)
    np.testing.assert_allclose(shift_priors(near, found.factor).mean(axis=0), EVEN, atol=0.01)
    # From equal to very uneven frequencies there is no jump.
    shares = np.linspace(1 / 3, 0.9, 60)
    factors = [decided(points(np.array([s, (1 - s) / 2, (1 - s) / 2]))[1], labels_of(5, 5, 5)).factor for s in shares]
    assert np.abs(np.diff(np.log(factors), axis=0)).max() < 0.25


def test_many_labels_leave_less_of_a_bias_to_be_removed_and_guesses_show_nothing():
    _, p = points(np.array([0.34, 0.33, 0.33]))
    few, many = decided(p, labels_of(4, 4, 4)).factor, decided(p, labels_of(64, 64, 64)).factor
    np.testing.assert_allclose(np.log(many), np.log(few) / 4, atol=1e-3)
    unsure = 0.01 * points(np.array([0.8, 0.1, 0.1]))[1] + 0.99 / 3
    np.testing.assert_allclose(decided(unsure, labels_of(4, 4, 4)).factor, 1, atol=0.02)


def test_a_class_with_few_labels_is_raised_until_it_is_expected_as_often_as_the_others():
    y, p = points(EVEN)
    p = shift_priors(p, np.array([1.0, 1.0, 0.2]))
    found = decided(p, labels_of(20, 20, 3))
    np.testing.assert_allclose(found.factor, [1, 1, 5], rtol=0.1)
    np.testing.assert_allclose(found.assumed, EVEN)
    recall = (shift_priors(p, found.factor).argmax(axis=1) == y)[y == 2].mean()
    assert recall > (p.argmax(axis=1) == y)[y == 2].mean() + 0.05
    # A class that had no more than 12 points to label may well be rarer; and nothing is raised unseen.
    assert decided(p, labels_of(20, 20, 12)).factor[2] < 1
    np.testing.assert_array_equal(decided(p, labels_of(20, 20, 3, held=False)).factor, 1)


def test_factors_go_no_further_than_out_of_fold_labels_allow():
    labels = labels_of(20, 20)
    own = np.where(labels.codes[:, None] == [0, 1], 0.98, 0.02)
    assert supported_power(np.array([4.0, 1 / 4]), own, labels) == 1
    own[20:28] = [0.3, 0.7]  # right, but not sure: 8 would be lost, more than the root of 8
    power = supported_power(np.array([9.0, 1 / 9]), own, labels)
    assert 0 < power < 0.5
    assert (shift_priors(own, np.array([9.0, 1 / 9]) ** power).argmax(axis=1) == labels.codes).all()
    assert supported_power(np.array([9.0, 1 / 9]), own[:0], labels_of(20, 20, held=False)) == 1
    # The same bound holds for a class with few labels.
    _, p = points(EVEN)
    rare = labels_of(20, 20, 3)
    own = np.eye(3)[rare.codes] * 0.1 + 0.3
    assert decided(shift_priors(p, np.array([1, 1, 0.2])), rare, own).factor[2] < 1.5


def test_labels_at_random_are_evened_as_far_as_their_numbers_support_it():
    def even(*counts):
        return evenness(np.repeat(np.arange(len(counts)), counts), len(counts))

    # Two classes, three labels: with equal frequencies 2^-3, with others 1 / 12 on average, whose ratio is 1.5.
    assert even(2, 1) == pytest.approx(1.5**2 / (1.5**2 + 36))
    assert even(4, 3, 2, 2, 1, 3, 2, 1, 1, 2) > 0.9
    assert even(20, 1) < 0.01
    assert even(330, 210, 240) < 0.01
    counts = (4, 1, 2, 3, 1, 2, 3, 2, 1, 2)
    shares = np.array(counts) / sum(counts)
    _, p = points(np.full(10, 0.1), shares, count=2000)
    found = decided(p, labels_of(*counts, chosen=False))
    assert np.abs(found.assumed - 0.1).max() < 0.3 * np.abs(shares - 0.1).max()
    left = shift_priors(p, found.factor).mean(axis=0) - 0.1
    assert np.abs(left).max() < 0.5 * np.abs(p.mean(axis=0) - 0.1).max()
    # Out-of-fold labels that equal frequencies would lose hold them back.
    sample = labels_of(*counts, chosen=False)
    own = np.where(np.eye(10)[sample.codes] > 0, 0.11, 0.89 / 9 * (1 + 0.01 * (sample.codes[:, None] % 2)))
    held = decided(p, sample, own)
    assert 0 < np.abs(np.log(held.factor)).max() < 0.8 * np.abs(np.log(found.factor)).max()
    assert np.abs(held.assumed - 0.1).max() > np.abs(found.assumed - 0.1).max()
    uneven = np.array([40, 5, 3]) / 48
    found = decided(points(uneven, uneven)[1], labels_of(40, 5, 3, chosen=False))
    np.testing.assert_allclose(found.assumed, uneven, atol=1e-3)
    np.testing.assert_allclose(found.factor, 1, atol=0.02)


def test_a_model_that_expects_quite_other_frequencies_than_even_labels_is_believed():
    # As many labels of each class as there were to be had: the rest is of two classes alone.
    _, p = points(np.array([0.5, 0.0, 0.0, 0.5, 0.0]), np.full(5, 0.2), count=2000)
    found = decided(p, labels_of(20, 16, 18, 20, 15, chosen=False))
    assert (shift_priors(p, found.factor).argmax(axis=1) == p.argmax(axis=1)).mean() > 0.8
    even = shift_priors(p, matching(p, np.full(5, 0.2)))
    assert (even.argmax(axis=1) == p.argmax(axis=1)).mean() < 0.7


def test_without_points_or_calibration_nothing_is_estimated_and_given_shares_are_used():
    _, p = points(np.array([0.9, 0.05, 0.05]))
    for labels in (labels_of(2, 3, 4, chosen=False), labels_of(4, 4, 4)):
        np.testing.assert_array_equal(decided(p[:0], labels).factor, 1)
        np.testing.assert_array_equal(decided(p, labels, calibrated=False).factor, 1)
    np.testing.assert_allclose(decided(p, labels_of(2, 3, 4, chosen=False), option=None).assumed, [2 / 9, 3 / 9, 4 / 9])
    found = decided(p, labels_of(4, 4, 4), option={0: 2, 1: 1, 2: 1})
    np.testing.assert_allclose(found.factor, np.array([0.5, 0.25, 0.25]) * 3)
    for wrong in ({0: 1}, {0: 0, 1: 1}, {0: float("nan"), 1: 1}, "even", [0.5, 0.5]):
        with pytest.raises(ValueError, match="class_priors"):
            check_class_priors(wrong, np.arange(2))


def test_labels_chosen_class_by_class_are_told_from_labels_drawn_at_random():
    def of(*counts):
        return chosen_by_class(np.repeat(np.arange(len(counts)), counts), len(counts))

    assert all(of(*c) for c in ((5, 5), (20, 20, 20, 3), (20, 20, 3), (5, 5, 5, 1), (20, 20, 20, 16, 8)))
    assert not any(of(*c) for c in ((200, 14), (20, 20, 3, 4, 5), (300, 100, 40, 7), (21, 9, 20), (4, 2, 4)))
    generator = np.random.default_rng(0)
    for shares in ([0.4, 0.4, 0.2], [0.3, 0.3, 0.3, 0.1], [0.5, 0.3, 0.2]):
        draws = [generator.choice(len(shares), 60, p=shares) for _ in range(200)]
        assert np.mean([chosen_by_class(codes, len(shares)) for codes in draws]) < 0.1


def test_the_estimator_raises_a_class_with_few_labels_says_so_and_keeps_to_it_in_a_refit():
    generator = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 80)
    X = generator.normal(size=(240, 2)) + np.array([[0, 0], [5, 0], [2.2, 1.5]])[truth]
    y = np.full(240, -1)
    for code, count in enumerate((16, 16, 3)):
        y[generator.permutation(np.flatnonzero(truth == code))[:count]] = code
    options = {"families": ("linear", "diffusion"), "random_state": 0, "warm_start": True}
    estimator = SobolevClassifier(**options).fit(X, y)
    plain = SobolevClassifier(**options, class_priors={0: 1, 1: 1, 2: 1}).fit(X, y)
    np.testing.assert_allclose(estimator.class_prior_, [1 / 3] * 3)
    raised = estimator.predictor_.ratio / plain.predictor_.ratio
    assert raised[2] > 1.05 * raised[0]
    np.testing.assert_allclose(raised[0], raised[1])
    assert "Made more probable because of few labels: 2 " in estimator.describe()
    assert "because of few labels" not in plain.describe()
    before = estimator.predictor_.ratio.copy()
    y[np.flatnonzero((y == -1) & (truth == 0))[0]] = 0
    assert not chosen_by_class(y[y >= 0], 3)  # 17, 16 and 3 may well be a random draw; what was decided stays
    np.testing.assert_allclose(estimator.fit(X, y).predictor_.ratio, before, rtol=0.1)


@pytest.mark.trains
def test_the_same_labels_of_uneven_classes_give_similar_labels_under_other_seeds():
    generator = np.random.default_rng(2)
    truth = (generator.random(800) < 0.07).astype(int)
    X = generator.normal(size=(800, 6))
    X[:, 0] += 1.6 * truth
    X[:, 1] += 1.2 * truth
    y = np.full(800, -1)
    for code in (0, 1):
        y[generator.permutation(np.flatnonzero(truth == code))[:5]] = code
    accuracy = [
        float((SobolevClassifier(random_state=seed).fit(X, y).transduction_ == truth)[y < 0].mean())
        for seed in range(5)
    ]
    assert np.ptp(accuracy) < 0.15
