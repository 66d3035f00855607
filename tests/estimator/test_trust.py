from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from sobgnn.estimator.labels import Labels, with_folds
from sobgnn.estimator.trust import (
    RISK,
    compare_with_chance,
    estimate_accuracy,
    find_acceptance,
    hard_labels,
    suspect_labels,
    wilson_interval,
)


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


def test_labels_that_are_all_predicted_right_are_at_most_100_percent():
    for classes in range(2, 12):
        labels = labels_of(*[20] * classes)
        shares = np.random.default_rng(classes).dirichlet(np.ones(classes))
        accuracy, (_, high), _ = estimate_accuracy(predictions(labels, True), labels, shares)
        assert accuracy <= 1
        assert high <= 1


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


def test_the_bound_of_the_accepted_labels_is_clopper_and_pearsons():
    generator = np.random.default_rng(0)
    confidence = generator.random(400)
    right = generator.random(400) < confidence**0.1
    found = find_acceptance(confidence, right, 0.9)
    taken = confidence >= found.threshold
    assert found.accepted == taken.sum()
    assert found.wrong == (~right[taken]).sum()
    level = 1 - 2 * RISK / 5  # one of five sequences, one-sided
    assert binomtest(found.wrong, found.accepted).proportion_ci(level, "exact").high <= 0.1 + 1e-9


def test_too_few_labels_support_no_threshold():
    needed = find_acceptance(np.zeros(0), np.zeros(0, bool), 0.95).needed
    confidence = np.linspace(0.5, 1, needed)
    assert find_acceptance(confidence[1:], np.ones(needed - 1, bool), 0.95).threshold is None
    found = find_acceptance(confidence, np.ones(needed, bool), 0.95)
    assert found.threshold == 0.5
    assert not find_acceptance(confidence[1:], np.ones(needed - 1, bool), 0.95).accepts(confidence).any()


def test_equal_confidences_are_accepted_together_or_not_at_all():
    confidence = np.repeat([0.9, 0.8], [100, 300])
    right = np.ones(400, bool)
    right[100:180] = False
    assert find_acceptance(confidence, right, 0.95).threshold == 0.9
    assert find_acceptance(np.full(400, 0.9), right, 0.95).threshold is None


def test_no_larger_share_of_the_predictions_is_accepted_than_of_the_labels():
    confidence = np.linspace(0, 1, 400)
    right = confidence > 0.5
    surer = np.sqrt(np.linspace(0, 1, 1000))
    alone = find_acceptance(confidence, right, 0.9)
    found = find_acceptance(confidence, right, 0.9, surer)
    assert alone.accepts(surer).mean() > alone.accepted / 400
    assert found.accepts(surer).mean() <= found.accepted / 400 + 1e-9


def test_accepted_predictions_keep_the_promise_in_nine_of_ten_draws():
    kept = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        confidence = generator.beta(4, 1, 3000)
        right = generator.random(3000) < confidence
        found = find_acceptance(confidence[:200], right[:200], 0.9)
        taken = found.accepts(confidence[200:])
        kept += not taken.any() or 1 - right[200:][taken].mean() <= 0.1
    assert kept >= 180


