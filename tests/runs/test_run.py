from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from sobgnn.runs.run import confusion, hide_labels, metrics, wilson_interval
from tests.fitted_runs import fitted_run, found_search


@pytest.mark.parametrize(("labels", "kept"), [(0.1, [10, 2, 1]), (5, [5, 5, 3]), (1, [1, 1, 1]), (0.999, [100, 20, 3])])
def test_each_class_keeps_its_share_or_number_of_labels_and_at_least_one(labels, kept):
    codes = np.repeat([0, 1, 2, -1], [100, 20, 3, 50])
    given = hide_labels(codes, labels, seed=0)
    assert np.bincount(given[given >= 0], minlength=3).tolist() == kept
    assert (given[given >= 0] == codes[given >= 0]).all()
    np.testing.assert_array_equal(given, hide_labels(codes, labels, seed=0))


def test_other_seeds_hide_other_labels_and_none_asked_hides_none():
    codes = np.repeat([0, 1], 50)
    assert (hide_labels(codes, 0.2, seed=0) != hide_labels(codes, 0.2, seed=1)).any()
    np.testing.assert_array_equal(hide_labels(codes, None, seed=0), codes)


@pytest.mark.parametrize("labels", [0, -1, 1.5, float("nan"), float("inf")])
def test_shares_and_numbers_that_make_no_sense_are_refused(labels):
    with pytest.raises(ValueError, match="--labels must be"):
        hide_labels(np.array([0, 1]), labels, seed=0)


@pytest.mark.parametrize(("right", "total"), [(0, 7), (7, 7), (90, 100), (1, 2)])
def test_the_interval_is_wilsons(right, total):
    expected = binomtest(right, total).proportion_ci(method="wilson")
    np.testing.assert_allclose(wilson_interval(right, total), [expected.low, expected.high], atol=1e-6)


def test_confusion_counts_true_classes_in_rows():
    np.testing.assert_array_equal(
        confusion(np.array([0, 0, 1, 2]), np.array([0, 1, 1, 1]), 3), [[1, 1, 0], [0, 1, 0], [0, 1, 0]]
    )


def test_accuracy_is_over_hidden_labels_alone_and_metrics_are_plain_json():
    fitted = fitted_run(classes=("zeta", "alpha", "mu"))  # not in the estimator's sorted order
    measured = metrics(fitted)
    truth = np.array(fitted.table.classes, dtype=object)[fitted.table.codes]
    right = fitted.classifier.transduction_ == truth
    assert measured["accuracy"] == pytest.approx(right[fitted.hidden].mean())
    assert measured["labels_hidden"] == fitted.hidden.sum() == 300 - measured["labels_given"]
    assert np.trace(measured["confusion"]) == right[fitted.hidden].sum()
    np.testing.assert_allclose(fitted.confidence, fitted.classifier.label_distributions_.max(axis=1))
    assert json.loads(json.dumps(measured, allow_nan=False)) == measured
    assert "accuracy" not in metrics(fitted_run(labels=None))


def test_a_search_is_kept_in_the_metrics_where_there_was_one():
    assert "search" not in metrics(fitted_run(points=60))
    assert metrics(fitted_run(points=60, search=found_search()))["search"] == found_search()
