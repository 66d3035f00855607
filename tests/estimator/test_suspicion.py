from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from sobgnn.estimator.outcome import shown_out_of_fold
from sobgnn.estimator.suspicion import suspect_labels

CLASSES = np.array(["a", "b", "c"])


def found(codes, probability):
    rows = 10 * np.arange(len(codes))
    return suspect_labels(rows, np.asarray(codes), np.asarray(probability, dtype=float), CLASSES)


def test_a_label_is_suspect_where_another_class_is_five_times_as_probable():
    probability = [[0.125, 0.625, 0.25], [0.15, 0.6, 0.25], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1], [0.4, 0.49, 0.11]]
    suspects = found([0, 0, 1, 2, 2], probability)
    assert [(s.row, s.given, s.predicted) for s in suspects] == [(0, "a", "b"), (30, "c", "a")]


def test_the_most_suspicious_come_first():
    suspects = found([0, 0, 0, 0], [[0.1, 0.9, 0], [0, 0.7, 0.3], [0.02, 0.5, 0.48], [0, 0.9, 0.1]])
    assert [s.row for s in suspects] == [30, 10, 20, 0]
    assert (suspects[2].probability, suspects[2].predicted_probability) == (0.02, 0.5)


def test_labels_that_were_never_held_out_are_not_judged():
    nothing = [np.nan] * 3
    assert [s.row for s in found([0, 0], [nothing, [0.0, 1.0, 0.0]])] == [10]
    assert found([0], [nothing]) == []
    assert found([1], [[0.0, 1.0, 0.0]]) == []


def test_a_class_weight_is_no_evidence_against_labels_but_a_class_frequency_is():
    own = np.array([[0.5, 0.4, 0.1], [0.3, 0.6, 0.1]])
    frequency, weight = np.array([0.2, 0.7, 0.1]), {"a": 0.1, "b": 5.0, "c": 1.0}
    estimator = SimpleNamespace(
        out_of_fold_probabilities_=own, class_weight=weight, classes_=CLASSES, labelled_codes_=np.array([0, 0]),
        predictor_=SimpleNamespace(ratio=frequency * list(weight.values())),
    )  # fmt: skip
    suspects = suspect_labels(np.arange(2), np.array([0, 0]), shown_out_of_fold(estimator, weighted=False), CLASSES)
    assert [(s.row, s.predicted) for s in suspects] == [(1, "b")]
