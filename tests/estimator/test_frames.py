"""DataFrames, blank cells and weights, straight into the classifier."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sobgnn import SobolevClassifier
from sobgnn.estimator.families.foreign import FittedForeign
from sobgnn.tables import read_table

CHEAP = {"families": ["linear", "forests"], "random_state": 0, "k": 5}


def people(count=150, seed=0):
    """A table of text, dates, categories, numbers and blank cells, its classes, and labels of a third of it."""
    generator = np.random.default_rng(seed)
    code = generator.integers(0, 2, count)
    size = generator.normal(size=count) + 2.5 * code
    frame = pd.DataFrame(
        {
            "size": np.where(generator.random(count) < 0.1, np.nan, size.round(2)),
            "color": np.where(generator.random(count) < 0.8, np.array(["red", "blue"])[code], "green"),
            "note": [f"a {word} parcel for room {row % 7}" for row, word in enumerate(np.array(["big", "tiny"])[code])],
            "when": pd.date_range("2021-03-01", periods=count).strftime("%Y-%m-%d"),
        }
    )
    truth = np.array(["left", "right"])[code]
    given = np.where(np.arange(count) % 3 == 0, truth.astype(object), None)
    return frame, truth, given


@pytest.fixture(scope="module")
def fitted():
    frame, truth, given = people()
    return frame, truth, given, SobolevClassifier(**CHEAP).fit(frame, given)


def test_a_frame_of_any_columns_is_learned_and_predicted(fitted):
    frame, truth, _, model = fitted
    assert (model.transduction_ == truth).mean() > 0.85
    assert model.score(frame, truth) > 0.85
    assert model.feature_names_in_.tolist() == ["size", "color", "note", "when"]
    assert "Columns: " in model.describe()
    other = SobolevClassifier(**CHEAP).fit(pl.DataFrame(frame.to_dict("list")), fitted[2])
    np.testing.assert_allclose(other.predict_proba(frame), model.predict_proba(frame), atol=1e-5)


def test_a_model_of_a_frame_is_saved_loaded_cloned_and_searched(fitted, tmp_path):
    frame, truth, given, model = fitted
    model.save(tmp_path / "model")
    loaded = SobolevClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    assert loaded.describe() == model.describe()
    np.testing.assert_array_equal(clone(model).fit(frame, given).transduction_, model.transduction_)
    pipeline = make_pipeline(FunctionTransformer(), SobolevClassifier(**CHEAP))
    search = GridSearchCV(pipeline, {"sobolevclassifier__k": [3]}, cv=2, error_score="raise").fit(frame, truth)
    assert search.best_score_ > 0.8


def test_other_columns_are_one_line(fitted):
    frame, _, _, model = fitted
    for other, message in (
        (frame[["color", "size", "note", "when"]], "must be in the same order"),
        (frame.drop(columns="note"), "yet now missing: note"),
        (frame.assign(more=1), "unseen at fit time: more"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            model.predict(other)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="a column to learn from"):
        SobolevClassifier(**CHEAP).fit(pd.DataFrame({"empty": [None] * 6}), [0, 1] * 3)


def test_the_class_and_the_command_predict_the_same_of_a_table(tmp_path):
    frame, _, given = people()
    frame.assign(side=given).to_csv(tmp_path / "people.csv", index=False)
    table = read_table(tmp_path / "people.csv", "side")  # what `sobgnn fit` reads
    command = SobolevClassifier(**CHEAP).fit(table.X, table.labels(table.codes))
    read = pd.read_csv(tmp_path / "people.csv", dtype={"size": object}).drop(columns="side")
    model = SobolevClassifier(**CHEAP).fit(read, given)
    np.testing.assert_allclose(model.label_distributions_, command.label_distributions_, atol=1e-5)


def holes(count=200, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 3, count)
    X = generator.normal(size=(3, 4))[y] * 2 + generator.normal(size=(count, 4))
    X[generator.random(X.shape) < 0.1] = np.nan
    X[:, 3] = np.where(np.isnan(X[:, 3]), 0.0, X[:, 3])
    return X, y, np.where(np.arange(count) % 3 == 0, y, -1)


def test_blank_cells_of_arrays_are_filled_marked_said_and_saved(tmp_path):
    X, y, given = holes()
    model = SobolevClassifier(**CHEAP).fit(X, given)
    assert (model.transduction_ == y).mean() > 0.8
    assert model.n_features_in_ == 4
    assert "3 columns have blank cells (NaN)" in model.describe()
    filled = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    by_hand = SobolevClassifier(**CHEAP).fit(np.hstack([filled, np.isnan(X[:, :3])]), given)
    np.testing.assert_array_equal(by_hand.label_distributions_, model.label_distributions_)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(SobolevClassifier.load(tmp_path / "model").predict_proba(X), model.predict_proba(X))
    whole = SobolevClassifier(**CHEAP).fit(filled, given)
    with pytest.raises(ValueError, match="X contains NaN, but there was none when the model was fitted"):
        whole.predict(X)


def test_a_label_of_weight_0_is_none_and_weights_are_heard():
    X, _, given = holes()
    X = np.nan_to_num(X)
    weight = np.where(np.arange(200) < 60, 1.0, 0.0)
    model = SobolevClassifier(**CHEAP).fit(X, given, sample_weight=weight)
    without = SobolevClassifier(**CHEAP).fit(X, np.where(weight > 0, given, -1))
    np.testing.assert_array_equal(model.label_distributions_, without.label_distributions_)
    heavy = SobolevClassifier(**CHEAP).fit(X, given, sample_weight=np.where(given == 0, 20.0, 1.0))
    plain = SobolevClassifier(**CHEAP).fit(X, given)
    assert heavy.label_distributions_[:, 0].sum() > plain.label_distributions_[:, 0].sum()
    for wrong in (-np.ones(200), np.zeros(200)):
        with pytest.raises(ValueError, match="weight"):
            SobolevClassifier(**CHEAP).fit(X, given, sample_weight=wrong)


class Broken(GaussianNB):
    """Predicts nothing."""

    def predict_proba(self, X):
        raise RuntimeError("no\nway")


def test_classifiers_of_others_take_part_by_folds_and_in_searches():
    X, y, given = holes()
    X = np.nan_to_num(X)
    others = [
        ("boosting", HistGradientBoostingClassifier(min_samples_leaf=3, max_iter=10)),
        ("ridge", RidgeClassifier()),  # no predict_proba
        ("scaled", make_pipeline(StandardScaler(), LogisticRegression())),
    ]
    model = SobolevClassifier(families=["linear", *others], random_state=0).fit(X, given)
    assert set(model.family_accuracy_) == {"linear", "boosting", "ridge", "scaled"}
    assert "LogisticRegression" in model.describe() or "Pipeline" in model.describe()
    assert (model.transduction_ == y).mean() > 0.8
    again = clone(model).fit(X, given)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    pipeline = make_pipeline(StandardScaler(), SobolevClassifier(families=[("mine", GaussianNB())], random_state=0))
    grid = {"sobolevclassifier__families": [[("mine", GaussianNB())], ["linear", ("ridge", RidgeClassifier())]]}
    assert GridSearchCV(pipeline, grid, cv=2, error_score="raise").fit(X, y).best_score_ > 0.7


def test_errors_of_others_and_saving_them_are_one_line(tmp_path):
    X, _, given = holes()
    X = np.nan_to_num(X)
    with pytest.raises(ValueError, match=r"The family 'mine' \(Broken\) could not predict: no way"):
        SobolevClassifier(families=["linear", ("mine", Broken())]).fit(X, given)
    model = SobolevClassifier(families=[("mine", GaussianNB())], random_state=0).fit(X, given)
    with pytest.raises(ValueError, match="store the whole classifier with joblib or skops"):
        model.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_classifier_of_others_gets_the_weights_of_labels():
    seen = []

    class Weighed(GaussianNB):
        def fit(self, X, y, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y, sample_weight)

    X, _, given = holes()
    SobolevClassifier(families=[("mine", Weighed())]).fit(
        np.nan_to_num(X), given, sample_weight=np.where(given == 0, 5.0, 1.0)
    )
    assert all(weight is not None and weight.max() > 2 * weight.min() for weight in seen)


def test_classes_that_a_classifier_of_others_has_not_seen_have_probability_0():
    X = np.array([[0.0], [0.1], [5.0], [5.1]])
    fitted = FittedForeign("mine", 4, GaussianNB().fit(X, [0, 0, 1, 1]), np.array([1, 3]))
    found = fitted.probabilities(X)
    np.testing.assert_array_equal(found.argmax(axis=1), [1, 1, 3, 3])
    np.testing.assert_array_equal(found[:, [0, 2]], 0)
