from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression

from sobgnn.estimator.families import linear
from tests.estimator.cases import clouds, labels_of, points_of


def test_the_plain_linear_classifier_is_scikit_learns_logistic_regression_on_the_labels():
    points, labels, y = clouds()
    learned = linear.PlainLinear().fit(points, labels)
    X, weight = points.points.numpy().astype(float), labels.shares()[-1] * 45
    model = LogisticRegression(C=3.0, tol=1e-9, max_iter=5000).fit(X[labels.index], labels.codes, weight)
    np.testing.assert_allclose(learned.fitted.predict(points), model.predict_proba(X), atol=1e-3)
    assert linear.PlainLinear.worth_it(points, labels)
    assert not linear.PlainLinear.worth_it(points, labels_of(y, 39))


def test_the_self_trained_classifier_learns_from_points_without_labels(monkeypatch):
    gains = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        y = np.arange(600) % 2
        X = generator.normal(size=(600, 20))
        X[:, 0] += 3.0 * y - 1.5
        points, labels = points_of(X), labels_of(y, 12)
        right = []
        for shares in (linear.SHARES, ()):
            with monkeypatch.context() as patch:
                patch.setattr(linear, "SHARES", shares)
                found = linear.SelfTrainedLinear().fit(points, labels).fitted.predict(points)
            right.append((found.argmax(dim=1).numpy() == y)[12:].mean())
        gains.append(right[0] - right[1])
    assert np.mean(gains) > 0.1, gains
