"""Logistic regression on features spread over a given graph by personalized PageRank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import LARGEST_WEIGHT, Graphs, Learned
from sobgnn.estimator.families.regressions import logistic_regressions, softmax
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.state import check_array
from sobgnn.graphs.graph import Graph
from sobgnn.graphs.reweight import scaled_rows

# Strength of the spreading, steps after which the rest is below a hundredth, and weight of labels relative to |W|²/2.
STRENGTH, _STEPS, _C = 0.9, 44, 3.0
_COLUMNS_PER_BLOCK = 256
# Differences between points up to this share of their mean are rounding.
_ROUNDING = 1e-8


class PageRankLinear:
    r"""Logistic regression on features that are first spread over the graph.

    .. math:: Z = (1 - a) \sum_{k \ge 0} a^k T^k X, \qquad T = D^{-1/2} (A + I) D^{-1/2}, \qquad a = 0.9,

    with all edges of A weighted equally and rows of X of length 1; all raw columns are used, such as all words. If
    columns outnumber labels, as words do, only the labeled rows of Z are computed, which is possible because T is
    symmetric, and then the logits are spread.
    """

    name: ClassVar[str] = "pagerank"
    graphs: ClassVar[Graphs] = "given"

    def __init__(self, graph: str) -> None:
        self.graph = graph

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Train one classifier for each fit."""
        step = transition(points.graphs[self.graph].graph)
        X = unit_rows(points.rows)
        whole = spread(step, _dense(X)) if X.shape[1] <= len(labels.index) else None
        if whole is not None:
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
        weight, bias = logistic_regressions(Z / size, labels, _C)
        weight /= size
        bias -= np.tensordot(center, weight, axes=1)
        out_of_fold = labels.each_fold(lambda fold, held: softmax((Z[held] + center) @ weight[:, fold] + bias[fold]))
        own = weight[:, -1]
        logits = spread(step, np.asarray(X @ own)) if whole is None else whole @ own
        points.report(self.name, 1, 1)
        return Learned(FittedPageRank(self.graph, own.copy(), bias[-1].copy(), logits), out_of_fold)


@dataclass(frozen=True)
class FittedPageRank:
    r"""The classifier learned from all labels.

    A new point's logits are what they would be in training, given its neighbors' logits. With d the number of edges,

    .. math:: z_i = (1 - a) x_i W + a \Big(\frac{z_i}{d_i + 1} + \sum_j \frac{z_j}{\sqrt{(d_i + 1)(d_j + 1)}}\Big).

    Attributes:
        graph: The name of the graph.
        weight, bias: Weights and biases of the logits, [F, C] and [C].
        spread: XW spread over the training graph, [N, C].
    """

    graph: str
    weight: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    spread: npt.NDArray[np.float64]

    def predict(self, view: View) -> Tensor:
        """Probabilities [M, C], of a new point from its own features and its neighbors' spread logits."""
        joined, device = view.joined(self.graph), view.points.device
        if joined is None:
            return torch.from_numpy(softmax(self.spread + self.bias)).float().to(device)
        own = torch.from_numpy(np.asarray(unit_rows(view.rows) @ self.weight)).float()
        degree = view.training.graphs[self.graph].graph.degree.cpu()
        looped = (joined.degree.cpu() + 1).float().unsqueeze(1)
        shares = torch.from_numpy(self.spread).float() / (degree + 1).float().sqrt().unsqueeze(1)
        around = joined.total(shares.to(device)).cpu() / looped.sqrt()
        logits = ((1 - STRENGTH) * own + STRENGTH * around) / (1 - STRENGTH / looped)
        return (logits + torch.from_numpy(self.bias).float()).softmax(dim=1).to(device)

    def check(self, sizes: Sizes) -> None:
        """Check shapes and ranges."""
        sizes.check_graph(self.graph)
        check_array(self.weight, (sizes.features, sizes.classes), "PageRank classifier", most=LARGEST_WEIGHT)
        check_array(self.bias, (sizes.classes,), "PageRank classifier", most=LARGEST_WEIGHT)
        check_array(self.spread, (sizes.points, sizes.classes), "PageRank classifier", most=LARGEST_WEIGHT)


def transition(graph: Graph) -> sp.csr_array:
    """T of :class:`PageRankLinear`, [N, N]."""
    pattern = graph.to("cpu").to_scipy(copy=False).astype(np.float64)
    pattern.data = np.ones_like(pattern.data)
    looped = sp.csr_array(pattern + sp.eye_array(pattern.shape[0]))
    scale = sp.diags_array(1 / np.sqrt(looped.sum(axis=1)))
    return sp.csr_array(scale @ looped @ scale)


def spread(step: sp.csr_array, signal: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
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


def _dense(X: Any) -> npt.NDArray[np.float64]:
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def unit_rows(X: Any) -> Any:
    """Rows of length 1, dense or sparse; rows of zeros are unchanged."""
    if sp.issparse(X):
        X = scaled_rows(sp.csr_array(X, dtype=np.float64, copy=True))
        length = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        return sp.csr_array(sp.diags_array(1 / np.where(length > 0, length, 1.0)) @ X)
    dense = scaled_rows(np.asarray(X, dtype=np.float64))
    length = np.sqrt(np.square(dense).sum(axis=1, keepdims=True))
    return dense / np.where(length > 0, length, 1.0)
