"""Families for given graphs: logistic regressions on features spread over the graph, and on features and neighbors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.special import softmax
from torch import Tensor

from sobgnn._system.process import eigen, importing, one_blas_thread
from sobgnn.estimator.families.contract import Family, FittedFamily, Graphs, Learned
from sobgnn.estimator.labels import Labels, one_label_per_class_allowed
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import shaped
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.reweight import scaled_rows

_Array = npt.NDArray[np.float64]

# Weight of labels relative to |W|²/2, strength of the spreading, and steps after which the rest is below a hundredth.
_C, STRENGTH, _STEPS = 3.0, 0.9, 44
_COLUMNS_PER_BLOCK = 256
# Differences between points up to this share of their mean are rounding.
_ROUNDING = 1e-8
# The logit of a class without labels in a fit: practically impossible.
_IMPOSSIBLE = -30.0
# The largest entry of the gradient at which a regression has converged.
_TOLERANCE = 1e-6
# Number of labels up to which Z, if it has more columns than labels, is rotated to at most as many columns, and the
# least variance of such a column, as a share of the largest.
_MOST_ROTATED, _LEAST_VARIANCE = 2048, 1e-10


class PageRankLinear(Family):
    r"""Logistic regression on features that are first spread over the graph by personalized PageRank.

    .. math:: Z = (1 - a) \sum_{k \ge 0} a^k T^k X, \qquad T = D^{-1/2} (A + I) D^{-1/2}, \qquad a = 0.9,

    with all edges of A weighted equally and rows of X of length 1; all raw columns are used, such as all words. If
    columns outnumber labels, as words do, only the labeled rows of Z are computed, which is possible because T is
    symmetric, and then the logits are spread.
    """

    name: ClassVar[str] = "pagerank"
    title: ClassVar[str] = "linear classifier on PageRank features"
    explained: ClassVar[str] = "weighs columns averaged over the given graph"
    graphs: ClassVar[Graphs] = "given"

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Train one classifier for each fit."""
        step = transition(points.graphs[self.graph].graph)
        X = unit_rows(points.rows)
        dense = X.shape[1] <= len(labels.index)
        if dense:
            whole = spread(step, np.asarray(X.toarray() if sp.issparse(X) else X))
            Z, center = whole[labels.index], whole.mean(axis=0)
        else:
            marks = np.zeros((points.count, len(labels.index) + 1))
            marks[labels.index, np.arange(len(labels.index))] = 1
            marks[:, -1] = 1 / points.count
            Z = np.asarray(spread(step, marks).T @ X)
            Z, center = Z[:-1], Z[-1]
        Z = Z - center
        size = np.sqrt(np.square(Z).sum(axis=1).mean())
        # If spreading makes all points equal, only rounding is left, which is not information.
        if size <= _ROUNDING * np.sqrt(np.square(center).sum()):
            Z, size = np.zeros_like(Z), 1.0
        weight, bias = logistic_regressions(Z / size, labels)
        weight /= size
        bias -= np.tensordot(center, weight, axes=1)
        out_of_fold = labels.each_fold(
            lambda fold, held: softmax((Z[held] + center) @ weight[:, fold] + bias[fold], axis=1)
        )
        own = weight[:, -1]
        logits = whole @ own if dense else spread(step, np.asarray(X @ own))
        points.report(self.name, 1, 1)
        return Learned(FittedPageRank(self.graph, own.copy(), bias[-1].copy(), logits), out_of_fold)


class LinkedLinear(Family):
    r"""Logistic regression on the columns of

    .. math:: Z = [\, X, \; R X, \; R \,], \qquad R = D^{-1/2} A,

    with all edges of A weighted equally; rows of X and R have length 1. A node's own features are not averaged with
    others, and neighbors are not assumed to share its class: even if edges connect different classes, a node's
    neighbors may predict its class.
    """

    name: ClassVar[str] = "links"
    title: ClassVar[str] = "linear classifier on neighbors"
    explained: ClassVar[str] = "weighs a row's columns, and which rows it is linked to"
    graphs: ClassVar[Graphs] = "given"

    def fit(self, points: Points, labels: Labels, before: object = None) -> Learned:
        """Train one classifier for each fit."""
        R, X = unit_pattern(points.graphs[self.graph].graph), unit_rows(points.rows)
        edges = R[labels.index]
        # Only neighbors of labeled nodes have a weight.
        joined = np.unique(edges.indices)
        own, around = sp.csr_array(X[labels.index]), sp.csr_array(edges @ X)
        Z = sp.csr_array(sp.hstack([own, around, edges[:, joined]]))
        weight, bias = logistic_regressions(Z, labels)
        out_of_fold = labels.each_fold(lambda fold, held: softmax(Z[held] @ weight[:, fold] + bias[fold], axis=1))
        own_weight, around_weight, node_weight = np.split(weight[:, -1], [X.shape[1], 2 * X.shape[1]])
        sent = np.asarray(X @ around_weight)
        sent[joined] += node_weight
        points.report(self.name, 1, 1)
        return Learned(FittedLinks(self.graph, own_weight.copy(), bias[-1].copy(), sent), out_of_fold)


@dataclass(frozen=True)
class _FittedOnGraph(FittedFamily):
    """A classifier learned from all labels: W and b of a point's own features, and what it passes on to neighbors."""

    graph: str
    weight: _Array = field(metadata=shaped("features", "classes"))
    bias: _Array = field(metadata=shaped("classes"))
    passed: _Array = field(metadata=shaped("points", "classes"))


