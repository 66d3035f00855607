from __future__ import annotations

import numpy as np
import pytest

from sobgnn import SobolevClassifier
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.priors import (
    Frequencies,
    chosen_by_class,
    decide_frequencies,
    estimate_frequencies,
    estimate_priors,
    evenness,
    few_labeled,
    frequencies_of_sample,
    given_frequencies,
    label_frequencies,
    learned_frequencies,
    matching,
    raise_few_labeled,
    shift_priors,
    skill,
    supported,
)


def sampled(*counts):
    """Labels of points at random, none of them held out."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return Labels(np.arange(len(codes)), codes, np.ones(len(codes)), np.full(len(codes), -1), len(counts))


def points(frequencies, learned, count=20_000, seed=0):
    """True posteriors, under learned class frequencies, of normal points that follow others."""
    generator = np.random.default_rng(seed)
    y = generator.choice(len(frequencies), count, p=frequencies)
    centres = 2.0 * np.arange(len(frequencies))
    x = centres[y] + generator.normal(size=count)
    likelihood = np.exp(-0.5 * np.square(x[:, None] - centres))
    p = likelihood * learned
    return y, p / p.sum(axis=1, keepdims=True)


def test_frequencies_are_found_where_the_labels_had_others():
    truth, learned = np.array([0.75, 0.15, 0.1]), np.array([1, 1, 1]) / 3
    y, p = points(truth, learned)
    found = estimate_priors(p, learned)
    assert np.abs(found - truth).max() < np.abs(learned - truth).max() / 2
    before = (p.argmax(axis=1) == y).mean()
    after = (shift_priors(p, found / learned).argmax(axis=1) == y).mean()
    assert after > before + 0.02


def test_frequencies_that_the_labels_tell_already_are_left():
    truth = np.array([0.6, 0.3, 0.1])
    _, p = points(truth, truth)
    np.testing.assert_allclose(estimate_priors(p, truth), truth, atol=0.01)


def test_frequencies_that_families_learn_with_are_those_of_the_weights_not_of_the_numbers():
    codes, weight = np.array([0, 0, 0, 1]), np.array([0.5, 0.5, 0.5, 1.5])
    labels = Labels(np.arange(4), codes, weight, np.full(4, -1), 3)
    np.testing.assert_allclose(learned_frequencies(labels), [0.5, 0.5, 0])
    np.testing.assert_allclose(label_frequencies(labels), [0.75, 0.25, 0])


def test_shares_that_are_given_are_taken_and_checked():
    labels = Labels(np.arange(4), np.array([0, 0, 1, 1]), np.ones(4), np.full(4, -1), 2)
    classes = np.array(["a", "b"], dtype=object)
    np.testing.assert_allclose(given_frequencies({"a": 3, "b": 1}, classes, labels), [0.75, 0.25])
    np.testing.assert_allclose(given_frequencies(None, classes, labels), label_frequencies(labels))
    for wrong in ({"a": 1}, {"a": 0, "b": 1}, {"a": float("nan"), "b": 1}, "even", [0.5, 0.5]):
        with pytest.raises(ValueError, match="class_priors"):
            given_frequencies(wrong, classes, labels)


def test_labels_chosen_class_by_class_are_told_from_labels_drawn_at_random():
    def of(*counts):
        codes = np.repeat(np.arange(len(counts)), counts)
        return chosen_by_class(codes, len(counts))

    assert of(5, 5)
    assert of(20, 20, 20, 3)
    assert of(20, 20, 3)
    assert of(5, 5, 5, 1)
    assert of(19, 20, 20, 20, 2, 3)
    assert of(20, 20, 20, 16, 8)
    assert not of(200, 14)
    assert not of(20, 20, 3, 4, 5)
    assert not of(300, 100, 40, 7)
    assert not of(21, 9, 20)
    assert not of(168, 165, 154, 13)
    assert not of(161, 167, 163, 9)
    assert not of(4, 2, 4)


def test_random_draws_of_uneven_classes_are_seldom_taken_for_chosen_ones():
    generator = np.random.default_rng(0)
    for shares in ([0.4, 0.4, 0.2], [0.3, 0.3, 0.3, 0.1], [0.5, 0.3, 0.2]):
        draws = [generator.choice(len(shares), 60, p=shares) for _ in range(200)]
        assert np.mean([chosen_by_class(codes, len(shares)) for codes in draws]) < 0.1


def test_skill_is_zero_for_guesses_and_one_for_right_answers_whatever_the_class_sizes():
    codes = np.repeat([0, 1, 2], [30, 6, 6])
    labels = Labels(np.arange(42), codes, np.ones(42), np.arange(42) % 4, 3)
    assert skill(np.eye(3)[codes], labels) == pytest.approx(1)
    assert skill(np.eye(3)[np.zeros(42, int)], labels) == pytest.approx(0)
    assert skill(np.zeros((0, 3)), labels) == 0


def drawn(*counts):
    """Labels in four folds, so many of each class, classes counting alike."""
    codes = np.repeat(np.arange(len(counts)), counts)
    weight = (len(codes) / (len(counts) * np.array(counts)))[codes]
    chosen = chosen_by_class(codes, len(counts))
    return Labels(np.arange(len(codes)), codes, weight, np.arange(len(codes)) % 4, len(counts), chosen)


def test_a_class_with_few_labels_is_not_taken_for_rarer_than_the_others():
    # Its points are recognized half as often as they should be.
    truth = np.array([1, 1, 1]) / 3
    _, p = points(truth, truth)
    p = shift_priors(p, np.array([1.0, 1.0, 0.2]))
    for labels, rarer in ((drawn(20, 20, 20), True), (drawn(20, 20, 3), False)):
        own = np.eye(3)[labels.codes] * 0.98 + 0.01
        assert (decide_frequencies("auto", np.arange(3), p, own, labels).assumed[2] < 0.25) == rarer


def test_a_class_with_few_labels_is_raised_until_it_is_expected_as_often_as_the_others():
    truth = np.array([1, 1, 1]) / 3
    y, p = points(truth, truth)
    p = shift_priors(p, np.array([1.0, 1.0, 0.2]))
    labels = drawn(20, 20, 3)
    sure = np.eye(3)[labels.codes] * 0.98 + 0.01  # raising it costs the others nothing
    factor = raise_few_labeled(p, sure, labels)
    np.testing.assert_allclose(factor, [1, 1, 5], rtol=0.05)
    found = shift_priors(p, factor).argmax(axis=1)
    assert (found == y)[y == 2].mean() > (p.argmax(axis=1) == y)[y == 2].mean() + 0.1


def test_a_class_with_few_labels_is_raised_no_further_than_the_others_can_bear():
    truth = np.array([1, 1, 1]) / 3
    _, p = points(truth, truth)
    p = shift_priors(p, np.array([1.0, 1.0, 0.2]))
    labels = drawn(20, 20, 3)
    # Three of 40 labels of other classes are lost when the class becomes three times as probable: one more than 3 %.
    own = np.eye(3)[labels.codes] * 0.98 + 0.01
    own[[0, 1, 20]] = [[0.74, 0.01, 0.25], [0.74, 0.01, 0.25], [0.01, 0.74, 0.25]]
    factor = raise_few_labeled(p, own, labels)
    assert 1 < factor[2] < 3
    np.testing.assert_array_equal(factor[:2], 1)


def test_only_classes_with_few_labels_are_raised():
    p = np.full((10, 3), 1 / 3)
    for labels in (drawn(20, 20, 20), drawn(200, 40, 7)):
        np.testing.assert_array_equal(raise_few_labeled(p, np.eye(3)[labels.codes], labels), 1)
    np.testing.assert_array_equal(few_labeled(drawn(20, 20, 3)), [False, False, True])
    # A class that had no more than 12 points to label may well be rarer.
    np.testing.assert_array_equal(few_labeled(drawn(20, 20, 12)), False)
    np.testing.assert_array_equal(raise_few_labeled(p[:0], np.eye(3)[drawn(20, 20, 3).codes], drawn(20, 20, 3)), 1)


def test_factors_make_classes_expected_as_often_as_wanted():
    _, p = points(np.array([0.6, 0.3, 0.1]), np.array([1, 1, 1]) / 3, count=500)
    wanted, weight = np.array([0.45, 0.35, 0.2]), np.linspace(1, 2, 500)
    found = np.average(shift_priors(p, matching(p, wanted, weight)), axis=0, weights=weight)
    np.testing.assert_allclose(found, wanted, atol=0.01)
    np.testing.assert_array_equal(matching(p[:0], wanted), 1)


def test_a_class_without_points_is_not_conjured_up():
    p = np.full((50, 20), 1.0)
    p[:, 0] = 1e-12
    found = shift_priors(p, matching(p / p.sum(axis=1, keepdims=True), np.full(20, 1 / 20)))
    assert found[:, 0].max() < 1e-9


def test_a_small_difference_of_frequencies_is_taken_for_the_models_errors():
    labels, even = drawn(4, 4, 4), np.array([1, 1, 1]) / 3
    sure = np.eye(3)[labels.codes] * 0.98 + 0.01
    _, near = points(np.array([0.39, 0.31, 0.30]), even)
    found = estimate_frequencies(near, sure, labels)
    np.testing.assert_allclose(found.assumed, even)
    np.testing.assert_allclose(shift_priors(near, found.factor).mean(axis=0), even, atol=0.01)
    _, far = points(np.array([0.75, 0.15, 0.1]), even)
    found = estimate_frequencies(far, sure, labels)
    assert found.assumed[0] > 0.5
    np.testing.assert_allclose(found.factor, found.assumed / even)


def test_what_a_model_leans_toward_out_of_fold_is_not_taken_for_a_frequency():
    even = np.array([1, 1, 1]) / 3
    labels = drawn(4, 4, 4)
    _, p = points(even, even)
    leaning = np.array([5.0, 1.0, 1.0])
    own = np.eye(3)[labels.codes] * 0.4 + 0.2
    frequent = estimate_frequencies(shift_priors(p, leaning), own, labels).assumed[0]
    leant = estimate_frequencies(shift_priors(p, leaning), shift_priors(own, leaning), labels).assumed[0]
    assert abs(leant - 1 / 3) < 0.7 * abs(frequent - 1 / 3)


def test_many_labels_leave_less_of_a_leaning_to_be_taken_out():
    even = np.array([1, 1, 1]) / 3
    _, p = points(np.array([0.36, 0.33, 0.31]), even)
    few, many = (
        estimate_frequencies(p, np.eye(3)[own.codes], own).factor for own in (drawn(4, 4, 4), drawn(16, 16, 16))
    )
    np.testing.assert_allclose(many, np.sqrt(few))


def test_with_one_label_of_each_class_nothing_is_held_out_and_classes_are_evened():
    labels = Labels(np.arange(3), np.arange(3), np.ones(3), np.full(3, -1), 3, chosen=True)
    even = np.array([1, 1, 1]) / 3
    for frequencies, evened in (([0.45, 0.30, 0.25], True), ([0.9, 0.05, 0.05], False)):
        _, p = points(np.array(frequencies), even)
        found = decide_frequencies("auto", np.arange(3), p, np.zeros((0, 3)), labels)
        np.testing.assert_allclose(found.assumed, even)
        assert np.allclose(shift_priors(p, found.factor).mean(axis=0), even, atol=0.01) == evened
        assert np.allclose(found.factor, 1) != evened
    alone = decide_frequencies("auto", np.arange(3), p, np.zeros((0, 3)), labels, calibrated=False)
    np.testing.assert_array_equal(alone.factor, 1)


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
    assert "Made more probable because of few labels: 2 " in estimator.describe()


def test_labels_say_how_probable_it_is_that_classes_are_equally_common():
    def even(*counts):
        return evenness(np.repeat(np.arange(len(counts)), counts), len(counts))

    # Two classes, three labels: with equal frequencies 2^-3, with others 1 / 12 on average, whose ratio is 1.5.
    assert even(2, 1) == pytest.approx(1.5**2 / (1.5**2 + 36))
    assert even(4, 3, 2, 2, 1, 3, 2, 1, 1, 2) > 0.9
    assert even(20, 1) < 0.01
    assert even(330, 210, 240) < 0.01
    assert even(330, 320, 350) > 0.9


def test_classes_that_are_probably_even_are_expected_equally_often_whatever_the_labels_of_a_sample():
    counts = (4, 1, 2, 3, 1, 2, 3, 2, 1, 2)
    shares = np.array(counts) / sum(counts)
    _, p = points(np.full(10, 0.1), shares, count=2000)
    found = frequencies_of_sample(p, sampled(*counts))
    assert np.abs(found.assumed - 0.1).max() < 0.3 * np.abs(shares - 0.1).max()
    left = shift_priors(p, found.factor).mean(axis=0) - 0.1
    assert np.abs(left).max() < 0.5 * np.abs(p.mean(axis=0) - 0.1).max()


def test_a_model_that_has_seen_much_and_expects_other_frequencies_is_believed():
    # As many labels of each class as there were to be had: the rest is of two classes alone.
    counts = (20, 16, 18, 20, 15)
    _, p = points(np.array([0.5, 0.0, 0.0, 0.5, 0.0]), np.full(5, 0.2), count=2000)
    found = frequencies_of_sample(p, sampled(*counts))
    np.testing.assert_allclose(found.factor, 1)
    np.testing.assert_allclose(found.assumed, np.array(counts) / sum(counts))


def test_classes_that_are_not_even_keep_their_share_of_the_labels():
    counts = (40, 5, 3)
    _, p = points(np.array(counts) / 48, np.array(counts) / 48, count=2000)
    found = frequencies_of_sample(p, sampled(*counts))
    np.testing.assert_allclose(found.assumed, np.array(counts) / 48, atol=1e-3)
    np.testing.assert_allclose(found.factor, 1, atol=0.02)
    # Nothing can be told without points, or from a family's own probabilities.
    np.testing.assert_array_equal(frequencies_of_sample(p[:0], sampled(2, 3, 2)).factor, 1)
    alone = decide_frequencies("auto", np.arange(3), p, np.zeros((0, 3)), sampled(2, 3, 4), calibrated=False)
    np.testing.assert_array_equal(alone.factor, 1)
    np.testing.assert_allclose(alone.assumed, np.array([2, 3, 4]) / 9)


def test_a_class_that_is_never_held_out_does_not_lift_the_bound_on_raising():
    codes = np.repeat(np.arange(5), (6, 6, 6, 2, 1))
    fold = np.where(codes < 3, np.arange(len(codes)) % 3, -1)
    labels = Labels(np.arange(len(codes)), codes, np.ones(len(codes)), fold, 5, chosen=True)
    # Half of the other classes' labels are nearly taken for the last class.
    own = np.full((18, 5), 0.01)
    own[np.arange(18), codes[:18]] = 0.5
    own[::2, 4] = 0.4
    factor = raise_few_labeled(np.full((50, 5), [0.33, 0.33, 0.3, 0.03, 0.01]), own, labels)
    right = shift_priors(own, factor).argmax(axis=1) == codes[:18]
    assert right.mean() >= 0.97


def held_out(*counts):
    """Labels of points at random, all of them held out once."""
    codes = np.repeat(np.arange(len(counts)), counts)
    return Labels(np.arange(len(codes)), codes, np.ones(len(codes)), np.arange(len(codes)) % 4, len(counts))


def test_factors_go_no_further_than_out_of_fold_labels_allow():
    labels = held_out(20, 20)
    own = np.where(labels.codes[:, None] == [0, 1], 0.98, 0.02)
    own[20:28] = [0.3, 0.7]  # right, but not sure
    found = Frequencies(np.array([0.8, 0.2]), np.array([9.0, 1 / 9]))
    cut = supported(found, own, labels)
    # The 8 that are not sure would be lost, more than the root of 8: 0.3 (r²)ᵖ stays below 0.7.
    assert 1 < cut.factor[0] < np.sqrt(0.7 / 0.3)
    assert 0.5 < cut.assumed[0] < 0.8
    assert (shift_priors(own, cut.factor).argmax(axis=1) == labels.codes).all()


def test_factors_that_out_of_fold_labels_do_not_speak_against_stay():
    labels = held_out(20, 20)
    own = np.where(labels.codes[:, None] == [0, 1], 0.98, 0.02)
    found = Frequencies(np.array([0.7, 0.3]), np.array([2.0, 0.5]))
    assert supported(found, own, labels).factor.tolist() == [2.0, 0.5]
    assert supported(found, own[:0], sampled(20, 20)) is found  # nothing was held out
