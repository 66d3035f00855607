from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from sobgnn.estimator.families.logistic import LogisticColumns
from sobgnn.estimator.families.ridge import Scaling
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.problem import Problem


def problem_of(X, y, labelled):
    codes = np.where(np.arange(len(y)) < labelled, y, -1)
    labels = with_folds(codes, np.ones(labelled), int(y.max()) + 1, np.random.default_rng(0))
    X = X.astype(np.float32)
    return Problem(torch.from_numpy(X), X, {}, labels.classes, rows=X), labels


def sums_of_columns(noise, rows=300, seed=0):
    """Classes by the sign of a sum of eight columns, whose scales differ."""
    generator = np.random.default_rng(seed)
    X = generator.normal(size=(rows, 8))
    return X * np.logspace(-3, 3, 8), (X.sum(axis=1) + noise * generator.normal(size=rows) > 0).astype(int)


def test_it_is_the_regression_of_scaled_columns_with_the_chosen_penalty():
    problem, labels = problem_of(*sums_of_columns(noise=1.0), 80)
    fitted = LogisticColumns().fit(problem, labels)
    Z = Scaling.of(problem.columns)(problem.columns).numpy()
    # Of two classes scikit-learn penalizes the difference of their weights, which is twice as much.
    model = LogisticRegression(C=2 * fitted.strength, tol=1e-9, max_iter=5000).fit(Z[:80], labels.codes)
    np.testing.assert_allclose(fitted.probabilities()[-1], model.predict_proba(Z), atol=1e-3)


def test_the_penalty_is_weak_where_classes_are_sums_of_columns_and_strong_where_labels_are_noise():
    problem, labels = problem_of(*sums_of_columns(noise=0.0), 80)
    weak = LogisticColumns().fit(problem, labels)
    problem, labels = problem_of(*sums_of_columns(noise=30.0), 80)
    strong = LogisticColumns().fit(problem, labels)
    assert weak.strength == 30.0
    assert strong.strength == 0.03


def test_with_one_penalty_a_signal_does_not_see_the_labels_of_its_fold():
    problem, labels = problem_of(*sums_of_columns(noise=1.0), 80)
    codes = labels.codes.copy()
    codes[labels.fold == 1] = codes[labels.fold == 1][::-1]  # the same number of each class: only who has which
    before, after = (
        LogisticColumns()._fit(problem, each, (3.0,)).probabilities() for each in (labels, replace(labels, codes=codes))
    )
    np.testing.assert_allclose(after[1], before[1], atol=1e-6)
    assert not np.allclose(after[0], before[0], atol=1e-3)


def test_a_refit_keeps_the_penalty():
    problem, labels = problem_of(*sums_of_columns(noise=0.0), 80)
    fitted = LogisticColumns().fit(problem, labels)
    everything = replace(labels, fold=np.full(80, -1))
    again = LogisticColumns().refit(problem, everything, fitted)
    assert again.strength == fitted.strength
    np.testing.assert_array_equal(again.weight, fitted.weight)


def test_it_takes_part_where_labels_are_enough_and_columns_few():
    X, y = sums_of_columns(noise=0.0, rows=1000)
    assert not LogisticColumns.worth_it(*problem_of(X, y, 38))
    assert LogisticColumns.worth_it(*problem_of(X, y, 40))
    assert not LogisticColumns.worth_it(*problem_of(np.tile(X, (1, 20)), y, 400))
