"""Logistic regressions of the classes, one for each fit: without each fold's labels, and with all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn._system.process import eigen, importing, one_blas_thread
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed

# The logit of a class without labels in a fit: practically impossible.
_IMPOSSIBLE = -30.0
# The largest entry of the gradient at which a regression has converged.
_TOLERANCE = 1e-6
# Number of labels up to which Z, if it has more columns than labels, is rotated to at most as many columns, and the
# least variance of such a column, as a share of the largest.
_MOST_ROTATED, _LEAST_VARIANCE = 2048, 1e-10


def logistic_regressions(
    Z: Any, labels: Labels, strength: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    r"""Weights W [F, folds + 1, C] and biases b [folds + 1, C] of logits :math:`z W + b`, by scikit-learn.

    .. math:: \min_{W, b} \; c \sum_l w_l \ell(z_l, y_l) + \frac{1}{2} \|W\|^2

    The optimal W is a combination of labeled rows. So if columns outnumber labels, regressions on the few columns of Q,
    with :math:`Z = Q V^\top` and orthonormal V, give the same result: :math:`W = V w`.

    Args:
        Z: Rows of the labeled points [L, F], dense or sparse.
        labels: The labels, with their weights and folds.
        strength: c, the weight of the labels relative to the penalty.
    """
    with importing():
        from sklearn.linear_model import LogisticRegression

    if len(labels.index) < min(Z.shape[1], _MOST_ROTATED):
        rotated, basis = _rotation(Z)
        weight, bias = logistic_regressions(rotated, labels, strength)
        return np.asarray(basis @ weight.reshape(len(weight), -1)).reshape(-1, *bias.shape), bias
    shares = labels.shares()
    weight = np.zeros((Z.shape[1], len(shares), labels.classes))
    bias = np.full((len(shares), labels.classes), _IMPOSSIBLE)
    for number, share in enumerate(shares):
        used = share > 0
        # For two classes scikit-learn fits the difference v of their logits. With W = [-v, v] / 2 the penalty on W is
        # half of that on v.
        binary = len(np.unique(labels.codes[used])) == 2
        model = LogisticRegression(C=2 * strength if binary else strength, max_iter=500, tol=_TOLERANCE)
        with one_label_per_class_allowed(), one_blas_thread():
            model.fit(Z[used], labels.codes[used], share[used] * used.sum())
        weight[:, number, model.classes_] = (
            np.stack([-model.coef_[0], model.coef_[0]]) / 2 if binary else model.coef_
        ).T
        bias[number, model.classes_] = (
            [-model.intercept_[0] / 2, model.intercept_[0] / 2] if binary else model.intercept_
        )
    return weight, bias


def _rotation(Z: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Q [L, R] and V [F, R] with orthonormal columns, Z = Q Vᵀ of rank R up to rounding."""
    products = Z @ Z.T
    values, vectors = eigen(np.asarray(products.toarray() if sp.issparse(products) else products))
    kept = values > _LEAST_VARIANCE * values[-1]
    kept[-1] = True  # even if all rows are zero
    root, vectors = np.sqrt(values[kept].clip(min=np.finfo(float).tiny)), vectors[:, kept]
    return vectors * root, np.asarray(Z.T @ (vectors / root))


def softmax(logits: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Probabilities of logits [M, C]."""
    powers = np.exp(np.asarray(logits, np.float64) - np.max(logits, axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))
