from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression

from sobgnn.estimator.families.given import logistic_regressions
from sobgnn.estimator.labels import with_folds


def problem_of(classes, width, seed=0):
    generator = np.random.default_rng(seed)
    codes = np.arange(40) % classes
    Z = generator.normal(size=(40, width)) + 2 * np.eye(classes, width)[codes]
    return Z, with_folds(codes, np.linspace(0.5, 1.5, 40), classes, generator)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("width", [10, 200])
def test_every_signal_predicts_what_scikit_learn_does(classes, form, width):
    Z, labels = problem_of(classes, width)
    weight, bias = logistic_regressions(form(Z), labels, 2.0)
    assert weight.shape == (width, labels.folds + 1, classes)
    for signal, share in enumerate(labels.shares()):
        used = share > 0
        # Of two classes scikit-learn penalizes the difference of their weights, which is twice as much.
        model = LogisticRegression(C=4.0 if classes == 2 else 2.0, tol=1e-9, max_iter=5000)
        model.fit(Z[used], labels.codes[used], share[used] * used.sum())
        logits = Z @ weight[:, signal] + bias[signal]
        found = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(found, model.predict_proba(Z), atol=1e-3)


def test_equal_rows_and_rows_of_zeros_give_finite_weights():
    _, labels = problem_of(2, 60)
    for Z in (np.zeros((40, 60)), np.ones((40, 60))):
        weight, bias = logistic_regressions(Z, labels, 2.0)
        assert np.isfinite(weight).all()
        assert np.isfinite(bias).all()
        np.testing.assert_allclose(weight[:, :, 0], -weight[:, :, 1])


def test_a_class_without_a_label_in_a_signal_is_as_good_as_impossible():
    Z, labels = problem_of(3, 10)
    labels = with_folds(np.where(labels.codes == 2, 1, labels.codes), np.ones(40), 3, np.random.default_rng(0))
    _, bias = logistic_regressions(Z, labels, 2.0)
    assert (bias[:, 2] < -20).all()


def test_two_classes_have_the_smallest_objective_there_is():
    Z, labels = problem_of(2, 6)
    weight, bias = logistic_regressions(Z, labels, 2.0)

    def objective(flat):
        logits = Z @ flat[:12].reshape(6, 2) + flat[12:]
        loss = np.logaddexp(logits[:, 0], logits[:, 1]) - logits[np.arange(40), labels.codes]
        return 2.0 * 40 * labels.shares()[-1] @ loss + np.square(flat[:12]).sum() / 2

    found = np.concatenate([weight[:, -1].ravel(), bias[-1]])
    assert objective(found) < minimize(objective, np.zeros(14)).fun + 1e-5
