from __future__ import annotations

import numpy as np

from sobgnn.app.labeling.labels import Label
from sobgnn.app.labeling.progress import Fit, advice, audit, curve


def fit(labels, predicted, accuracy=0.8, chosen=None):
    return Fit(labels, accuracy, (0.4, 0.9), np.asarray(predicted), 0, labels if chosen is None else chosen)


def test_more_labels_hardly_help_where_doubling_them_changed_almost_nothing():
    same = np.zeros(100)
    moved = np.concatenate([np.ones(10), np.zeros(90)])
    assert advice([fit(25, same), fit(50, same)]) == (
        True, "More labels will hardly help now: going from 25 to 50 labels changed 0.0% of the predictions."
    )  # fmt: skip
    since = [fit(10, same), fit(25, same), fit(50, same), fit(60, moved), fit(100, moved)]  # the last with half as many
    assert advice(since) == (
        False, "More labels still help: going from 50 to 100 labels changed 10.0% of the predictions."
    )  # fmt: skip


def test_what_is_missing_before_more_labels_can_be_judged_is_said():
    same = np.zeros(100)
    assert advice([]) == (False, "Too early to say whether more labels would help.")
    for fits in ([fit(10, same), fit(20, same)], [fit(20, same), fit(49, same)]):
        assert advice(fits) == (False, "Too early to say whether more labels would help: that takes 50 labels.")
    later = "Whether more labels would help shows after {} more: twice as many as the first fit here had."
    assert advice([fit(128, same)]) == (False, later.format(128))  # DATA had them
    assert advice([fit(128, same), fit(200, same)]) == (False, later.format(56))


def test_labels_that_a_lasso_gave_at_once_count_as_one():
    same = np.zeros(100)
    enough, lasso = advice([fit(10, same, chosen=10), fit(55, same, chosen=11)])
    assert not enough
    assert lasso.startswith("Too early")
    assert "given at once, on the map, count as one" in lasso
    assert not advice([fit(40, same, chosen=40), fit(90, same, chosen=60)])[0]  # no fit with half of them
    assert advice([fit(30, same, chosen=30), fit(150, same, chosen=60)])[0]


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
