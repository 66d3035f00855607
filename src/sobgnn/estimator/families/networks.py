"""Networks with one hidden layer, many members trained at once: MLPs, and decoupled Sobolev networks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from sobgnn.estimator.families.blocks import BlockNetworks, BlockProgress, BlockSchedule, train_blocks
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem
from sobgnn.runtime.process import at_most

# Hops of the decoupled networks, and the bytes of propagated features up to which more than one hop is used.
HOPS = 2
_PROPAGATED_BYTES = 2**31
# Steps and initial learning rate of a refit, as shares of those of a fit.
_FURTHER_STEPS, _FURTHER_RATE = 0.2, 0.3
# Number of new points up to which they are predicted in float64.
_EXACT_ROWS = 1024
# Rows that are predicted at once: on a GPU, enough to keep it busy.
_ROWS_PER_BLOCK = {"cpu": 1 << 13, "cuda": 1 << 17}


class Blocks(Protocol):
    """Blocks of features that networks read."""

    def training(self, rows: Tensor) -> Tensor:
        """Blocks of some training points: [B, R, D]."""

    def new(self, points: NewPoints) -> Tensor:
        """Blocks of new points: [B, M, D]."""


class MLPs:
    r"""Multilayer perceptrons on the points' own features: :math:`\mathrm{ReLU}(x W_1 + b_1) W_2 + b_2`."""

    name: ClassVar[str] = "mlp"
    on_graph: ClassVar[bool] = False
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    def fit(self, problem: Problem, labels: Labels) -> FittedNetworks:
        """Train members without each fold and from all labels, as one batch."""
        return _fit(self.name, PointBlocks(problem.points), problem.networks.hidden_channels, problem, labels)

    def refit(self, problem: Problem, labels: Labels, before: FittedNetworks) -> FittedNetworks:
        """Continue training all members, from all labels."""
        blocks, width = PointBlocks(problem.points), problem.networks.hidden_channels
        return _fit(self.name, blocks, width, problem, labels, before=before)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedNetworks:
        """Restore from the members' weights."""
        return _restored(arrays, PointBlocks(problem.points), 1, problem)


