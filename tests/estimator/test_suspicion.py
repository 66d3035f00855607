from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from sobgnn.estimator.outcome import shown_out_of_fold
from sobgnn.estimator.suspicion import hard_labels, suspect_labels

CLASSES = np.array(["a", "b", "c"])


def found(codes, probability):
    rows = 10 * np.arange(len(codes))
    return suspect_labels(rows, np.asarray(codes), np.asarray(probability, dtype=float), CLASSES)


def drawn(count, strength, wrong=0, seed=0):
    """Calibrated probabilities, labels drawn from them, and the places of the first few, which are made wrong."""
    generator = np.random.default_rng(seed)
    logits = strength * generator.normal(size=(count, 3))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    codes = (p.cumsum(axis=1) > generator.random((count, 1))).argmax(axis=1)
    codes[:wrong] = p[:wrong].argmin(axis=1)
    return codes, p


def test_wrong_labels_are_found_the_most_suspicious_first():
    codes, p = drawn(300, 6, wrong=15)
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
        codes, p = drawn(300, strength, seed=seed)
        listed.append(len(found(codes, p)))
        hard.append(hard_labels(codes, p).sum())
    assert np.mean(np.array(listed) > 0) <= 0.1
    assert np.mean(listed) < 0.3 * np.mean(hard)


def test_no_more_are_listed_than_are_expected_to_be_wrong(monkeypatch):
    for wrong in (5, 15, 40):
        codes, p = drawn(400, 6, wrong=wrong, seed=1)
        assert len(found(codes, p)) <= 1.5 * wrong
    monkeypatch.setattr("sobgnn.estimator.suspicion._probably_wrong", lambda p, given: np.full(len(p), 0.45))
    assert len(found([0] * 10, [[0.2, 0.8, 0.0]] * 10)) == 4


def test_labels_that_were_never_held_out_are_not_evaluated():
    codes, p = drawn(300, 6, wrong=15)
    p[:150] = np.nan
    assert all(s.row >= 1500 for s in found(codes, p))
    assert found([0], [[np.nan] * 3]) == []
    assert found([1], [[0.0, 1.0, 0.0]]) == []


def test_a_class_weight_is_no_evidence_against_labels_but_a_class_frequency_is():
    frequency, weight = np.array([0.2, 0.7, 0.1]), {"a": 0.1, "b": 5.0, "c": 1.0}
    own = np.array([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1]])
    estimator = SimpleNamespace(
        out_of_fold_probabilities_=own, class_weight=weight, classes_=CLASSES, labelled_codes_=np.array([0, 0]),
        predictor_=SimpleNamespace(ratio=frequency * list(weight.values())),
    )  # fmt: skip
    expected = own * frequency / (own * frequency).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(shown_out_of_fold(estimator, weighted=False), expected)
