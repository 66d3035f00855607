"""Diffused labels: only the labels, spread over the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sobgnn.estimator.families.contract import Graphs, Learned
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.spreading import diffuse
from sobgnn.estimator.state import check_array

# Strength of the diffusion.
STRENGTH = 0.98


class DiffusedLabels:
    r"""Labels spread over the strongest edges of a graph: label propagation with the labels clamped.

    .. math:: P \leftarrow (1 - a) Y + a D^{-1/2} A D^{-1/2} P, \qquad P_i = Y_i \text{ at labeled points}

    where Y has a one-hot row for each labeled point and zeros elsewhere, and a = 0.98.
    """

    name: ClassVar[str] = "diffusion"
    graphs: ClassVar[Graphs] = "any"

    def __init__(self, graph: str) -> None:
        self.graph = graph

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Spread the labels of every fit, all at once."""
        index, codes = labels.tensors(points.device)
        known = torch.from_numpy(labels.known()).to(points.device)
        smoother = points.graphs[self.graph].strong_smoother
        spread = diffuse(smoother, STRENGTH, index, torch.where(known, codes, -1), labels.classes).transpose(0, 1)
        return Learned(SpreadLabels(self.graph, spread[-1].contiguous()), labels.out_of_fold(spread))


@dataclass(frozen=True)
class SpreadLabels:
    """Labels spread over a graph.

    Attributes:
        graph: The name of the graph.
        spread: Class probabilities of the training points, float32 [N, C].
    """

    graph: str
    spread: Tensor

    def predict(self, view: View) -> Tensor:
        """Of training points, their own; of new ones, the weighted mean of their neighbors', uniform without any."""
        joined = view.joined(self.graph)
        if joined is None:
            return self.spread
        around = joined.average(self.spread)
        total = around.sum(dim=1, keepdim=True)
        return torch.where(total > 0, around / total.clamp(min=1e-30), 1 / around.shape[1])

    def check(self, sizes: Sizes) -> None:
        """Check shapes and ranges."""
        sizes.check_graph(self.graph)
        check_array(self.spread, (sizes.points, sizes.classes), "diffused labels", most=1.0 + 1e-3)
        if not bool((self.spread >= 0).all()):
            raise ValueError("its diffused labels are negative")
