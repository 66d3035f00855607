from __future__ import annotations

import numpy as np
import pytest

from sobgnn import SobolevClassifier
from sobgnn.estimator.fitted import shown_out_of_fold


def quick(**options):
    settings = {"families": ["sobolev", "diffusion"], "epochs": 20, "k": 4, "scale": "range", "random_state": 0}
    return SobolevClassifier(**settings, **options)


def clouds(count=60):
    generator = np.random.default_rng(0)
    truth = np.arange(count) % 2
    X = generator.normal(size=(count, 3)) + 8 * truth[:, None]
    return X, truth, np.where(np.arange(count) < 20, truth, -1)


def test_where_nothing_is_held_out_a_table_of_categories_gets_the_same_labels_less_surely(monkeypatch):
    generator = np.random.default_rng(0)
    truth = np.arange(80) % 2
    X = (generator.random((80, 6)) < np.where(truth[:, None] == 1, 0.7, 0.3)).astype(float)
    given = np.where(np.arange(80) < 4, truth, -1)
    uneven = {"class_priors": {0: 0.8, 1: 0.2}}
    doubting = quick(**uneven).fit(X, given)
    assert doubting.temperature_ == 2.0
    monkeypatch.setattr("sobgnn.estimator.fitted.UNJUDGED_TEMPERATURE", 1.0)
    sure = quick(**uneven).fit(X, given)
    np.testing.assert_array_equal(doubting.transduction_, sure.transduction_)
    p, q = (fitted.predict_proba(X) for fitted in (sure, doubting))
    root = np.sqrt(p)
    np.testing.assert_allclose(q, root / root.sum(axis=1, keepdims=True), atol=1e-5)
    # With labels enough to hold some out, these decide.
    assert quick().fit(X, np.where(np.arange(80) < 40, truth, -1)).temperature_ == 1.0


def test_no_label_has_a_part_in_the_blend_that_predicts_it_and_classes_never_held_out_are_said():
    X, truth, given = clouds()
    given[truth == 1] = -1
    given[[1, 3]] = 1
    fitted = quick().fit(X, given)
    assert fitted.out_of_fold_interval_[0] < fitted.out_of_fold_accuracy_ < fitted.out_of_fold_interval_[1]
    assert fitted.out_of_fold_accuracy_ <= 1 - 0.5 * 2 / 12 + 1e-9  # two of twelve labels are never held out
    said = fitted.describe()
    assert f"Estimated accuracy {fitted.out_of_fold_accuracy_:.1%} on 10 labels (95% interval" in said
    assert "2 more of classes that are never held out counted as unknown" in said


@pytest.mark.parametrize("priors", ["auto", {0: 0.8, 1: 0.2}])
def test_classes_count_in_the_estimated_accuracy_as_they_are_assumed_to_be_common(priors):
    X, _, given = clouds()
    given[1::2][:4] = 1 - given[1::2][:4]  # four wrong labels, so that the classes have different recalls
    fitted = quick(class_priors=priors).fit(X + 3 * np.random.default_rng(1).normal(size=X.shape), given)
    own = shown_out_of_fold(fitted).argmax(axis=1) == fitted.labelled_codes_
    recall = np.array([own[fitted.labelled_codes_ == code].mean() for code in (0, 1)])
    share = np.bincount(fitted.labelled_codes_) / len(own)
    expected = recall @ (share if priors == "auto" else [0.8, 0.2])
    assert fitted.out_of_fold_accuracy_ == pytest.approx(expected)
    assert abs(recall[0] - recall[1]) > 0.05
