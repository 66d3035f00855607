from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sobgnn import SobolevClassifier
from sobgnn.estimator.families.gaussian import GaussianRegression
from sobgnn.estimator.labels import with_folds
from sobgnn.estimator.problem import Problem


def problem_of(X, y, labelled, weight=None):
    codes = np.where(np.arange(len(y)) < labelled, y, -1)
    weight = np.ones(labelled) if weight is None else weight
    labels = with_folds(codes, weight, int(y.max()) + 1, np.random.default_rng(0))
    X = X.astype(np.float32)
    return Problem(torch.from_numpy(X), X, {}, labels.classes, rows=X), labels


def around(count, seed=0):
    """A class that surrounds another, in 20 columns, whose units differ."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    X = generator.normal(size=(count, 20)) * np.where(y == 0, 2.0, 1.0)[:, None]
    return X * np.logspace(-3, 3, 20), y


def test_it_is_the_regression_of_its_definition():
    generator = np.random.default_rng(0)
    X = np.hstack([generator.normal(size=(50, 3)), np.full((50, 1), 7.0)])  # the last column does not vary
    weight = generator.uniform(0.5, 1.5, 20)
    problem, labels = problem_of(X, np.arange(50) % 3, 20, weight)
    fitted = GaussianRegression().fit(problem, labels)
    Z = (X[:, :3] - X[:, :3].mean(axis=0)) / X[:, :3].std(axis=0)
    kernel = np.exp(-np.square(Z[:, None] - Z[None, :20]).sum(axis=2) / 3)
    for signal, share in enumerate(labels.shares()):
        used = np.flatnonzero(share)
        count = len(used)
        system = np.ones((count + 1, count + 1))
        system[:-1, :-1] = kernel[np.ix_(used, used)] + np.diag(0.1 / (share[used] * count))
        system[-1, -1] = 0
        solution = np.linalg.solve(system, np.vstack([np.eye(3)[labels.codes[used]], np.zeros((1, 3))]))
        logits = 5 * (kernel[:, used] @ solution[:-1] + solution[-1])
        wanted = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(fitted.probabilities()[signal], wanted, atol=1e-4)


def test_a_signal_does_not_see_the_labels_of_its_fold():
    problem, labels = problem_of(*around(200), 40)
    codes = labels.codes.copy()
    codes[labels.fold == 1] = codes[labels.fold == 1][::-1]  # the same number of each class: only who has which
    before, after = (
        GaussianRegression().fit(problem, each).probabilities() for each in (labels, replace(labels, codes=codes))
    )
    np.testing.assert_allclose(after[1], before[1], atol=1e-6)
    assert not np.allclose(after[0], before[0], atol=1e-3)


def test_ten_labels_find_a_class_that_surrounds_another():
    X, y = around(600)
    problem, labels = problem_of(X, y, 10)
    assert GaussianRegression.worth_it(problem, labels)
    fitted = GaussianRegression().fit(problem, labels)
    assert (fitted.probabilities()[-1].argmax(dim=1).numpy() == y)[10:].mean() > 0.85


@pytest.mark.trains
def test_the_estimator_finds_it_too():
    X, y = around(600)
    given = np.where(np.arange(600) < 10, y, -1)
    model = SobolevClassifier(random_state=0).fit(X, given)
    assert (model.transduction_ == y)[10:].mean() > 0.8
    assert max(model.family_shares_, key=model.family_shares_.get) == "gaussian"


def test_it_joins_where_labels_are_held_out_and_it_is_quick():
    problem, labels = problem_of(*around(200), 40)
    nothing_held_out = replace(labels, fold=np.full(40, -1))
    assert GaussianRegression.worth_it(problem, labels)
    assert not GaussianRegression.worth_it(problem, nothing_held_out)
    many = replace(labels, index=np.arange(200).repeat(10), codes=np.arange(2000) % 2)
    assert not GaussianRegression.worth_it(problem, many)


@pytest.mark.parametrize("rows", [np.zeros((30, 3)), np.repeat(np.eye(3), 10, axis=0)])
def test_rows_that_are_all_alike_and_copies_give_finite_numbers(rows):
    problem, labels = problem_of(rows, np.arange(30) % 2, 12)
    assert torch.isfinite(GaussianRegression().fit(problem, labels).probabilities()).all()
