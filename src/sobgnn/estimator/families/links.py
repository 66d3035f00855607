"""Logistic regression on a node's features, its neighbors' features, and which nodes its neighbors are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.estimator.families.contract import LARGEST_WEIGHT, Graphs, Learned
from sobgnn.estimator.families.pagerank import unit_rows
from sobgnn.estimator.families.regressions import logistic_regressions, softmax
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.state import check_array
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
    graphs: ClassVar[Graphs] = "given"

    def __init__(self, graph: str) -> None:
        self.graph = graph

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Train one classifier for each fit."""
        R, X = unit_pattern(points.graphs[self.graph].graph), unit_rows(points.rows)
        edges = R[labels.index]
        # Only neighbors of labeled nodes have a weight.
        joined = np.unique(edges.indices)
        own, around = sp.csr_array(X[labels.index]), sp.csr_array(edges @ X)
        Z = sp.csr_array(sp.hstack([own, around, edges[:, joined]]))
        weight, bias = logistic_regressions(Z, labels, _STRENGTH)
        out_of_fold = labels.each_fold(lambda fold, held: softmax(Z[held] @ weight[:, fold] + bias[fold]))
        own_weight, around_weight, node_weight = np.split(weight[:, -1], [X.shape[1], 2 * X.shape[1]])
        sent = np.asarray(X @ around_weight)
        sent[joined] += node_weight
        points.report(self.name, 1, 1)
        return Learned(FittedLinks(self.graph, own_weight.copy(), bias[-1].copy(), sent), out_of_fold)


@dataclass(frozen=True)
class FittedLinks:
    r"""The classifier learned from all labels.

    .. math:: z_i = x_i W + \frac{1}{\sqrt{d_i}} \sum_j t_j + b,

    with d the number of edges, for training points and new ones alike.

    Attributes:
        graph: The name of the graph.
        weight, bias: W and b, [F, C] and [C].
        sent: t [N, C], what each training point adds to its neighbors' logits: its features' logits and its own
            weights.
    """

    graph: str
    weight: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    sent: npt.NDArray[np.float64]

    def predict(self, view: View) -> Tensor:
        """[M, C]; a new point without edges is predicted from its features."""
        joined, device, X = view.joined(self.graph), view.points.device, unit_rows(view.rows)
        if joined is None:
            R = unit_pattern(view.training.graphs[self.graph].graph)
            logits = np.asarray(X @ self.weight + R @ self.sent) + self.bias
            return torch.from_numpy(softmax(logits)).float().to(device)
        own = torch.from_numpy(np.asarray(X @ self.weight)).float()
        degree = joined.degree.cpu().clamp(min=1).float().unsqueeze(1)
        around = joined.total(torch.from_numpy(self.sent).float().to(device)).cpu() / degree.sqrt()
        return (own + around + torch.from_numpy(self.bias).float()).softmax(dim=1).to(device)

    def check(self, sizes: Sizes) -> None:
        """Check shapes and ranges."""
        sizes.check_graph(self.graph)
        check_array(self.weight, (sizes.features, sizes.classes), "classifier of links", most=LARGEST_WEIGHT)
        check_array(self.bias, (sizes.classes,), "classifier of links", most=LARGEST_WEIGHT)
        check_array(self.sent, (sizes.points, sizes.classes), "classifier of links", most=LARGEST_WEIGHT)


def unit_pattern(graph: Graph) -> sp.csr_array:
    """R of :class:`LinkedLinear`, [N, N]; rows of nodes without edges are zero."""
    pattern = graph.to("cpu").to_scipy(copy=False).astype(np.float64)
    degree = np.diff(pattern.indptr)
    pattern.data = np.repeat(1 / np.sqrt(np.maximum(degree, 1)), degree)
    return sp.csr_array(pattern)
