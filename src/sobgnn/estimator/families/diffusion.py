"""Diffused labels: only the labels, spread over the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.estimator.smoothing import diffuse

# Strength of the diffusion.
STRENGTH = 0.98


class DiffusedLabels:
    r"""Labels spread over the strongest edges of a graph: label propagation with the labels clamped.

    .. math:: P \leftarrow (1 - a) Y + a D^{-1/2} A D^{-1/2} P, \qquad P_i = Y_i \text{ at labeled points}

    where Y has a one-hot row for each labeled point and zeros elsewhere, and a = 0.98.
    """

    name: ClassVar[str] = "diffusion"
    on_graph: ClassVar[bool] = True
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = False

    def __init__(self, view: str) -> None:
        self.view = view

    def fit(self, problem: Problem, labels: Labels) -> FittedDiffusion:
        """Spread the labels of every signal."""
        index, codes = labels.tensors(problem.device)
        known = torch.from_numpy(labels.known()).to(problem.device)
        spread = diffuse(problem.views[self.view].near, STRENGTH, index, torch.where(known, codes, -1), labels.classes)
        return FittedDiffusion(self.view, spread.transpose(0, 1))

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedDiffusion:
        """Restore from the spread labels of the training points."""
        return restore_spread(self.view, arrays, problem)


@dataclass(frozen=True)
class FittedDiffusion:
    """Spread labels, [folds + 1, N, C]."""

    view: str
    spread: Tensor

    @cached_property
    def _whole(self) -> Tensor:
        """The signal of all labels, [N, C], contiguous in memory."""
        return self.spread[-1].contiguous()

    def probabilities(self) -> Tensor:
        """[folds + 1, N, C]."""
        return self.spread

    def predict(self, new: NewPoints) -> Tensor:
        """The weighted mean of the neighbors' spread labels; uniform without neighbors."""
        around = new.joined[self.view].average(self._whole)
        total = around.sum(dim=1, keepdim=True)
        return torch.where(total > 0, around / total.clamp(min=1e-30), 1 / around.shape[1])

    def arrays(self) -> dict[str, Tensor]:
        """``spread`` [N, C], of all labels."""
        return {"spread": self._whole}


def restore_spread(view: str, arrays: Mapping[str, Tensor], problem: Problem) -> FittedDiffusion:
    """The fitted family whose :meth:`FittedDiffusion.arrays` these are."""
    spread = arrays["spread"]
    if spread.shape != (problem.count, problem.classes):
        raise ValueError("its diffused labels do not fit its points")
    return FittedDiffusion(view, spread.unsqueeze(0))
