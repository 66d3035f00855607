from __future__ import annotations

import io
from collections import Counter
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from sobgnn.app.runs import predict as run_predict
from sobgnn.app.runs.predict import Found
from sobgnn.app.runs.run import Checks
from sobgnn.estimator.trust import Acceptance
from sobgnn.tables import Batch, TableEncoder
from sobgnn.tables.encoding import Encoding


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_of_a_file_wait_until_there_are_many(make, monkeypatch):
    rows = np.arange(22, dtype=np.float32).reshape(11, 2)
    ids = np.arange(11).astype(str).astype(object)

    def batches():
        for start in (0, 3, 6, 9):
            yield Batch(start, make(rows[start : start + 3]), ids[start : start + 3])

    def sizes(many):
        parts = list(run_predict._joined(batches(), many))
        X = np.concatenate([part.X.toarray() if sp.issparse(part.X) else part.X for part in parts])
        np.testing.assert_array_equal(X, rows)
        np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), ids)
        return [(part.first_row, part.X.shape[0]) for part in parts]

    assert sizes(None) == sizes(2) == [(0, 3), (3, 3), (6, 3), (9, 2)]
    assert sizes(5) == [(0, 6), (6, 5)]
    assert sizes(100) == [(0, 11)]
    monkeypatch.setattr(run_predict, "_JOINED_BYTES", 32)
    assert sizes(100) == [(0, 6), (6, 5)]


CHECKS = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
SURE = np.array([[0.99, 0.1], [0.99, 0.1]], np.float32)
SECOND, BOTH = np.array([False, True]), np.array([True, True])


def predicted(*batches, checks=CHECKS, encoding=None, known=None):
    """Predictions and notes; a point's first feature is the probability of the second class, its other the distance."""

    def predictor(X, nearest):
        values = X if known is None else known
        nearest[:] = values[:, 1]
        return np.column_stack([1 - values[:, 0], values[:, 0]])

    predictor.many = None
    file, notes = io.BytesIO(), []
    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=predictor)
    list(run_predict.predict_batches(classifier, iter(batches), file, notes, checks, encoding))
    return pl.read_csv(file.getvalue()), notes


def test_new_points_are_accepted_by_the_runs_threshold_and_never_where_they_are_far():
    X = np.array([[0.99, 0.1], [0.7, 0.1], [0.01, 0.2], [0.99, 9.0]], np.float32)
    found, notes = predicted(Batch(0, X, None))
    assert found["label"].to_list() == ["b", "b", "a", "b"]
    assert found["decision"].to_list() == ["accept", "review", "accept", "review"]
    assert found["far"].to_list() == ["", "", "", "far"]
    assert "2 of 4 rows (50.0%)" in notes[0]
    assert "1 of 4 rows" in notes[1]
    found, _ = predicted(Batch(0, SURE, None, beyond=SECOND))  # a number far beyond
    assert found["far"].to_list() == ["", "far"]
    assert found["decision"].to_list() == ["accept", "review"]
    found, notes = predicted(Batch(0, SURE, None), checks=Checks())
    assert found.columns == ["row", "label", "probability_a", "probability_b"]
    assert notes == []


def test_rows_with_gaps_that_the_fit_never_met_or_without_their_unit_are_not_accepted():
    batch = Batch(0, SURE, None, gaps=Counter(x=1), unsigned=Counter({"share without %": 1}), gappy=SECOND)
    found, notes = predicted(batch)
    assert found["decision"].to_list() == ["accept", "review"]
    assert notes[0].startswith(
        "Categories that are new, or blank cells in columns that had none in training: x (1 cell)."
    )
    assert "of another size: share without % (1 cell)." in notes[1]
    assert all("marked review" in note for note in notes[:2])
    joined = next(run_predict._joined(iter([batch, Batch(2, SURE, None, gaps=Counter(x=1, y=2), gappy=BOTH)]), 4))
    assert joined.gaps == Counter(x=2, y=2)
    assert joined.unsigned == {"share without %": 1}
    assert joined.gappy.tolist() == [False, True, True, True]