class SobolevNetworks:
    r"""Decoupled Sobolev networks: sparse Sobolev operators are applied once, then networks learn from the result.

    .. math:: \mathrm{logits} = \sum_b \mathrm{ReLU}(x_b W_{1,b} + b_{1,b}) W_{2,b} + b_2, \qquad
        x_b \in \{x\} \cup \{\hat{A}_\rho^h x : \rho = 1, \dots, \alpha, \; h = 1, 2\}

    so training reads only labeled rows and costs as much as that of an MLP. With very many points, only one hop is
    used.
    """

    name: ClassVar[str] = "sobolev"
    on_graph: ClassVar[bool] = True
    given_only: ClassVar[bool] = False
    smooths: ClassVar[bool] = True

    def __init__(self, view: str) -> None:
        self.view = view

    def _blocks(self, problem: Problem) -> SobolevBlocks:
        operators = problem.views[self.view].operators
        size = 4 * problem.points.numel() * operators.alpha * HOPS
        return SobolevBlocks(problem, self.view, HOPS if size <= _PROPAGATED_BYTES else 1)

    def fit(self, problem: Problem, labels: Labels) -> FittedNetworks:
        """Propagate once; train members without each fold and from all labels, as one batch."""
        return self._fit(problem, labels)

    def refit(self, problem: Problem, labels: Labels, before: FittedNetworks) -> FittedNetworks:
        """Continue training all members, from all labels."""
        return self._fit(problem, labels, before)

    def _fit(self, problem: Problem, labels: Labels, before: FittedNetworks | None = None) -> FittedNetworks:
        width = max(8, problem.networks.hidden_channels // 2)
        name, blocks = f"{self.name} {self.view}", self._blocks(problem)
        return _fit(name, blocks, width, problem, labels, stage=self.name, before=before)

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedNetworks:
        """Restore from the members' weights."""
        blocks = self._blocks(problem)
        return _restored(arrays, blocks, blocks.number, problem)


@dataclass(frozen=True)
class PointBlocks:
    """One block: the points themselves."""

    points: Tensor

    def training(self, rows: Tensor) -> Tensor:
        """[1, R, D]."""
        return self.points[rows].unsqueeze(0)

    def new(self, points: NewPoints) -> Tensor:
        """[1, M, D]."""
        return points.points.unsqueeze(0)


@dataclass(frozen=True)
class SobolevBlocks:
    """The points, and every order of them after each hop."""

    problem: Problem
    view: str
    hops: int

    @property
    def number(self) -> int:
        """Number of blocks B."""
        return 1 + self.hops * self.problem.views[self.view].operators.alpha

    def training(self, rows: Tensor) -> Tensor:
        """[B, R, D]."""
        points, view = self.problem.points, self.problem.views[self.view]
        if self.hops == 1 and len(rows) < len(points):  # no copy of all orders of all points
            own = [view.operators.rows(rows).propagate(points)]
        else:
            own = [hop[rows] for hop in view.propagated(points, self.hops)[1:]]
        return torch.cat([points[rows].unsqueeze(0), *(hop.transpose(0, 1) for hop in own)])

    def new(self, points: NewPoints) -> Tensor:
        """[B, M, D]: new points read their neighbors, which are unchanged."""
        joined = points.joined[self.view]
        own = [joined.propagate(points.nodes, points.points)]
        for nodes in self.problem.views[self.view].propagated(self.problem.points, self.hops - 1)[1:]:
            own.append(joined.propagate_each(nodes, own[-1]))
        return torch.cat([points.points.unsqueeze(0), *(hop.transpose(0, 1) for hop in own)])


@dataclass(frozen=True)
class FittedNetworks:
    """Members of one kind of network.

    Attributes:
        networks: Their weights; the first ``folds`` members hold out one fold each, the others learn from all labels.
            The last ``n_members`` of them (all, if that is more than the folds) are used for predictions.
        blocks: Their input.
        folds: Number of members that hold out a fold.
        problem: The problem that they learned from.
        history: Training curves, [T] each, by name.
    """

    networks: BlockNetworks
    blocks: Blocks
    folds: int
    problem: Problem
    history: dict[str, list[float]] = field(default_factory=dict)

    def probabilities(self) -> Tensor:
        """Each fold's member, and last the mean of those for predictions: [folds + 1, N, C]."""
        problem = self.problem
        out = problem.points.new_empty((problem.count, self.folds + 1, problem.classes))
        for rows in _row_blocks(problem):
            own = self.networks.logits(self.blocks.training(rows)).softmax(dim=2)
            mean = own[-problem.networks.members :].mean(dim=0, keepdim=True)
            out[rows] = torch.cat([own[: self.folds], mean]).transpose(0, 1)
        return out.transpose(0, 1)

    def predict(self, new: NewPoints) -> Tensor:
        """The mean of the members used for predictions, [M, C].

        Few points are predicted in float64: the position of a row in a product decides in which order a processor adds
        it up, and a point's probabilities must not depend on that.
        """
        x = self.blocks.new(new)
        exact = x.shape[1] <= _EXACT_ROWS
        own = (self._exact.logits(x.double()) if exact else self.networks.logits(x)).softmax(dim=2)
        return own[-self.problem.networks.members :].mean(dim=0).to(x.dtype)

    @cached_property
    def _exact(self) -> BlockNetworks:
        return self.networks.double()

    def hidden(self) -> Tensor:
        """The last member's hidden rows at every point, [N, B · h]."""
        networks, rows = self.networks, []
        for index in _row_blocks(self.problem):
            x = self.blocks.training(index)
            own = torch.baddbmm(networks.bias1[:, -1], x, networks.weight1[:, -1]).relu_()
            rows.append(own.transpose(0, 1).flatten(1))
        return torch.cat(rows)

    def arrays(self) -> dict[str, Tensor]:
        """The members' weights."""
        networks = self.networks
        return {name: getattr(networks, name).contiguous() for name in ("weight1", "bias1", "weight2", "bias2")}


def _row_blocks(problem: Problem) -> Iterator[Tensor]:
    """Blocks of consecutive rows."""
    size = _ROWS_PER_BLOCK.get(problem.device.type, 1 << 14)
    for start in range(0, problem.count, size):
        yield torch.arange(start, min(start + size, problem.count), device=problem.device)


def _fit(
    name: str,
    blocks: Blocks,
    hidden: int,
    problem: Problem,
    labels: Labels,
    stage: str | None = None,
    before: FittedNetworks | None = None,
) -> FittedNetworks:
    """Train members without each fold and from all labels; continue with those of ``before``, if given."""
    settings, device = problem.networks, problem.device
    start = None if before is None else before.networks
    members = labels.folds + max(1, settings.members - labels.folds) if start is None else len(start.bias2)
    seeds = [int(seed) for seed in problem.generator(name).integers(2**31, size=members)]
    index, codes = labels.tensors(device)
    shares = labels.shares()[np.minimum(np.arange(members), labels.folds)]
    schedule = BlockSchedule(steps=settings.epochs, lr=settings.lr, weight_decay=settings.weight_decay)
    if start is not None:
        steps, passes = (math.ceil(_FURTHER_STEPS * part) for part in (schedule.steps, schedule.passes))
        schedule = replace(schedule, steps=steps, passes=passes, lr=_FURTHER_RATE * schedule.lr)
    history: dict[str, list[float]] = {"epoch": [], "train_loss": [], "validation_loss": [], "validation_accuracy": []}
    held_out = (~labels.known() * labels.weight)[np.minimum(np.arange(members), labels.folds)]

    def seen(at: BlockProgress) -> bool:
        values = (at.step, at.train_loss, at.validation_loss, at.validation_accuracy)
        for curve, value in zip(history.values(), values, strict=True):
            curve.append(float(value))
        return problem.tell(stage or name, at.step, at.steps, *values[1:])

    # One thread: a product that is split over threads is rounded differently.
    with at_most(1):
        networks = train_blocks(
            blocks.training(index), codes, torch.from_numpy(shares).float().to(device), seeds, hidden, labels.classes,
            schedule, dropout=settings.dropout, progress=seen, start=start,
            held_out=torch.from_numpy(held_out).float().to(device) if labels.folds else None,
        )  # fmt: skip
    return FittedNetworks(networks, blocks, labels.folds, problem, history)


def _restored(arrays: Mapping[str, Tensor], blocks: Blocks, number: int, problem: Problem) -> FittedNetworks:
    weight1, bias1, weight2, bias2 = (arrays[name] for name in ("weight1", "bias1", "weight2", "bias2"))
    members, hidden = weight1.shape[1], weight1.shape[-1]
    fits = (
        weight1.shape == (number, members, problem.points.shape[1], hidden)
        and bias1.shape == (number, members, 1, hidden)
        and weight2.shape == (number, members, hidden, problem.classes)
        and bias2.shape == (members, 1, problem.classes)
    )
    if not fits:
        raise ValueError("its networks do not fit its points")
    return FittedNetworks(BlockNetworks(weight1, bias1, weight2, bias2), blocks, 0, problem)
