"""Decoupled Sobolev networks with one hidden layer, many members trained at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import at_most
from sobgnn.estimator.families.blocks import BlockNetworks, BlockProgress, BlockSchedule, train_blocks
from sobgnn.estimator.families.contract import LARGEST_WEIGHT, Graphs, Learned
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View
from sobgnn.estimator.state import NAN_ALLOWED, check_array

# Hops of the decoupled networks, and the bytes of propagated features up to which more than one hop is used.
HOPS = 2
_PROPAGATED_BYTES = 2**31
# Steps and initial learning rate of a refit, as shares of those of a fit.
_FURTHER_STEPS, _FURTHER_RATE = 0.2, 0.3
# Number of new points up to which they are predicted in float64.
_EXACT_ROWS = 1024


class SobolevNetworks:
    r"""Decoupled Sobolev networks: sparse Sobolev operators are applied once, then networks learn from the result.

    .. math:: \mathrm{logits} = \sum_b \mathrm{ReLU}(x_b W_{1,b} + b_{1,b}) W_{2,b} + b_2, \qquad
        x_b \in \{x\} \cup \{\hat{A}_\rho^h x : \rho = 1, \dots, \alpha, \; h = 1, 2\}

    so training reads only labeled rows and costs as much as that of an MLP. With very many points, only one hop is
    used.
    """

    name: ClassVar[str] = "sobolev"
    graphs: ClassVar[Graphs] = "any"

    def __init__(self, graph: str) -> None:
        self.graph = graph

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Propagate once; train members without each fold and from all labels, as one batch."""
        return self._fit(points, labels)

    def refit(self, points: Points, labels: Labels, before: FittedNetworks) -> Learned:
        """Continue training all members, from all labels."""
        return self._fit(points, labels, before)

    def _fit(self, points: Points, labels: Labels, before: FittedNetworks | None = None) -> Learned:
        device = points.device
        size = 4 * points.points.numel() * points.networks.alpha * HOPS
        hops = HOPS if size <= _PROPAGATED_BYTES else 1
        index, _ = labels.tensors(device)
        rows = points.blocks(self.graph, hops, index)
        networks, history = _trained(self.name, f"{self.name} {self.graph}", rows, points, labels, before)
        used = min(points.networks.members, len(networks.bias2))
        fitted = FittedNetworks(self.graph, hops, used, networks, history)

        def without(fold: int, held: npt.NDArray[np.int64]) -> Tensor:
            own = networks.logits(rows[:, torch.from_numpy(held).to(device)])
            return own[fold].softmax(dim=1)

        return Learned(fitted, labels.each_fold(without))


@dataclass(frozen=True)
class FittedNetworks:
    """Members of one kind of network.

    Attributes:
        graph: The name of the graph.
        hops: Number of hops.
        used: Number of members, the last ones, that are averaged for predictions: they learn from all labels, unless
            there are more of them than members of that kind. The first ones hold out one fold each.
        networks: Their weights.
        history: Training curves, [T] each, by name.
    """

    graph: str
    hops: int
    used: int
    networks: BlockNetworks
    history: dict[str, list[float]] = field(default_factory=dict, metadata=NAN_ALLOWED)

    def predict(self, view: View) -> Tensor:
        """The mean of the members used for predictions, [M, C].

        Few new points are predicted in float64: the position of a row in a product decides in which order a processor
        adds it up, and a point's probabilities must not depend on that.
        """
        out = view.points.new_empty((len(view.points), self.networks.bias2.shape[-1]))
        exact = view.joined(self.graph) is not None and len(out) <= _EXACT_ROWS
        for rows in view.row_blocks():
            x = view.blocks(self.graph, self.hops, rows)
            logits = self._exact.logits(x.double()) if exact else self.networks.logits(x)
            out[rows] = logits[-self.used :].softmax(dim=2).mean(dim=0).to(x.dtype)
        return out

    @cached_property
    def _exact(self) -> BlockNetworks:
        return self.networks.double()

    def hidden(self, points: Points) -> Tensor:
        """The last member's hidden rows at every training point, [N, B · h]."""
        networks, found = self.networks, []
        for rows in points.row_blocks():
            x = points.blocks(self.graph, self.hops, rows)
            own = torch.baddbmm(networks.bias1[:, -1], x, networks.weight1[:, -1]).relu_()
            found.append(own.transpose(0, 1).flatten(1))
        return torch.cat(found)

    def check(self, sizes: Sizes) -> None:
        """Check shapes and ranges."""
        sizes.check_graph(self.graph)
        own, what = self.networks, "networks"
        blocks, members, hidden = 1 + self.hops * sizes.networks.alpha, len(own.bias2), own.weight1.shape[-1]
        if not (self.hops in (1, HOPS) and 1 <= self.used <= members):
            raise ValueError("its networks contradict each other")
        check_array(own.weight1, (blocks, members, sizes.width, hidden), what, most=LARGEST_WEIGHT)
        check_array(own.bias1, (blocks, members, 1, hidden), what, most=LARGEST_WEIGHT)
        check_array(own.weight2, (blocks, members, hidden, sizes.classes), what, most=LARGEST_WEIGHT)
        check_array(own.bias2, (members, 1, sizes.classes), what, most=LARGEST_WEIGHT)


def _trained(
    stage: str, name: str, rows: Tensor, points: Points, labels: Labels, before: FittedNetworks | None
) -> tuple[BlockNetworks, dict[str, list[float]]]:
    """Train members without each fold and from all labels; continue with those of ``before``, if given.

    Args:
        stage: What progress is reported as.
        name: Seeds are derived from it.
        rows: Blocks of the labeled points [B, L, D].
        points: For settings and progress.
        labels: Labels and folds.
        before: Earlier networks.
    """
    settings, device = points.networks, points.device
    start = None if before is None else before.networks
    members = labels.folds + max(1, settings.members - labels.folds) if start is None else len(start.bias2)
    seeds = [int(seed) for seed in points.generator(name).integers(2**31, size=members)]
    _, codes = labels.tensors(device)
    which = np.minimum(np.arange(members), labels.folds)
    shares = labels.shares()[which]
    schedule = BlockSchedule(steps=settings.epochs, lr=settings.lr, weight_decay=settings.weight_decay)
    if start is not None:
        steps, passes = (math.ceil(_FURTHER_STEPS * part) for part in (schedule.steps, schedule.passes))
        schedule = replace(schedule, steps=steps, passes=passes, lr=_FURTHER_RATE * schedule.lr)
    history: dict[str, list[float]] = {"epoch": [], "train_loss": [], "validation_loss": [], "validation_accuracy": []}
    held_out = (~labels.known() * labels.weight)[which]

    def seen(at: BlockProgress) -> bool:
        values = (at.step, at.train_loss, at.validation_loss, at.validation_accuracy)
        for curve, value in zip(history.values(), values, strict=True):
            curve.append(float(value))
        return points.report(stage, at.step, at.steps, *values[1:])

    hidden = max(8, settings.hidden_channels // 2)
    # One thread: a product that is split over threads is rounded differently.
    with at_most(1):
        networks = train_blocks(
            rows, codes, torch.from_numpy(shares).float().to(device), seeds, hidden, labels.classes, schedule,
            dropout=settings.dropout, progress=seen, start=start,
            held_out=torch.from_numpy(held_out).float().to(device) if labels.folds else None,
        )  # fmt: skip
    return networks, history