def test_far_rows_name_the_columns_whose_values_lie_outside_the_range_of_training():
    rng = np.random.default_rng(0)
    day = [f"2024-{m:02}-{d:02}" for m in range(1, 7) for d in range(1, 11)]
    encoder = TableEncoder().fit({"a": rng.uniform(0, 1, 60), "b": rng.uniform(0, 1, 60), "day": day})
    new = {"a": [0.5, 9.0, 9.0], "b": [0.5, 0.5, -3.0], "day": ["2024-03-05", "2025-03-01", "2026-01-01"]}
    X, known = encoder.transform(new), np.array([[0.1, 0], [0.1, 9], [0.1, 9]])
    _, notes = predicted(Batch(0, X, None), checks=Checks(far=2.0), encoding=Encoding(encoder), known=known)
    assert notes[-1] == "Far rows have values outside the training range in: a (2 rows), day (2 rows), b (1 row)."


def test_empty_rows_are_counted_over_batches_marked_far_and_to_review():
    parts = [
        Batch(row, SURE, None, beyond=empty, gappy=empty, empty=empty)
        for row, empty in ((0, ~BOTH), (2, SECOND), (4, BOTH))
    ]
    found, notes = predicted(*parts)
    assert "Empty rows, whose predictions mean nothing: 3 (first: row 3)." in notes
    assert found["far"].to_list() == ["", "", "", "far", "far", "far"]
    assert found["decision"].to_list() == ["accept"] * 3 + ["review"] * 3
    assert next(run_predict._joined(iter(parts), 6)).empty.tolist() == [False, False, False, True, True, True]


def compared(classes, labels, predicted, nearest=1.0, accepted=False):
    found, count = Found(classes), len(labels)
    nearest, accepted = np.broadcast_to(nearest, count), np.broadcast_to(accepted, count)
    for row in range(count):  # batches of one row
        one = slice(row, row + 1)
        found.compare(labels[one], np.array(predicted[one], dtype=object), nearest[one], accepted[one])
    return found


def test_rows_with_a_label_are_counted_and_accepted_ones_apart():
    found = compared(["a", "b"], ["a", None, "b", "b"], ["a", "a", "b", "a"])
    assert found.notes(Checks()) == [
        "Predictions agree with the file's labels in 2 of 3 rows (66.7%, 95% interval 20.8% to 93.9%)."
    ]
    found = compared(["a", "b"], ["a", "b", "b"], ["a", "b", "a"], accepted=[True, True, False])
    assert found.notes(Checks())[0].endswith("; among accepted rows, in 2 of 2.")
    assert compared(["a", "b"], ["new", "new", None], ["a", "b", "b"]).notes(Checks()) == []


def test_copies_of_training_points_are_named_and_not_compared():
    found = compared(["a", "b"], ["a", "b", "a"], ["a", "b", "b"], nearest=[0.0, 9.0, np.nan])
    assert (found.count["judged"], found.count["right"], found.count["copies"]) == (2, 1, 1)
    assert "equal a training point, whose label the model may have learned: 1." in found.notes(Checks())[1]


@pytest.mark.parametrize(
    ("classes", "label", "predicted", "right", "others"),
    [
        ([3, 4], "3", 3, 1, {}),  # whole numbers are compared as numbers
        ([3, 4], "3.0", 3, 1, {}),
        ([3, 4], "03", 3, 1, {}),
        (["03", "3.0"], "3.0", "3.0", 1, {}),  # names as they are written
        (["03", "3.0"], "3", "03", 0, {"3": 1}),
        (["1.0", "1.5"], "1.50", "1.5", 1, {}),
        (
            ["12345678901234567", "12345678901234568"],
            "12345678901234569",
            "12345678901234568",
            0,
            {"12345678901234569": 1},
        ),
        ([1, 2], "-1", 1, 0, {}),  # unlabeled
        ([1, 2], "Unlabeled", 1, 0, {}),
        (["a", "b"], "todo", "a", 0, {}),
        (["done", "todo"], "todo", "todo", 1, {}),
    ],
)
def test_which_class_a_label_means(classes, label, predicted, right, others):
    found = compared(classes, [label], [predicted])
    assert (found.count["right"], found.others) == (right, others)


def test_labels_that_are_no_class_are_named_beside_those_that_are():
    found = compared(["a", "b"], ["a", "c", "c"], ["a", "b", "b"])
    assert found.notes(Checks())[-1] == "Labels that are no class of the model, not counted: c (2 rows)."
