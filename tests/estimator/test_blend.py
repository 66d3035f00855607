from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from sobgnn.estimator.blend import Blend, cross_fit, fit_blend, fit_shares, fit_temperature, log_loss, sharpen
from sobgnn.estimator.labels import Labels


def sharpened(p, temperature):
    return sharpen(torch.from_numpy(p), temperature).numpy()


def held(count, classes=3, seed=0):
    codes = np.random.default_rng(seed).integers(0, classes, count)
    return Labels(np.arange(count), codes, np.ones(count), np.arange(count) % 4, classes)


def guesses(codes, sure, seed, classes=3):
    """Probabilities that lean to the right class by ``sure``."""
    p = np.random.default_rng(seed).dirichlet(np.ones(classes), len(codes))
    return (1 - sure) * p + sure * np.eye(classes)[codes]


def test_shares_minimize_the_squared_error_and_the_distance_to_the_prior():
    labels = held(40)
    parts = np.stack([guesses(labels.codes, sure, seed) for seed, sure in enumerate((0.05, 0.5, 0.6))])
    counts, weight = np.array([2.0, 1.2, 0.8]), np.random.default_rng(1).uniform(0.5, 1.5, 40)

    def objective(w):
        error = np.square(np.einsum("f,flc->lc", w, parts) - np.eye(3)[labels.codes]).sum(axis=1)
        return weight @ error + counts.sum() * np.square(w - counts / counts.sum()).sum()

    grid = np.linspace(0, 1.2, 25)
    best = min((np.array(w) for w in itertools.product(grid, grid, grid)), key=objective)
    found = fit_shares(parts, labels.codes, weight, counts)
    np.testing.assert_allclose(found, best / best.sum(), atol=0.05)
    assert found.sum() == pytest.approx(1)


def test_with_few_labels_shares_stay_near_the_prior_and_with_many_the_best_family_wins():
    near, far = (
        fit_blend([guesses(x.codes, 0.2, 1), guesses(x.codes, 0.7, 2)], x, np.array([2.8, 1.2])).shares
        for x in (held(3), held(3000))
    )
    assert abs(near[0] - 0.7) < 0.25
    assert far[1] > 0.95
    assert held(0).folds == 0
    prior = fit_blend([np.zeros((0, 3))] * 2, held(0), np.array([6.0, 4.0]))
    assert prior.shares == (0.6, 0.4)


def test_a_small_share_is_none():
    labels = held(3000)
    blend = fit_blend([guesses(labels.codes, 0.0, 1), guesses(labels.codes, 0.9, 2)], labels, np.array([2.0, 2.0]))
    assert blend.shares == (0.0, 1.0)


def test_a_blend_is_the_weighted_mean_of_sharpened_probabilities():
    p, q = torch.tensor([[0.7, 0.3]]), torch.tensor([[0.2, 0.8]])
    blended = Blend((0.25, 0.75), (1.0, 0.5))([p, q])
    sharp = np.square([0.2, 0.8]) / np.square([0.2, 0.8]).sum()
    np.testing.assert_allclose(blended[0], 0.25 * np.array([0.7, 0.3]) + 0.75 * sharp, rtol=1e-6)
    np.testing.assert_allclose(Blend((0.0, 1.0), (1.0, 1.0))([p, q]), q)


def test_a_family_at_its_best_temperature_is_not_evaluated_by_how_sure_it_is():
    labels = held(400)
    flat = sharpened(guesses(labels.codes, 0.5, 1), 10)
    blend = fit_blend([flat, guesses(labels.codes, 0.0, 2)], labels, np.array([2.0, 2.0]))
    assert blend.shares[0] > 0.8
    assert blend.temperatures[0] < 0.3


def test_a_label_has_no_part_in_the_blend_that_predicts_it():
    labels = held(40)
    parts = [guesses(labels.codes, 0.3, seed) for seed in range(3)]

    def decide(own, judged):
        return fit_blend(own, judged, np.ones(3)), 0.7

    found = cross_fit(parts, labels, decide)
    rest = labels.fold != 2
    others = Labels(np.arange(30), labels.codes[rest], np.ones(30), labels.fold[rest], 3)
    blend, _ = decide([part[rest] for part in parts], others)
    expected = sharpened(blend([torch.from_numpy(part[~rest]) for part in parts]).numpy(), 0.7)
    np.testing.assert_allclose(found[~rest], expected)
    codes = labels.codes.copy()
    codes[7] = (codes[7] + 1) % 3
    changed = cross_fit(parts, Labels(labels.index, codes, labels.weight, labels.fold, 3), decide)
    np.testing.assert_array_equal(changed[labels.fold == 3], found[labels.fold == 3])
    assert not np.allclose(changed[labels.fold != 3], found[labels.fold != 3])


def drawn(temperature, points=4000, seed=0):
    """Probabilities off by a temperature, and labels drawn from the true ones."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(points, 4))
    true = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (true.cumsum(axis=1) > generator.random((points, 1))).argmax(axis=1)
    stated = np.exp(logits * temperature)
    return stated / stated.sum(axis=1, keepdims=True), codes


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_the_temperature_is_found_and_is_the_minimum(temperature):
    stated, codes = drawn(temperature)
    found = fit_temperature(stated, codes)
    assert found == pytest.approx(temperature, rel=0.08)
    best = minimize_scalar(
        lambda t: log_loss(sharpened(stated, np.exp(t)), codes).mean(), bounds=(-1.6, 1.6), method="bounded"
    )
    assert np.log(found) == pytest.approx(best.x, abs=1e-4)


def test_the_temperature_moves_by_rounding_where_the_probabilities_do():
    stated, codes = drawn(1.7, points=200)
    moved = stated * (1 + 1e-7 * np.random.default_rng(1).normal(size=stated.shape))
    assert fit_temperature(moved, codes) == pytest.approx(fit_temperature(stated, codes), rel=1e-6)


def test_labels_that_are_all_wrong_have_the_outermost_temperature():
    assert fit_temperature(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([1, 0])) == pytest.approx(5)


@pytest.mark.parametrize("times", [5, 50])
def test_labels_that_are_all_right_make_no_surer_than_their_number_allows(times):
    stated, codes = np.tile([[0.8, 0.2], [0.3, 0.7]], (times, 1)), np.tile([0, 1], times)
    found = sharpened(stated, fit_temperature(stated, codes))
    assert found.max(axis=1).mean() == pytest.approx((2 * times + 1) / (2 * times + 2))
    sure = np.tile([[0.999, 0.001], [0.001, 0.999]], (5, 1))  # already surer than ten labels allow: left as it is
    assert fit_temperature(sure, np.tile([0, 1], 5)) == 1


def test_labels_of_one_class_tell_no_temperature():
    assert fit_temperature(np.tile([0.7, 0.3], (60, 1)), np.zeros(60, np.int64)) == 1


def test_weights_count_a_label_several_times():
    stated, codes = drawn(1.7, points=60)
    times = np.random.default_rng(2).integers(1, 4, size=60)
    often = fit_temperature(np.repeat(stated, times, axis=0), np.repeat(codes, times))
    assert fit_temperature(stated, codes, times.astype(np.float64)) == pytest.approx(often)


def test_sharpening_divides_logits_and_zeros_stay_finite():
    logits = torch.tensor([[1.0, 2.0, -1.0]], dtype=torch.float64)
    torch.testing.assert_close(sharpen(logits.softmax(1), 2.5), (logits / 2.5).softmax(1))
    certain = torch.eye(2)
    assert sharpen(certain, 0.5).isfinite().all()
    assert np.isfinite(log_loss(certain.numpy(), np.array([1, 1]))).all()
