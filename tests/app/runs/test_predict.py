from __future__ import annotations

import io
from collections import Counter
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from sobgnn.app.runs import predict as run_predict
from sobgnn.app.runs.checks import Checks
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


class KnownPredictor:
    """Two classes; a point's first feature is the probability of the second, its other one the distance."""

    many = None

    def __call__(self, X, nearest):
        nearest[:] = X[:, 1]
        return np.column_stack([1 - X[:, 0], X[:, 0]])


def predicted(checks, X, beyond=None):
    file, notes = io.BytesIO(), []
    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=KnownPredictor())
    list(run_predict.predict_batches(classifier, iter([Batch(0, X, None, beyond=beyond)]), file, notes, checks))
    return pl.read_csv(file.getvalue()), notes


def test_new_points_are_accepted_by_the_runs_threshold_and_never_where_they_are_far():
    X = np.array([[0.99, 0.1], [0.7, 0.1], [0.01, 0.2], [0.99, 9.0]], np.float32)
    checks = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
    found, notes = predicted(checks, X)
    assert found["label"].to_list() == ["b", "b", "a", "b"]
    assert found["decision"].to_list() == ["accept", "review", "accept", "review"]
    assert found["far"].to_list() == ["", "", "", "far"]
    assert "2 of 4 rows (50.0%)" in notes[0]
    assert "1 of 4 rows" in notes[1]


def test_a_number_far_beyond_the_fitted_ones_is_far_whatever_the_distance():
    X = np.array([[0.99, 0.1], [0.99, 0.1]], np.float32)
    checks = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
    found, _ = predicted(checks, X, np.array([False, True]))
    assert found["far"].to_list() == ["", "far"]
    assert found["decision"].to_list() == ["accept", "review"]


def test_without_accept_there_is_no_decision():
    found, notes = predicted(Checks(), np.array([[0.99, 0.1]], np.float32))
    assert found.columns == ["row", "label", "probability_a", "probability_b"]
    assert notes == []


def test_rows_with_gaps_that_the_fit_never_met_are_not_accepted():
    X = np.array([[0.99, 0.1], [0.99, 0.1]], np.float32)
    batch = Batch(0, X, None, gaps=Counter(x=1), gappy=np.array([False, True]))
    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=KnownPredictor())
    file, notes = io.BytesIO(), []
    checks = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
    list(run_predict.predict_batches(classifier, iter([batch]), file, notes, checks))
    assert pl.read_csv(file.getvalue())["decision"].to_list() == ["accept", "review"]
    assert notes[0].startswith(
        "Categories that are new, or blank cells in columns that had none in training: x (1 cell)."
    )
    assert "marked review" in notes[0]
    parts = [batch, Batch(2, X, None, gaps=Counter(x=1, y=2), gappy=np.array([True, True]))]
    joined = next(run_predict._joined(iter(parts), 4))
    assert joined.gaps == Counter(x=2, y=2)
    assert joined.gappy.tolist() == [False, True, True, True]


def test_numbers_without_their_unit_are_named_and_to_review():
    X = np.array([[0.99, 0.1], [0.99, 0.1]], np.float32)
    batch = Batch(0, X, None, gappy=np.array([False, True]), unsigned=Counter({"share without %": 1}))
    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=KnownPredictor())
    notes = []
    checks = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
    list(run_predict.predict_batches(classifier, iter([batch]), io.BytesIO(), notes, checks))
    assert "of another size: share without % (1 cell)." in notes[0]
    assert "marked review" in notes[0]
    assert next(run_predict._joined(iter([batch, batch]), 4)).unsigned == {"share without %": 2}


def test_far_rows_name_the_columns_whose_values_lie_outside_the_range_of_training():
    rng = np.random.default_rng(0)
    day = [f"2024-{m:02}-{d:02}" for m in range(1, 7) for d in range(1, 11)]
    encoder = TableEncoder().fit({"a": rng.uniform(0, 1, 60), "b": rng.uniform(0, 1, 60), "day": day})
    assert encoder.outcomes_ == {"a": "number", "b": "number", "day": "date"}
    encoding = Encoding.from_parts(*Encoding(encoder).to_parts())
    new = {"a": [0.5, 9.0, 9.0], "b": [0.5, 0.5, -3.0], "day": ["2024-03-05", "2025-03-01", "2026-01-01"]}
    X = encoder.transform(new)
    assert encoding.outside(X) == Counter(a=2, day=2, b=1)
    assert encoding.outside(sp.csr_array(X)) == encoding.outside(X)
    assert not encoding.outside(encoder.transform({"a": [0.2], "b": [0.2], "day": ["2024-02-02"]}))

    class Far(KnownPredictor):
        def __call__(self, X, nearest):
            nearest[:] = [0, 9, 9]
            return np.column_stack([np.full(3, 0.9), np.full(3, 0.1)])

    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=Far())
    notes = []
    batch = Batch(0, X, None)
    list(run_predict.predict_batches(classifier, iter([batch]), io.BytesIO(), notes, Checks(far=2.0), encoding))
    assert notes[-1] == "Far rows have values outside the training range in: a (2 rows), day (2 rows), b (1 row)."


def test_empty_rows_are_counted_over_batches_marked_far_and_to_review():
    X = np.array([[0.99, 0.1], [0.99, 0.1]], np.float32)
    classifier = SimpleNamespace(classes_=np.array(["a", "b"], dtype=object), predictor_=KnownPredictor())
    parts = [
        Batch(row, X, None, beyond=empty, gappy=empty, empty=empty)
        for row, empty in ((0, np.array([False, False])), (2, np.array([False, True])), (4, np.array([True, True])))
    ]
    file, notes = io.BytesIO(), []
    checks = Checks(Acceptance(0.95, 0.9, 100, 60, 1, 59), far=2.0)
    list(run_predict.predict_batches(classifier, iter(parts), file, notes, checks))
    assert "Empty rows, whose predictions mean nothing: 3 (first: row 3)." in notes
    found = pl.read_csv(file.getvalue())
    assert found["far"].to_list() == ["", "", "", "far", "far", "far"]
    assert found["decision"].to_list() == ["accept"] * 3 + ["review"] * 3
    joined = next(run_predict._joined(iter(parts), 6))
    assert joined.empty.tolist() == [False, False, False, True, True, True]