@pytest.mark.parametrize("target", [0, 1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(target):
    with pytest.raises(ValueError, match="between 0 and 1"):
        find_acceptance(np.ones(3), np.ones(3, bool), target)


def score(codes, probability):
    rows = np.arange(len(codes))
    return ((probability.argmax(axis=1) == codes) + probability[rows, codes]).mean()


def drawn(count, classes, strength, seed=0):
    generator = np.random.default_rng(seed)
    codes = generator.integers(0, classes, count)
    logits = strength * np.eye(classes)[codes] + generator.normal(size=(count, classes))
    return codes, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_the_p_value_is_the_share_of_permutations_that_score_as_well():
    codes, probability = drawn(6, 3, 1.0, seed=3)
    every = [score(np.array(order), probability) for order in itertools.permutations(codes)]
    exact = np.mean(np.array(every) >= score(codes, probability) - 1e-12)
    expected = norm.sf(norm.isf(exact) / np.sqrt(2))
    assert compare_with_chance(codes, probability).p_value == pytest.approx(expected, abs=0.02)


def test_knowledge_is_better_and_noise_is_guessing():
    for seed in range(5):
        assert compare_with_chance(*drawn(60, 4, 2.0, seed)).outcome == "better"
        codes, probability = drawn(60, 4, 2.0, seed)
        verdict = compare_with_chance(np.random.default_rng(seed).permutation(codes), probability)
        assert verdict.outcome != "better"


def test_what_no_permutation_reaches_is_as_unlikely_as_the_normal_distribution_says():
    codes, probability = drawn(60, 4, 2.0)
    spread = np.random.default_rng(0)
    sums = [score(spread.permutation(codes), probability) for _ in range(2000)]
    away = (score(codes, probability) - np.mean(sums)) / np.std(sums)
    assert away > 5
    assert np.log10(compare_with_chance(codes, probability).p_value) == pytest.approx(
        np.log10(norm.sf(away / np.sqrt(2))), rel=0.1
    )


@pytest.mark.parametrize("constant", [0, 1])
def test_a_constant_guess_never_passes_however_large_its_class(constant):
    codes = np.repeat([0, 1], [95, 5])
    probability = np.tile([0.9, 0.1] if constant == 0 else [0.2, 0.8], (100, 1))
    verdict = compare_with_chance(codes, probability)
    assert verdict.outcome == "guessing"
    assert verdict.p_value == 1
    assert verdict.majority == 0.95
    assert verdict.balanced == 0.5


def test_labels_unrelated_to_the_points_pass_as_seldom_as_the_p_value_says():
    # Out of fold by a symmetric kernel: two labels that agree by chance predict each other.
    found = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        x, codes, fold = generator.normal(size=(80, 6)), generator.integers(0, 2, 80), np.arange(80) % 4
        kernel = np.exp(-np.square(x[:, None] - x).sum(axis=2)) * (fold[:, None] != fold)
        votes = kernel @ (np.eye(2)[codes] - 0.5)
        p = 1 / (1 + np.exp(-4 * (votes - votes[:, ::-1])))
        found.append(compare_with_chance(codes, p).p_value)
    assert np.mean(np.array(found) < 0.05) < 0.09
    assert np.mean(np.array(found) < 0.01) < 0.035
    assert np.mean(np.array(found) < 0.001) < 0.02


CLASSES = np.array(["a", "b", "c"])


def found(codes, probability):
    rows = 10 * np.arange(len(codes))
    return suspect_labels(rows, np.asarray(codes), np.asarray(probability, dtype=float), CLASSES)


def calibrated(count, strength, wrong=0, seed=0):
    """Calibrated probabilities, labels drawn from them, and the places of the first few, which are made wrong."""
    generator = np.random.default_rng(seed)
    logits = strength * generator.normal(size=(count, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (p.cumsum(axis=1) > generator.random((count, 1))).argmax(axis=1)
    codes[:wrong] = p[:wrong].argmin(axis=1)
    return codes, p


def test_wrong_labels_are_found_the_most_suspicious_first():
    codes, p = calibrated(300, 6, wrong=15)
    suspects = found(codes, p)
    assert np.mean([s.row < 150 for s in suspects]) > 0.8
    assert len({s.row for s in suspects if s.row < 150}) >= 9
    assert [s.probability for s in suspects] == sorted(s.probability for s in suspects)
    first = suspects[0]
    assert (first.probability, first.predicted_probability) == (p[first.row // 10].min(), p[first.row // 10].max())
    assert first.given == CLASSES[codes[first.row // 10]]
    assert first.predicted == CLASSES[p[first.row // 10].argmax()]


@pytest.mark.parametrize("strength", [1, 2, 6])
def test_of_right_labels_that_are_hard_to_predict_none_or_few_are_suspect(strength):
    listed, hard = [], []
    for seed in range(20):
        codes, p = calibrated(300, strength, seed=seed)
        listed.append(len(found(codes, p)))
        hard.append(hard_labels(codes, p).sum())
    assert np.mean(np.array(listed) > 0) <= 0.1
    assert np.mean(listed) < 0.3 * np.mean(hard)


def test_no_more_are_listed_than_are_expected_to_be_wrong(monkeypatch):
    for wrong in (5, 15, 40):
        codes, p = calibrated(400, 6, wrong=wrong, seed=1)
        assert len(found(codes, p)) <= 1.5 * wrong
    monkeypatch.setattr("sobgnn.estimator.trust._probably_wrong", lambda p, given: np.full(len(p), 0.45))
    assert len(found([0] * 10, [[0.2, 0.8, 0.0]] * 10)) == 4


def test_labels_that_were_never_held_out_are_not_evaluated():
    codes, p = calibrated(300, 6, wrong=15)
    p[:150] = np.nan
    assert all(s.row >= 1500 for s in found(codes, p))
    assert found([0], [[np.nan] * 3]) == []
    assert found([1], [[0.0, 1.0, 0.0]]) == []
