from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from sobgnn.estimator.temperature import expected_calibration_error, fit_temperature, log_loss, sharpen


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
        lambda t: log_loss(sharpen(stated, np.exp(t)), codes).mean(), bounds=(-1.6, 1.6), method="bounded"
    )
    assert np.log(found) == pytest.approx(best.x, abs=1e-4)


def test_the_temperature_moves_by_rounding_where_the_probabilities_do():
    stated, codes = drawn(1.7, points=200)
    moved = stated * (1 + 1e-7 * np.random.default_rng(1).normal(size=stated.shape))
    assert fit_temperature(moved, codes) == pytest.approx(fit_temperature(stated, codes), rel=1e-6)


def test_labels_that_are_all_wrong_have_the_outermost_temperature():
    stated = np.array([[0.9, 0.1], [0.2, 0.8]])
    assert fit_temperature(stated, np.array([1, 0])) == pytest.approx(5)


@pytest.mark.parametrize("times", [5, 50])
def test_labels_that_are_all_right_make_no_surer_than_their_number_allows(times):
    stated, codes = np.tile([[0.8, 0.2], [0.3, 0.7]], (times, 1)), np.tile([0, 1], times)
    found = sharpen(stated, fit_temperature(stated, codes))
    assert found.max(axis=1).mean() == pytest.approx((2 * times + 1) / (2 * times + 2))


def test_sure_probabilities_are_not_made_less_sure_where_they_are_right():
    stated = np.tile([[0.999, 0.001], [0.001, 0.999]], (5, 1))
    assert fit_temperature(stated, np.tile([0, 1], 5)) == 1


def test_labels_of_one_class_tell_no_temperature():
    assert fit_temperature(np.tile([0.7, 0.3], (60, 1)), np.zeros(60, np.int64)) == 1


def test_weights_count_a_label_several_times():
    stated, codes = drawn(1.7, points=60)
    times = np.random.default_rng(2).integers(1, 4, size=60)
    often = fit_temperature(np.repeat(stated, times, axis=0), np.repeat(codes, times))
    assert fit_temperature(stated, codes, times.astype(np.float64)) == pytest.approx(often)


def test_sharpening_divides_logits():
    logits = np.array([[1.0, 2.0, -1.0]])
    softmax = lambda z: np.exp(z) / np.exp(z).sum()  # noqa: E731
    np.testing.assert_allclose(sharpen(softmax(logits), 2.5), softmax(logits / 2.5))


def test_zero_probabilities_stay_finite():
    certain = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    assert np.isfinite(log_loss(certain, np.array([1, 1]))).all()
    assert np.isfinite(sharpen(certain, 0.5)).all()
    assert sharpen(certain, 0.5).dtype == np.float32


def test_calibration_error_by_hand():
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.6, 0.4]])
    codes = np.array([0, 1, 0, 0])  # confidence 0.9: half right; confidence 0.6: all right
    assert expected_calibration_error(probabilities, codes) == pytest.approx(0.5 * 0.4 + 0.5 * 0.4)


def test_calibration_error_falls_after_the_temperature():
    stated, codes = drawn(2.5)
    mended = sharpen(stated, fit_temperature(stated, codes))
    assert expected_calibration_error(mended, codes) < 0.3 * expected_calibration_error(stated, codes)
