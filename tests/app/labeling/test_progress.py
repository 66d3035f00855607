from __future__ import annotations

import numpy as np

from sobgnn.app.labeling.progress import Fit, advice, audit, changed_since_half, curve, sample
from sobgnn.app.labeling.store import Label


def fit(labels, predicted, accuracy=0.8, chosen=None):
    return Fit(labels, accuracy, (0.4, 0.9), 0.1, np.asarray(predicted), 0, labels if chosen is None else chosen)


def test_the_change_is_that_since_the_last_fit_with_half_the_labels():
    history = [fit(10, [0, 0, 0, 0]), fit(25, [0, 0, 1, 1]), fit(40, [1, 1, 1, 1]), fit(50, [0, 1, 1, 1])]
    assert changed_since_half(history) == (25, 0.25)
    assert changed_since_half(history[:1]) is None
    assert changed_since_half([]) is None


def test_more_labels_hardly_help_where_doubling_them_changed_almost_nothing():
    same = np.zeros(100)
    moved = np.concatenate([np.ones(10), np.zeros(90)])
    assert not advice([]).enough
    assert "Too early" in advice([fit(10, same), fit(20, same)]).sentence
    assert advice([fit(25, same), fit(50, same)]).enough
    assert not advice([fit(20, same), fit(49, same)]).enough
    said = advice([fit(50, same), fit(100, moved)])
    assert not said.enough
    assert "from 50 to 100 labels changed 10.0% of the predictions" in said.sentence


def test_labels_that_a_lasso_gave_at_once_count_as_one():
    same = np.zeros(100)
    lasso = advice([fit(10, same, chosen=10), fit(55, same, chosen=11)])
    assert not lasso.enough
    assert lasso.sentence.startswith("Too early")
    assert "given at once, on the map, count as one" in lasso.sentence
    assert not advice([fit(40, same, chosen=40), fit(90, same, chosen=60)]).enough  # no fit with half of them
    assert advice([fit(30, same, chosen=30), fit(150, same, chosen=60)]).enough


def test_the_audit_counts_rows_drawn_at_random_alone():
    labels = {
        1: Label(0, "", "person", audit=True, guess=0),
        2: Label(1, "", "person", audit=True, guess=0),
        3: Label(1, "", "person", audit=True),  # before the model guessed
        4: Label(1, "", "model", guess=1),
    }
    found = audit(labels, {})
    assert (found["drawn"], found["judged"], found["right"]) == (3, 2, 1)
    low, high = found["interval"]
    assert 0 < low < 0.5 < high < 1
    assert audit({}, {})["interval"] is None
    today = audit(labels, {2: 1, 3: 0, 4: 0})  # the model has improved, and judges rows while their label is held out
    assert (today["judged"], today["right"]) == (3, 2)


def test_the_curve_has_an_interval_where_accuracy_is_known():
    assert curve([fit(5, [0], None), fit(15, [0], 0.7)]) == [{"labels": 15, "accuracy": 0.7, "interval": (0.4, 0.9)}]


def test_predictions_of_the_same_rows_are_compared():
    assert (sample(np.arange(20_000)) == sample(np.arange(20_000))).all()
    assert len(set(sample(np.arange(20_000)).tolist())) == 5000
