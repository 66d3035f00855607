"""Logistic regression on a node's features, its neighbors' features, and which nodes its neighbors are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import KeptSignals
from sobgnn.estimator.families.pagerank import unit_rows
from sobgnn.estimator.families.regressions import logistic_regressions
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.graphs.graph import Graph

# Weight of the labels relative to |W|²/2.
_STRENGTH = 3.0


class LinkedLinear:
    r"""Logistic regression on the columns of

    .. math:: Z = [\, X, \; R X, \; R \,], \qquad R = D^{-1/2} A,

    with all edges of A weighted equally; rows of X and R have length 1. A node's own features are not averaged with
    others, and neighbors are not assumed to share its class: even if edges connect different classes, a node's
    neighbors may predict its class.
    """

    name: ClassVar[str] = "links"
    on_graph: ClassVar[bool] = True
    given_only: ClassVar[bool] = True
    smooths: ClassVar[bool] = False

    def __init__(self, view: str) -> None:
        self.view = view

    def fit(self, problem: Problem, labels: Labels) -> FittedLinks:
        """Train one classifier for each signal."""
        R, X = unit_pattern(problem.views[self.view].graph), unit_rows(problem.rows)
        edges = R[labels.index]
        # Only neighbors of labeled nodes have a weight.
        joined = np.unique(edges.indices)
        own, around = sp.csr_array(X[labels.index]), sp.csr_array(edges @ X)
        Z = sp.csr_array(sp.hstack([own, around, edges[:, joined]]))
        weight, bias = logistic_regressions(Z, labels, _STRENGTH)
        own_weight, around_weight, node_weight = np.split(weight.reshape(len(weight), -1), [X.shape[1], 2 * X.shape[1]])
        told = np.asarray(X @ around_weight)
        told[joined] += node_weight
        shape = (problem.count, *bias.shape)
        logits = np.asarray(X @ own_weight + R @ told).reshape(shape) + bias
        signals = torch.from_numpy(logits).softmax(dim=2).float().transpose(0, 1).to(problem.device)
        problem.tell(self.name, 1, 1)
        return FittedLinks(
            self.view, torch.from_numpy(weight[: X.shape[1], -1].copy()), torch.from_numpy(bias[-1]),
            torch.from_numpy(told.reshape(shape)[:, -1]).float().contiguous(), signals=signals,
        )  # fmt: skip

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedLinks:
        """Restore from the weights learned from all labels."""
        weight, bias, told = arrays["weight"], arrays["bias"], arrays["told"]
        fits = weight.shape == (problem.rows.shape[1], problem.classes) and bias.shape == (problem.classes,)
        if not fits or told.shape != (problem.count, problem.classes):
            raise ValueError("its classifier of links does not fit its points")
        return FittedLinks(self.view, weight.cpu(), bias.cpu(), told.cpu().float())


@dataclass(frozen=True)
class FittedLinks(KeptSignals):
    r"""The classifier learned from all labels.

    .. math:: z_i = x_i W + \frac{1}{\sqrt{d_i}} \sum_j t_j + b,

    with d the number of edges, for training points and new ones alike.

    Attributes:
        weight, bias: W and b, [F, C] and [C].
        told: t [N, C], what each training point adds to its neighbors' logits: its features' logits and its own
            weights.
    """

    view: str
    weight: Tensor
    bias: Tensor
    told: Tensor

    def predict(self, new: NewPoints) -> Tensor:
        """[M, C]; a new point without edges is predicted from its features."""
        own = torch.from_numpy(np.asarray(unit_rows(new.rows) @ self.weight.numpy())).float()
        joined = new.joined[self.view]
        degree = joined.degree.cpu().clamp(min=1).float().unsqueeze(1)
        around = joined.total(self.told.to(new.points.device)).cpu() / degree.sqrt()
        return (own + around + self.bias.float()).softmax(dim=1).to(new.points.device)

    def arrays(self) -> dict[str, Tensor]:
        """``weight``, ``bias`` and ``told``."""
        return {"weight": self.weight, "bias": self.bias, "told": self.told}


def unit_pattern(graph: Graph) -> sp.csr_array:
    """R of :class:`LinkedLinear`, [N, N]; rows of nodes without edges are zero."""
    pattern = graph.to("cpu").to_scipy(copy=False).astype(np.float64)
    degree = np.diff(pattern.indptr)
    pattern.data = np.repeat(1 / np.sqrt(np.maximum(degree, 1)), degree)
    return sp.csr_array(pattern)
