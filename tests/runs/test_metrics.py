from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from sobgnn.runs.checks import checks_of
from sobgnn.runs.metrics import confusion, metrics, wilson_interval
from tests.fitted_runs import fitted_run, found_search


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


def test_held_out_labels_are_judged_by_the_tables_classes():
    fitted = fitted_run(classes=("zeta", "alpha", "mu"))
    held = metrics(fitted)["held_out"]
    classifier = fitted.classifier
    predicted = classifier.classes_[classifier.out_of_fold_probabilities_.argmax(axis=1)]
    truth = np.array(fitted.table.classes, dtype=object)[fitted.given[classifier.labelled_]]
    assert held["labels"] == len(truth)
    assert held["accuracy"] == pytest.approx((predicted == truth).mean())
    assert held["verdict"] == "better"
    for i, true in enumerate(fitted.table.classes):
        for j, other in enumerate(fitted.table.classes):
            assert held["confusion"][i][j] == ((truth == true) & (predicted == other)).sum()


def test_noise_is_no_better_than_guessing():
    assert metrics(fitted_run(noise=True))["held_out"]["verdict"] == "guessing"


def test_without_a_held_out_label_nothing_is_claimed():
    fitted = fitted_run()
    fitted.classifier.out_of_fold_probabilities_ = np.full_like(fitted.classifier.out_of_fold_probabilities_, np.nan)
    assert metrics(fitted)["held_out"] == {"labels": 0, "verdict": "unknown"}


def test_a_class_that_is_never_predicted_is_named():
    fitted = fitted_run()
    p = fitted.classifier.out_of_fold_probabilities_.copy()
    p[:, 1] = 0
    fitted.classifier.out_of_fold_probabilities_ = p / p.sum(axis=1, keepdims=True)
    assert metrics(fitted)["held_out"]["never_predicted"] == [fitted.classifier.classes_[1]]


def test_the_share_accepted_is_of_rows_without_a_given_label():
    fitted = fitted_run(points=600, labels=0.3, accept=0.8)
    checks = checks_of(fitted)
    found = metrics(fitted, checks.acceptance)["accept"]
    free = fitted.given == -1
    taken = free & (fitted.confidence >= found["threshold"])
    assert found["rows_accepted"] == taken.sum() > 0
    assert found["rows"] == free.sum()
    wrong = fitted.predicted[taken] != fitted.table.codes[taken]
    assert found["hidden_error"] == pytest.approx(wrong.mean())
