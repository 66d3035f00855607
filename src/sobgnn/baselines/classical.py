"""What a practitioner would try first: scikit-learn's classifiers, and label propagation of several kinds."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.baselines.harmonic import laplace, poisson, poisson_mbo, shifted_laplace
from sobgnn.baselines.space import Setting, Space, Uniform
from sobgnn.graphs.graph import Graph


@dataclass(frozen=True)
class Classical:
    """One row of the table.

    Args:
        predict: (X [N, F], graph, y [N] with -1 for unknown, setting) -> a label for every point [N].
        space: What a random search draws from.
        sizes: Whether it gets the class frequencies as ``sizes`` [C], which no other model does.
    """

    predict: Callable[..., npt.NDArray[Any]]
    space: Space
    sizes: bool = False


def _logistic(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    known = y >= 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty need not converge to be tried
        model = LogisticRegression(C=float(setting["C"]), max_iter=200).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _svm(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    from sklearn.svm import SVC

    known = y >= 0
    scale = 1 / (X.shape[1] * float(X.var()))  # scikit-learn's gamma="scale", of all points
    model = SVC(C=float(setting["C"]), gamma=scale * float(setting["gamma"])).fit(X[known], y[known])
    return np.asarray(model.predict(X))


def _spreading(X: npt.NDArray[Any], graph: Graph, y: npt.NDArray[Any], setting: Setting) -> npt.NDArray[Any]:
    from sklearn.semi_supervised import LabelSpreading

    def kernel(a: Any, b: Any = None) -> Any:
        matrix = graph.to_scipy()
        return matrix.power(float(setting["power"]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # points that no label reaches give 0 / 0, and it may stop early
        model = LabelSpreading(kernel=kernel, alpha=float(setting["alpha"]), max_iter=100).fit(X, y)
    return np.asarray(model.transduction_)


_POWER = Uniform(0.5, 6.0)  # exponent of the graph's weights

CLASSICAL: dict[str, Classical] = {
    "LogReg": Classical(_logistic, {"C": Uniform(1e-3, 1e2, log=True)}),
    "SVM": Classical(_svm, {"C": Uniform(1e-1, 1e3, log=True), "gamma": Uniform(0.03, 3.0, log=True)}),
    "LabelSpreading": Classical(_spreading, {"alpha": Uniform(0.05, 0.99), "power": _POWER}),
    "Laplace": Classical(laplace, {"power": _POWER}),
    "ShiftedLaplace": Classical(shifted_laplace, {"power": _POWER}),
    "Poisson": Classical(poisson, {"power": _POWER}),
    "PoissonMBO": Classical(poisson_mbo, {"power": _POWER}),
    "PoissonMBO+sizes": Classical(poisson_mbo, {"power": _POWER}, sizes=True),
}
