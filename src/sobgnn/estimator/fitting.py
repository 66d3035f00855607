"""Points and labels to what every family says of every point: train, decide how to blend, predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.blending import DIFFUSION_GRID, FURTHER_GRID, MIXING_GRID, Blend, weigh, weigh_further
from sobgnn.estimator.ensemble import (
    Labels,
    Network,
    feature_logits,
    graph_states,
    train_feature_members,
    train_graph_members,
)
from sobgnn.estimator.selftraining import self_train
from sobgnn.estimator.smoothing import Spread, diffuse, smooth, spreading, with_labels
from sobgnn.estimator.temperature import fit_temperature, log_loss, sharpen
from sobgnn.estimator.weak import guess
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.runtime.ranks import Ranks
from sobgnn.training import Members, Progress, Schedule

Auto = Literal["auto"]

SMOOTHING_GRID = (0.0, 0.5, 0.7, 0.85, 0.95, 0.98)
# How far labels diffuse.
DIFFUSION_STRENGTH = 0.98
# What is used where too few labels can be held out to choose.
FEW_LABELS = Blend(mixing=0.5, diffusion=0.7, smoothing=0.7, heats=(0.5, 0.5, 0.5, 0.5, 0.5))
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

    stage: Literal["trials", "neighbours", "graph members", "feature members", "students", "prediction"]
    done: int
    total: int
    train_loss: float | None = None
    validation_accuracy: float | None = None
    validation_loss: float | None = None


Hook = Callable[[FitProgress], "bool | None"]


@dataclass(frozen=True)
class Choice:
    """How the families are blended, and what that was decided on.

    Attributes:
        blend: Shares, smoothing, and each family's temperature.
        temperature: Divides the logits of the outcome.
        log_loss: Out of fold, of this choice; NaN where nothing was held out.
        accuracy: Likewise.
    """

    blend: Blend
    temperature: float
    log_loss: float
    accuracy: float


@dataclass(frozen=True)
class Fit:
    """The outcome of :func:`fit_families`.

    Attributes:
        members: By family: ``"graph"``, ``"features"``, ``"students"``; those that were trained.
        linear: The linear classifier that taught itself, ``weight`` [D, C] and ``bias`` [C]; empty where there is none.
        states: Hidden rows of the S-SobGNNs, [N, S, h] for each layer but the last.
        parts: What the others say of every point, smoothed: [N, 4, C], zeros for a family that is not there.
        distributions: The blend of them, [N, C].
        choice: How it was made.
    """

    members: dict[str, Members]
    linear: dict[str, Tensor]
    states: list[Tensor]
    parts: Tensor
    distributions: Tensor
    choice: Choice


@dataclass(frozen=True)
class Wishes:
    """What is fixed beforehand and what is to be decided; as in :class:`~sobgnn.SobolevClassifier`."""

    mixing: float | Auto = "auto"
    diffusion: float | Auto = "auto"
    smoothing: float | Auto = "auto"
    weak_labels: float | Auto = "auto"
    calibrate: bool = True

    def grids(self, auto: Sequence[Sequence[float]]) -> tuple[Sequence[float], ...]:
        """Values of β, δ, a and σ to choose from."""
        fixed = (self.mixing, self.diffusion, self.smoothing, self.weak_labels)
        return tuple(grid if value == "auto" else (value,) for value, grid in zip(fixed, auto, strict=True))


def fit_families(
    network: Network,
    X: Tensor,
    operators: SobolevOperators,
    near: Graph,
    labels: Labels,
    schedule: Schedule,
    component_labelled: Tensor,
    wishes: Wishes,
    generator: np.random.Generator,
    hook: Hook | None = None,
    ranks: Ranks | None = None,
) -> Fit:
    """Train, choose, and predict every point of the graph; ranks share the work and all get the result.

    Args:
        network: Shape of the members.
        X: [N, D].
        operators: Of the graph.
        near: The graph that labels diffuse over.
        labels: Who learns from which.
        schedule: Of all families.
        component_labelled: bool [N]; the others are judged by the perceptrons alone.
        wishes: What is to be decided.
        generator: Draws the points that get weak labels.
        hook: Told of progress.
        ranks: Who shares the work.
    """
    tell = _Teller(hook)
    members: dict[str, Members] = {}
    states: list[Tensor] = []
    by_graph = by_features = diffused = None  # [S, N, C], [S, N, C], [folds + 1, N, C]
    networks = wishes.diffusion != 1
    if networks and wishes.mixing != 0:
        members["graph"] = train_graph_members(
            network, X, operators, labels, schedule, tell.stage("graph members"), ranks
        )
        *states, logits = graph_states(network, members["graph"].parameters, X, operators, ranks)
        by_graph = logits.transpose(0, 1).softmax(dim=2)
    if not networks or wishes.mixing != 1:  # points that no label reaches need someone to judge them
        members["features"] = train_feature_members(network, X, labels, schedule, tell.stage("feature members"), ranks)
        by_features = feature_logits(network, members["features"].parameters, X, ranks).softmax(dim=2)
    if wishes.diffusion != 0:
        diffused = _diffused(spreading(near, ranks), labels, network.out_channels)
    spread = spreading(operators.graph, ranks)
    choice = choose(spread, by_graph, by_features, diffused, labels, wishes)
    parts = [smoothed(spread, family, labels, choice.blend.smoothing) for family in (by_graph, by_features)]
    parts += [diffused, None, None]
    share = choice.blend.students if wishes.weak_labels == "auto" and not labels.folds else wishes.weak_labels
    linear = self_train(X, labels, network.out_channels, generator, ranks) if share != 0 and labels.folds else None
    if linear is not None:
        parts[4] = linear(X)
        choice = with_further("linear", choice, parts, labels, wishes, FURTHER_GRID)
    weak = guess(choice.blend(parts), labels, generator) if share != 0 else None
    if weak is not None:
        members["students"] = train_feature_members(network, X, weak, schedule, tell.stage("students"), ranks)
        studied = feature_logits(network, members["students"].parameters, X, ranks).softmax(dim=2)
        parts[3] = smoothed(spread, studied, labels, choice.blend.smoothing)
        grid = FURTHER_GRID if wishes.weak_labels == "auto" else (wishes.weak_labels,)
        choice = with_further("students", choice, parts, labels, wishes, grid)
    tell.done("prediction")
    last = torch.stack([X.new_zeros(len(X), network.out_channels) if p is None else p[-1] for p in parts], dim=1)
    plain = (by_graph if by_features is None else by_features).mean(dim=0)  # type: ignore[union-attr]
    final = torch.where(component_labelled.unsqueeze(1), choice.blend(last.unbind(dim=1)), plain)
    return Fit(members, {} if linear is None else linear.last(), states, last[:, :4].contiguous(), final, choice)


def _diffused(spread: Spread, labels: Labels, classes: int) -> Tensor:
    """Labels spread over the graph without each fold in turn, and at last all of them: [folds + 1, N, C]."""
    index, codes = labels.tensors(spread.device)
    fold = torch.from_numpy(labels.fold).to(spread.device)
    left = torch.arange(labels.folds + 1, device=spread.device).unsqueeze(1)
    known = torch.where(fold == left, -1, codes)
    return diffuse(spread, DIFFUSION_STRENGTH, index, known, classes).transpose(0, 1)


def smoothed(spread: Spread, family: Tensor | None, labels: Labels, strength: float) -> Tensor | None:
    """A family's probabilities [S, N, C], smoothed with known labels fixed: [folds + 1, N, C].

    Of the member that holds out a fold with the labels of the others, and at last of all members with all labels.
    """
    if family is None:
        return None
    index, codes = labels.tensors(family.device)
    fold = torch.from_numpy(labels.fold).to(family.device)
    pairs = [
        with_labels(family[number] if number < labels.folds else family.mean(dim=0), index[known], codes[known])
        for number, known in ((number, fold != number) for number in range(labels.folds + 1))
    ]
    start, fixed = (torch.stack(part, dim=1) for part in zip(*pairs, strict=True))
    return smooth(spread, start, strength, fixed).transpose(0, 1)


def choose(
    spread: Spread,
    by_graph: Tensor | None,
    by_features: Tensor | None,
    diffused: Tensor | None,
    labels: Labels,
    wishes: Wishes,
) -> Choice:
    """The blend, without students, that out-of-fold labels support.

    See :func:`~sobgnn.estimator.blending.weigh`.
    A label is judged by the member of each family that held it out, smoothed with the other folds' labels fixed.
    """
    several = sum(family is not None for family in (by_graph, by_features, diffused)) > 1
    if not labels.folds:
        few = FEW_LABELS
        (beta,), (delta,), (strength,), _ = wishes.grids(((few.mixing,), (few.diffusion,), (few.smoothing,), (0.0,)))
        blend = Blend(beta, delta, strength, heats=few.heats if several else (1.0, 1.0, 1.0, 1.0, 1.0))
        return Choice(blend, 1.0, float("nan"), float("nan"))
    betas, deltas, strengths, _ = wishes.grids((MIXING_GRID, DIFFUSION_GRID, SMOOTHING_GRID, ()))
    judged = labels.fold >= 0
    codes, weight = labels.codes[judged], labels.weight[judged]
    some = slice(None, None, 1 + len(codes) // CHOOSING_LABELS)

    def held() -> Iterator[tuple[float, npt.NDArray[np.float32] | None, npt.NDArray[np.float32] | None]]:
        for strength in strengths:
            graph, features = (own(smoothed(spread, f, labels, strength), labels) for f in (by_graph, by_features))
            yield strength, None if graph is None else graph[some], None if features is None else features[some]

    own_diffused = own(diffused, labels)
    blend = weigh(
        held(), None if own_diffused is None else own_diffused[some], codes[some], weight[some], betas, deltas
    )
    if not several:
        blend = replace(blend, heats=(1.0, 1.0, 1.0, 1.0, 1.0))
    parts = [smoothed(spread, family, labels, blend.smoothing) for family in (by_graph, by_features)]
    return _judged(blend, [*parts, diffused, None, None], labels, wishes)


def with_further(
    family: Literal["students", "linear"],
    choice: Choice,
    parts: Sequence[Tensor | None],
    labels: Labels,
    wishes: Wishes,
    grid: Sequence[float],
) -> Choice:
    """The choice with as much of one family more as labels support while they are held out.

    Where none are, students count as the first of the grid says.
    """
    if not labels.folds:
        heats = (*choice.blend.heats[:3], *FEW_LABELS.heats[3:])
        return replace(choice, blend=replace(choice.blend, students=grid[0], heats=heats))
    judged = labels.fold >= 0
    held = [own(part, labels) for part in parts]
    said = held[3 if family == "students" else 4]
    assert said is not None
    taught = choice.blend.of_arrays(held)
    blend = weigh_further(choice.blend, family, taught, said, labels.codes[judged], labels.weight[judged], grid)
    return _judged(blend, parts, labels, wishes)


def own(part: Tensor | None, labels: Labels) -> npt.NDArray[np.float32] | None:
    """What [folds + 1, N, C] says of each held-out label, by the fold that it is in: [L, C]."""
    if part is None:
        return None
    judged = labels.fold >= 0
    rows = torch.from_numpy(labels.fold[judged]), torch.from_numpy(labels.index[judged])
    held: npt.NDArray[np.float32] = part[rows[0].to(part.device), rows[1].to(part.device)].cpu().numpy()
    return held


def _judged(blend: Blend, parts: Sequence[Tensor | None], labels: Labels, wishes: Wishes) -> Choice:
    judged = labels.fold >= 0
    codes, weight = labels.codes[judged], labels.weight[judged]
    probabilities = blend.of_arrays([own(part, labels) for part in parts])
    heat = fit_temperature(probabilities, codes, weight)
    loss = float(np.average(log_loss(sharpen(probabilities, heat), codes), weights=weight))
    accuracy = float((probabilities.argmax(axis=1) == codes).mean())
    enough = wishes.calibrate and len(codes) >= CALIBRATION_LABELS
    return Choice(blend, heat if enough else 1.0, loss, accuracy)


class _Teller:
    """Passes progress on; once the hook asked to stop, every further stage stops at its first chance."""

    def __init__(self, hook: Hook | None) -> None:
        self.hook = hook
        self.stopped = False

    def stage(self, name: Literal["graph members", "feature members", "students"]) -> Callable[[Progress], bool] | None:
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
