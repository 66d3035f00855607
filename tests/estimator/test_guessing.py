from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import norm

from sobgnn.estimator import guessing
from sobgnn.estimator.guessing import compare_with_chance


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


def test_what_few_labels_show_is_not_enough():
    # Of these 60 labels of two classes 46 are right: a p-value between the levels.
    codes = np.repeat([0, 1], 30)
    right = np.tile(np.repeat([True, False], [23, 7]), 2)
    probability = np.eye(2)[np.where(right, codes, 1 - codes)]
    verdict = compare_with_chance(codes, probability)
    assert guessing.BETTER_LEVEL < verdict.p_value < guessing.GUESSING_LEVEL
    assert verdict.outcome == "unknown"


@pytest.mark.parametrize("constant", [0, 1])
def test_a_constant_guess_never_passes_however_large_its_class(constant):
    codes = np.repeat([0, 1], [95, 5])
    probability = np.tile([0.9, 0.1] if constant == 0 else [0.2, 0.8], (100, 1))
    verdict = compare_with_chance(codes, probability)
    assert verdict.outcome == "guessing"
    assert verdict.p_value == 1
    assert verdict.majority == 0.95
    assert verdict.balanced == 0.5


def test_a_rare_class_that_is_found_is_better_than_guessing_though_accuracy_hardly_shows_it():
    codes = np.repeat([0, 1], [190, 10])
    probability = np.where(codes == 1, 0.6, 0.1)[:, None] * [-1, 1] + [1, 0]
    assert compare_with_chance(codes, probability).outcome == "better"


def test_few_labels_or_one_class_cannot_tell():
    codes, probability = drawn(8, 2, 0.0)
    assert compare_with_chance(codes, probability).outcome == "unknown"
    assert compare_with_chance(np.zeros(50, np.int64), np.tile([0.7, 0.3], (50, 1))).outcome == "unknown"
    assert compare_with_chance(np.zeros(0, np.int64), np.zeros((0, 2))).outcome == "unknown"


@pytest.mark.parametrize("strength", [0.0, 0.08])
def test_for_many_labels_the_normal_distribution_stands_for_permutations(monkeypatch, strength):
    codes, probability = drawn(1500, 3, strength, seed=1)
    near = compare_with_chance(codes, probability).p_value
    monkeypatch.setattr(guessing, "_MANY_LABELS", 10**9)
    assert near == pytest.approx(compare_with_chance(codes, probability).p_value, abs=0.02)


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
