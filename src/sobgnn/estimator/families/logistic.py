"""Logistic regressions of the classes, one for each signal: without each fold's labels, and with all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.labels import Labels, one_label_per_class_allowed

# The logit of a class that a signal has no label of: as good as impossible.
_IMPOSSIBLE = -30.0


def logistic_regressions(
    Z: Any, labels: Labels, strength: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    r"""Weights W [F, folds + 1, C] and biases b [folds + 1, C] of logits :math:`z W + b`, by scikit-learn.

    .. math:: \min_{W, b} \; c \sum_l w_l \ell(z_l, y_l) + \frac{1}{2} \|W\|^2

    Args:
        Z: Rows of the labeled points [L, F], dense or sparse.
        labels: Whose weights and folds count.
        strength: c, what labels weigh against the penalty.
    """
    from sklearn.linear_model import LogisticRegression

    shares = labels.shares()
    weight = np.zeros((Z.shape[1], len(shares), labels.classes))
    bias = np.full((len(shares), labels.classes), _IMPOSSIBLE)
    for signal, share in enumerate(shares):
        used = share > 0
        model = LogisticRegression(C=strength, max_iter=500, tol=1e-6)
        with one_label_per_class_allowed():
            model.fit(Z[used], labels.codes[used], share[used] * used.sum())
        # Of two classes scikit-learn keeps the second's logit against the first's.
        binary = len(model.classes_) == 2
        weight[:, signal, model.classes_] = (
            np.stack([-model.coef_[0], model.coef_[0]]) / 2 if binary else model.coef_
        ).T
        bias[signal, model.classes_] = (
            [-model.intercept_[0] / 2, model.intercept_[0] / 2] if binary else model.intercept_
        )
    return weight, bias
