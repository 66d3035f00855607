"""Decoupled Sobolev networks with one hidden layer, many members trained at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn._system.process import limit_threads
from sobgnn.estimator.families.blocks import BlockNetworks, train_blocks
from sobgnn.estimator.families.contract import Family, FittedFamily, Graphs, Learned
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View
from sobgnn.estimator.state import NAN_ALLOWED

# Hops of the decoupled networks, and the bytes of propagated features up to which more than one hop is used.
HOPS = 2
_PROPAGATED_BYTES = 2**31
# Passes over all rows of a fit at least; and the steps and initial learning rate of a refit, as shares of those of a
# fit.
_PASSES, _FURTHER_STEPS, _FURTHER_RATE = 10, 0.2, 0.3
# Number of new points up to which they are predicted in float64.
_EXACT_ROWS = 1024


class SobolevNetworks(Family):
    r"""Decoupled Sobolev networks: sparse Sobolev operators are applied once, then networks learn from the result.

    .. math:: \mathrm{logits} = \sum_b \mathrm{ReLU}(x_b W_{1,b} + b_{1,b}) W_{2,b} + b_2, \qquad
        x_b \in \{x\} \cup \{\hat{A}_\rho^h x : \rho = 1, \dots, \alpha, \; h = 1, 2\}

    so training reads only labeled rows and costs as much as that of an MLP. With very many points, only one hop is
    used.
    """

    name: ClassVar[str] = "sobolev"
    title: ClassVar[str] = "Sobolev networks"
    explained: ClassVar[str] = "learn from each row together with its nearest neighbors"
    graphs: ClassVar[Graphs] = "any"

    def fit(self, points: Points, labels: Labels, before: FittedNetworks | None = None) -> Learned:
        """Propagate once; train members without each fold and from all labels, as one batch.

        After an earlier fit, continue training its members.
        """
        device, settings = points.device, points.networks
        size = 4 * points.points.numel() * settings.alpha * HOPS
        hops = HOPS if size <= _PROPAGATED_BYTES else 1
        index, codes = labels.tensors(device)
        rows = points.blocks(self.graph, hops, index)
        members = labels.folds + max(1, settings.n_members - labels.folds)
        part, rate = 1.0, 1.0
        if before is not None:
            members, part, rate = len(before.networks.bias2), _FURTHER_STEPS, _FURTHER_RATE
        which = np.minimum(np.arange(members), labels.folds)
        seeds = points.generator(f"{self.name} {self.graph}").integers(2**31, size=members)
        names = ("epoch", "train_loss", "validation_loss", "validation_accuracy")
        history: dict[str, list[float]] = {name: [] for name in names}

        def seen(step: int, steps: int, *scores: float) -> bool:
            for curve, value in zip(history.values(), (step, *scores), strict=True):
                curve.append(float(value))
            return points.report(self.name, step, steps, *scores)

        held_out = torch.from_numpy((~labels.known() * labels.weight)[which]).float().to(device)
        shares = torch.from_numpy(labels.shares()[which]).float().to(device)
        with limit_threads(1):  # a product that is split over threads is rounded differently
            networks = train_blocks(
                rows, codes, shares, [int(seed) for seed in seeds], max(8, settings.hidden_channels // 2),
                labels.classes, steps=math.ceil(part * settings.epochs), passes=math.ceil(part * _PASSES),
                lr=rate * settings.lr, weight_decay=settings.weight_decay, dropout=settings.dropout,
                held_out=held_out if labels.folds else None, start=None if before is None else before.networks,
                progress=seen,
            )  # fmt: skip

        def without(fold: int, held: npt.NDArray[np.int64]) -> Tensor:
            return networks.logits(rows[:, torch.from_numpy(held).to(device)])[fold].softmax(dim=1)

        fitted = FittedNetworks(self.graph, hops, min(settings.n_members, members), networks, history)
        return Learned(fitted, labels.each_fold(without))


@dataclass(frozen=True)
class FittedNetworks(FittedFamily):
    """Members of one kind of network.

    Attributes:
        used: Number of members, the last ones, that are averaged for predictions: they learn from all labels, unless
            there are more of them than members of that kind. The first ones hold out one fold each.
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

    @torch.no_grad()
    def importance(self, points: Points, labels: Labels) -> dict[str, float]:
        """Increase of the out-of-fold log loss without each part of the input; empty if nothing was held out.

        The parts are the point itself, ``"no graph"``, and each order over all hops, ``"ρ=1"`` ….
        """
        judged, alpha = labels.judged, points.networks.alpha
        if not judged.any():
            return {}
        index, fold, codes = (
            torch.from_numpy(part[judged]).to(points.device) for part in (labels.index, labels.fold, labels.codes)
        )
        blocks = points.blocks(self.graph, self.hops, index)
        group = np.array([0, *(1 + number % alpha for number in range(len(blocks) - 1))])

        def loss(without: int | None) -> float:
            kept = [place for place in range(len(blocks)) if group[place] != without]
            logits = self.networks.part(kept).logits(blocks[kept])
            held_out = logits[fold, torch.arange(len(codes), device=codes.device)]
            return float(torch.nn.functional.cross_entropy(held_out, codes))

        whole = loss(None)
        names = ["no graph", *(f"ρ={rho}" for rho in range(1, alpha + 1))]
        return {name: loss(number) - whole for number, name in enumerate(names)}

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Check the numbers of members and blocks."""
        super().check(sizes, points)
        whole = self.hops in (1, HOPS) and len(self.networks.weight1) == 1 + self.hops * points.networks.alpha
        if not (whole and 1 <= self.used <= len(self.networks.bias2)):
            raise ValueError("its networks contradict each other")
