"""Points and labels to a :class:`~sobgnn.predictor.Predictor`: train both families, decide how they are mixed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.calibration import fit_temperature, log_loss, sharpen
from sobgnn.ensemble import (
    Labels,
    Network,
    feature_logits,
    graph_states,
    train_feature_members,
    train_graph_members,
)
from sobgnn.operators import SobolevOperators
from sobgnn.ranks import Ranks
from sobgnn.smoothing import Spread, smooth, spreading, with_labels
from sobgnn.training import Members, Progress, Schedule

MIXING_GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
SMOOTHING_GRID = (0.0, 0.3, 0.5, 0.7, 0.85, 0.95, 0.98)
# What is used where too few labels can be held out to choose.
FEW_LABELS_MIXING = 0.5
FEW_LABELS_SMOOTHING = 0.85
# A temperature is fitted from this many held-out labels on.
CALIBRATION_LABELS = 50
# About this many held-out labels, evenly picked, are enough to choose by.
CHOOSING_LABELS = 5000


@dataclass(frozen=True)
class FitProgress:
    """Where a fit stands.

    Args:
        stage: What is being done.
        done: Steps of the stage that are done.
        total: Steps the stage takes at the most; early stopping ends it sooner.
        train_loss: Mean over the members, while they train.
        validation_accuracy: Mean over the members on the labels they hold out, where they do.
        validation_loss: Likewise.
    """

    stage: Literal["neighbours", "graph members", "feature members", "prediction"]
    done: int
    total: int
    train_loss: float | None = None
    validation_accuracy: float | None = None
    validation_loss: float | None = None


Hook = Callable[[FitProgress], "bool | None"]


@dataclass(frozen=True)
class Choice:
    """How the two families are mixed and smoothed, and what that was decided on.

    Attributes:
        mixing: Share of the graph members.
        smoothing: Strength of smoothing.
        temperature: Divides the logits.
        log_loss: Out of fold, of this choice; NaN where nothing was held out.
        accuracy: Likewise.
        probabilities: Out-of-fold probabilities of the labels that were held out, under this choice, before the
            temperature [L, C]; ``None`` where nothing was held out.
    """

    mixing: float
    smoothing: float
    temperature: float
    log_loss: float
    accuracy: float
    probabilities: npt.NDArray[np.float32] | None


@dataclass(frozen=True)
class Fit:
    """The outcome of :func:`fit_families`."""

    graph_members: Members | None
    feature_members: Members | None
    states: list[Tensor]
    distributions: Tensor
    choice: Choice


def fit_families(
    network: Network,
    X: Tensor,
    operators: SobolevOperators,
    labels: Labels,
    graph_schedule: Schedule,
    feature_schedule: Schedule,
    component_labelled: Tensor,
    *,
    mixing: float | Literal["auto"],
    smoothing: float | Literal["auto"],
    calibrate: bool,
    hook: Hook | None = None,
    ranks: Ranks | None = None,
) -> Fit:
    """Train, choose, and predict every point of the graph; ranks share the work and all get the result."""
    tell = _Teller(hook)
    graph_members = feature_members = None
    by_graph = by_features = None  # [S, N, C]
    states: list[Tensor] = []
    if mixing != 0:
        graph_members = train_graph_members(
            network, X, operators, labels, graph_schedule, tell.stage("graph members"), ranks
        )
        *states, logits = graph_states(network, graph_members.parameters, X, operators, ranks)
        by_graph = logits.transpose(0, 1).softmax(dim=2)
    if mixing != 1:
        feature_members = train_feature_members(
            network, X, labels, feature_schedule, tell.stage("feature members"), ranks
        )
        by_features = feature_logits(network, feature_members.parameters, X, ranks).softmax(dim=2)
    tell.done("prediction")
    spread = spreading(operators.graph, ranks)
    choice = choose(spread, by_graph, by_features, labels, mixing, smoothing, calibrate)
    plain = (by_graph if by_features is None else by_features).mean(dim=0)  # type: ignore[union-attr]
    mixed = _mix(by_graph, by_features, choice.mixing)
    start, fixed = with_labels(mixed, *labels.tensors(X.device))
    final = smooth(spread, start, choice.smoothing, fixed)
    final = torch.where(component_labelled.unsqueeze(1), final, plain)
    return Fit(graph_members, feature_members, states, final, choice)


def _mix(by_graph: Tensor | None, by_features: Tensor | None, mixing: float) -> Tensor:
    """β P_graph + (1 - β) P_features of families [S, N, C]: [N, C]."""
    if by_features is None:
        assert by_graph is not None
        return by_graph.mean(dim=0)
    if by_graph is None:
        return by_features.mean(dim=0)
    return mixing * by_graph.mean(dim=0) + (1 - mixing) * by_features.mean(dim=0)


def choose(
    spread: Spread,
    by_graph: Tensor | None,
    by_features: Tensor | None,
    labels: Labels,
    mixing: float | Literal["auto"],
    smoothing: float | Literal["auto"],
    calibrate: bool,
) -> Choice:
    """Mixing and smoothing with the least log loss on labels while they are held out.

    A label is judged by the member of each family that held it out, smoothed with the other folds' labels fixed, and
    each choice at its own best temperature: else smoothing, which flattens, would be judged by how sure it is.
    """
    if not labels.folds:
        beta = FEW_LABELS_MIXING if mixing == "auto" else mixing
        strength = FEW_LABELS_SMOOTHING if smoothing == "auto" else smoothing
        return Choice(beta, strength, 1.0, float("nan"), float("nan"), None)
    families = [family for family in (by_graph, by_features) if family is not None]
    betas: Sequence[float] = (MIXING_GRID if mixing == "auto" else (mixing,)) if len(families) == 2 else (1.0,)
    strengths: Sequence[float] = SMOOTHING_GRID if smoothing == "auto" else (smoothing,)
    judged = labels.fold >= 0
    codes, weight = labels.codes[judged], labels.weight[judged]
    some = slice(None, None, 1 + len(codes) // CHOOSING_LABELS)
    best: tuple[float, float, float, npt.NDArray[np.float32]] | None = None
    for strength, held in zip(strengths, _held_out(spread, families, labels, strengths), strict=True):
        for beta in betas:
            mixed = beta * held[0] + (1 - beta) * held[-1]
            heat = fit_temperature(mixed[some], codes[some], weight[some])
            loss = float(np.average(log_loss(sharpen(mixed[some], heat), codes[some]), weights=weight[some]))
            if best is None or loss < best[0]:
                best = (loss, beta, strength, mixed)
    assert best is not None
    loss, beta, strength, probabilities = best
    if len(families) == 1:
        beta = 0.0 if by_graph is None else 1.0
    enough = calibrate and len(codes) >= CALIBRATION_LABELS
    temperature = fit_temperature(probabilities, codes, weight) if enough else 1.0
    accuracy = float((probabilities.argmax(axis=1) == codes).mean())
    return Choice(beta, strength, temperature, loss, accuracy, probabilities)


def _held_out(
    spread: Spread, families: Sequence[Tensor], labels: Labels, strengths: Sequence[float]
) -> Iterator[npt.NDArray[np.float32]]:
    """For each strength, every family's smoothed probabilities of each held-out label, [F, L, C]."""
    device = families[0].device
    index, codes = labels.tensors(device)
    fold = torch.from_numpy(labels.fold).to(device)
    judged = fold >= 0
    starts, fixed = [], []
    for family in families:
        for number in range(labels.folds):
            others = fold != number
            start, held = with_labels(family[number], index[others], codes[others])
            starts.append(start)
            fixed.append(held)
    start, held = torch.stack(starts, dim=1), torch.stack(fixed, dim=1)
    for strength in strengths:
        smoothed = smooth(spread, start, strength, held)[index[judged]]
        by_fold = smoothed.view(len(smoothed), len(families), labels.folds, -1)
        own = by_fold[torch.arange(len(smoothed), device=device), :, fold[judged]]
        yield own.transpose(0, 1).cpu().numpy()


class _Teller:
    """Passes progress on; once the hook asked to stop, every further stage stops at its first chance."""

    def __init__(self, hook: Hook | None) -> None:
        self.hook = hook
        self.stopped = False

    def stage(self, name: Literal["graph members", "feature members"]) -> Callable[[Progress], bool] | None:
        if self.hook is None:
            return None
        hook = self.hook

        def tell(progress: Progress) -> bool:
            done = FitProgress(
                name, progress.epoch, progress.epochs, progress.train_loss,
                progress.validation_accuracy, progress.validation_loss,
            )  # fmt: skip
            self.stopped = bool(hook(done)) or self.stopped
            return self.stopped

        return tell

    def done(self, name: Literal["prediction"]) -> None:
        if self.hook is not None:
            self.hook(FitProgress(name, 1, 1))
