from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binomtest

from sobgnn.runs.checks import checks_of
from sobgnn.runs.metrics import confusion, metrics, suggested_rows, wilson_interval
from sobgnn.tables import read_table
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


def test_what_the_usual_share_would_accept_is_counted_unless_another_was_requested():
    for points, labels in ((600, 0.5), (100, 0.3)):
        asked = fitted_run(points=points, labels=labels, accept=0.95)
        accept = metrics(asked, checks_of(asked).acceptance)
        assert "acceptable" not in accept
        measured = metrics(fitted_run(points=points, labels=labels))
        assert measured["acceptable"] == accept["accept"]["rows_accepted"]
    assert measured["acceptable"] == 0  # too few labels


def test_a_class_that_may_mean_unlabeled_is_mentioned_from_half_of_all_rows():
    codes = np.arange(100) % 2
    unsaid = metrics(
        fitted_run(X=np.random.default_rng(0).normal(size=(100, 3)), codes=codes, classes=("unknown", "a"))
    )
    assert unsaid["unsaid"] == ["Treated as a class: 'unknown' (50 rows). If it means unlabeled, leave the cell empty."]
    codes[0] = 1
    fewer = metrics(fitted_run(X=np.random.default_rng(0).normal(size=(100, 3)), codes=codes, classes=("unknown", "a")))
    assert fewer["unsaid"] == []


def test_rows_that_are_empty_or_blank_where_no_labeled_row_is_are_not_suggested(tmp_path):
    rows = [f"{i % 17},{'red' if i % 2 else 'blue'},{'xy'[i % 2] if i < 40 else ''}" for i in range(60)]
    odd = [",,", "3,,", ",,"]
    (tmp_path / "t.csv").write_text("\n".join(["size,color,label", *rows, *odd]) + "\n")
    fitted = fitted_run(table=read_table(tmp_path / "t.csv"), labels=None)
    assert sorted(suggested_rows(fitted, 99).tolist()) == list(range(40, 60))
    (tmp_path / "t.csv").write_text("\n".join(["size,color,label", *rows[:40], *odd]) + "\n")
    fitted = fitted_run(table=read_table(tmp_path / "t.csv"), labels=None)
    # If all rows without a label are doubtful, those that hold something.
    assert suggested_rows(fitted, 99).tolist() == [41]


def test_a_picture_that_cannot_be_read_is_not_suggested(tmp_path):
    from PIL import Image

    generator = np.random.default_rng(0)
    for number in range(30):
        folder = tmp_path / ("unlabeled" if number >= 20 else "ab"[number % 2])
        folder.mkdir(exist_ok=True)
        Image.fromarray(generator.integers(0, 255, (9, 9, 3), dtype=np.uint8)).save(folder / f"p{number}.png")
    (tmp_path / "unlabeled" / "p25.png").write_bytes(b"broken")
    fitted = fitted_run(table=read_table(tmp_path), labels=None)
    names = [str(fitted.table.ids[row]) for row in suggested_rows(fitted, 99)]
    assert sorted(names) == [f"unlabeled/p{number}.png" for number in range(20, 30) if number != 25]
