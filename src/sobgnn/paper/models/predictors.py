"""What a practitioner would try first, scikit-learn's classifiers; and the library's own estimator."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from sobgnn.paper.models.contract import Labels, Predictor, Setting, Uniform
from sobgnn.paper.models.source import Source


def _logistic(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    X, known = source.features(), y >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty need not converge to be tried
        model = LogisticRegression(C=float(setting["C"]), max_iter=200).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _svm(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.svm import SVC

    X, known = source.features(), y >= 0
    scale = 1 / (X.shape[1] * float(X.var()))  # scikit-learn's gamma="scale", of all points
    model = SVC(C=float(setting["C"]), gamma=scale * float(setting["gamma"])).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _spreading(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    from sklearn.semi_supervised import LabelSpreading

    def kernel(a: Any, b: Any = None) -> Any:
        return source.graph.to_scipy().power(float(setting["power"]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # points that no label reaches give 0 / 0, and it may stop early
        model = LabelSpreading(kernel=kernel, alpha=float(setting["alpha"]), max_iter=100).fit(source.features(), y)
    return np.asarray(model.transduction_)


def _estimator(source: Source, y: Labels, setting: Setting, seed: int) -> Labels:
    """With its default arguments: it builds its own graph, and nothing is searched."""
    from sobgnn.estimator.classifier import SobolevClassifier

    fitted = SobolevClassifier(random_state=seed, device=source.X.device).fit(source.features(), y)
    return np.asarray(fitted.transduction_)


LOGISTIC = Predictor(_logistic, {"C": Uniform(1e-3, 1e2, log=True)})
SVM = Predictor(_svm, {"C": Uniform(1e-1, 1e3, log=True), "gamma": Uniform(0.03, 3.0, log=True)})
# The exponent is that of the graph's weights.
SPREADING = Predictor(_spreading, {"alpha": Uniform(0.05, 0.99), "power": Uniform(0.5, 6.0)})
ESTIMATOR = Predictor(_estimator)