class FittedPageRank(_FittedOnGraph):
    r"""A new point's logits are what they would be in training, given its neighbors' logits z, which they pass on.

    With d the number of edges,

    .. math:: z_i = (1 - a) x_i W + a \Big(\frac{z_i}{d_i + 1} + \sum_j \frac{z_j}{\sqrt{(d_i + 1)(d_j + 1)}}\Big).
    """

    def predict(self, view: View) -> Tensor:
        """Probabilities [M, C], of a new point from its own features and its neighbors' spread logits."""
        joined, device = view.joined(self.graph), view.points.device
        if joined is None:
            return torch.from_numpy(softmax(self.passed + self.bias, axis=1)).float().to(device)
        own = torch.from_numpy(np.asarray(unit_rows(view.rows) @ self.weight)).float()
        degree = view.training.graphs[self.graph].graph.degree.cpu()
        looped = (joined.degree.cpu() + 1).float().unsqueeze(1)
        shares = torch.from_numpy(self.passed).float() / (degree + 1).float().sqrt().unsqueeze(1)
        around = joined.total(shares.to(device)).cpu() / looped.sqrt()
        logits = ((1 - STRENGTH) * own + STRENGTH * around) / (1 - STRENGTH / looped)
        return (logits + torch.from_numpy(self.bias).float()).softmax(dim=1).to(device)


class FittedLinks(_FittedOnGraph):
    r"""A point passes on its features' logits and its own weights, t:

    .. math:: z_i = x_i W + \frac{1}{\sqrt{d_i}} \sum_j t_j + b,

    with d the number of edges, for training points and new ones alike.
    """

    def predict(self, view: View) -> Tensor:
        """[M, C]; a new point without edges is predicted from its features."""
        joined, device, X = view.joined(self.graph), view.points.device, unit_rows(view.rows)
        if joined is None:
            R = unit_pattern(view.training.graphs[self.graph].graph)
            logits = np.asarray(X @ self.weight + R @ self.passed) + self.bias
            return torch.from_numpy(softmax(logits, axis=1)).float().to(device)
        own = torch.from_numpy(np.asarray(X @ self.weight)).float()
        degree = joined.degree.cpu().clamp(min=1).float().unsqueeze(1)
        around = joined.total(torch.from_numpy(self.passed).float().to(device)).cpu() / degree.sqrt()
        return (own + around + torch.from_numpy(self.bias).float()).softmax(dim=1).to(device)


def unit_pattern(graph: Graph) -> sp.csr_array:
    """R of :class:`LinkedLinear`, [N, N]; rows of nodes without edges are zero."""
    pattern = graph.to("cpu").to_scipy(copy=False).astype(np.float64)
    degree = np.diff(pattern.indptr)
    pattern.data = np.repeat(1 / np.sqrt(np.maximum(degree, 1)), degree)
    return sp.csr_array(pattern)


def transition(graph: Graph) -> sp.csr_array:
    """T of :class:`PageRankLinear`, [N, N]."""
    pattern = graph.to("cpu").to_scipy(copy=False).astype(np.float64)
    pattern.data = np.ones_like(pattern.data)
    looped = sp.csr_array(pattern + sp.eye_array(pattern.shape[0]))
    scale = sp.diags_array(1 / np.sqrt(looped.sum(axis=1)))
    return sp.csr_array(scale @ looped @ scale)


def spread(step: sp.csr_array, signal: _Array) -> _Array:
    """(1 - a) Σ aᵏ Tᵏ times a signal [N, h], in blocks of columns."""
    out = np.empty_like(signal)
    for start in range(0, signal.shape[1], _COLUMNS_PER_BLOCK):
        columns = slice(start, start + _COLUMNS_PER_BLOCK)
        base = (1 - STRENGTH) * signal[:, columns]
        current = base
        for _ in range(_STEPS):
            current = base + STRENGTH * (step @ current)
        out[:, columns] = current
    return out


def unit_rows(X: Any) -> Any:
    """Rows of length 1, dense or sparse; rows of zeros are unchanged."""
    sparse = sp.issparse(X)
    X = scaled_rows(sp.csr_array(X, dtype=np.float64, copy=True) if sparse else np.asarray(X, dtype=np.float64))
    length = np.sqrt(np.asarray((X.multiply(X) if sparse else np.square(X)).sum(axis=1))).ravel()
    length = np.where(length > 0, length, 1.0)
    return sp.csr_array(sp.diags_array(1 / length) @ X) if sparse else X / length[:, None]


def logistic_regressions(Z: Any, labels: Labels, strength: float = _C) -> tuple[_Array, _Array]:
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
        signs = np.array([[-0.5], [0.5]]) if binary else np.ones((len(model.classes_), 1))
        weight[:, number, model.classes_] = (signs * model.coef_).T
        bias[number, model.classes_] = signs[:, 0] * model.intercept_
    return weight, bias


def _rotation(Z: Any) -> tuple[_Array, _Array]:
    """Q [L, R] and V [F, R] with orthonormal columns, Z = Q Vᵀ of rank R up to rounding."""
    products = Z @ Z.T
    values, vectors = eigen(np.asarray(products.toarray() if sp.issparse(products) else products))
    kept = values > _LEAST_VARIANCE * values[-1]
    kept[-1] = True  # even if all rows are zero
    root, vectors = np.sqrt(values[kept].clip(min=np.finfo(float).tiny)), vectors[:, kept]
    return vectors * root, np.asarray(Z.T @ (vectors / root))
