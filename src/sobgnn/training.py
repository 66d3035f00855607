"""One loop that trains many members of a model at once: seeds of an experiment, or of an ensemble."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

Monitor = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Args:
        epochs: Full-batch steps at the most.
        lr: Adam's learning rate.
        weight_decay: L2 penalty, as torch's Adam takes it.
        patience: Steps without a better validation score after which a member counts as done; training ends when
            all are. ``None``: all epochs.
        evaluate_every: Steps between two validations.
        monitor: What "better" means: higher validation accuracy (ties by lower loss), or lower loss.
    """

    epochs: int = 500
    lr: float = 0.01
    weight_decay: float = 5e-4
    patience: int | None = 100
    evaluate_every: int = 1
    monitor: Monitor = "accuracy"


@dataclass(frozen=True)
class Task:
    """What S members learn on R rows of logits; all tensors on one device.

    Args:
        target: int64 [R] or [S, R], classes; any valid class where it is not used.
        train_weight: float32 [S, R]. Row r's share in member s's loss; 0 where it has none. Rows sum to 1.
        validation: bool [S, R], or ``None``. Rows that choose a member's best weights.
    """

    target: Tensor
    train_weight: Tensor
    validation: Tensor | None = None


@dataclass(frozen=True)
class Progress:
    """What is known after a step."""

    epoch: int
    epochs: int
    train_loss: float
    validation_accuracy: float | None


@dataclass(frozen=True)
class Members:
    """S trained members of one model.

    Attributes:
        parameters: Each parameter stacked, [S, ...]: the best on validation, or the last without one.
        history: ``epoch`` [T] and per member [T, S]: ``train_loss``, and with validation ``validation_loss`` and
            ``validation_accuracy``.
        validation_accuracy: Of the weights kept, [S]; NaN without validation.
        best_epoch: Step of the weights kept, int64 [S].
        epochs: Steps made.
    """

    parameters: dict[str, Tensor]
    history: dict[str, Tensor]
    validation_accuracy: Tensor
    best_epoch: Tensor
    epochs: int


def train_members(
    model: nn.Module,
    inputs: Sequence[Any],
    task: Task,
    seeds: Sequence[int],
    schedule: Schedule,
    *,
    keywords: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
) -> Members:
    """Train one member per seed, all in one batch, by cross-entropy on each member's own rows.

    Members share the inputs and nothing else: parameters are stacked, the forward is mapped over them, and one
    backward serves all. Without dropout the outcome is that of training them one by one.

    Args:
        model: A module with ``reset_parameters``, written for one member; its own weights are not used or changed.
        inputs: Positional arguments of the model's forward, which gives logits [R, C].
        task: Rows, targets and validation.
        seeds: One per member. A member's initial weights depend on its seed alone; dropout on all the seeds.
        schedule: How long and how fast.
        keywords: Keyword arguments of the model's forward.
        progress: Called after each evaluation; returning True ends training there, keeping the best so far.
    """
    if task.train_weight.shape[0] != len(seeds):
        raise ValueError(
            f"train_weight must have one row per seed, but got {task.train_weight.shape[0]} for {len(seeds)}."
        )
    device = task.train_weight.device
    # The random state is the caller's: it is put back as it was found.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        parameters = initial_parameters(model, seeds, device)
        torch.manual_seed(_mix(seeds))
        return _train(model, parameters, (tuple(inputs), dict(keywords or {})), task, schedule, progress)


def initial_parameters(model: nn.Module, seeds: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Stacked initial parameters [S, ...], drawn on the CPU, so that they are the same on every device."""
    members = []
    for seed in seeds:
        member = copy.deepcopy(model).cpu()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            member.reset_parameters()  # type: ignore[operator]
        members.append(member)
    stacked, _ = stack_module_state(members)
    return {name: value.detach().to(device).requires_grad_() for name, value in stacked.items()}


@torch.no_grad()
def predict_members(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
) -> Tensor:
    """Logits of every member in evaluation mode, [S, R, C]."""
    return _forward(model, dict(parameters), (tuple(inputs), dict(keywords or {})), training=False)


def _forward(model: nn.Module, parameters: dict[str, Tensor], call: tuple[Any, Any], *, training: bool) -> Tensor:
    inputs, keywords = call
    buffers = dict(model.named_buffers())
    model.train(training)

    def one(member: dict[str, Tensor]) -> Tensor:
        logits: Tensor = functional_call(model, (member, buffers), inputs, keywords)
        return logits

    if len(next(iter(parameters.values()))) == 1:  # no batch to map over: half the overhead
        return one({name: value[0] for name, value in parameters.items()}).unsqueeze(0)
    logits: Tensor = vmap(one, randomness="different")(parameters)
    return logits


def _train(
    model: nn.Module,
    parameters: dict[str, Tensor],
    call: tuple[Any, Any],
    task: Task,
    schedule: Schedule,
    progress: Callable[[Progress], bool | None] | None,
) -> Members:
    model = copy.deepcopy(model)  # its mode is switched below
    optimizer = torch.optim.Adam(parameters.values(), lr=schedule.lr, weight_decay=schedule.weight_decay, foreach=True)
    best = _Best(parameters, schedule.monitor)
    history: dict[str, list[Tensor]] = {"train_loss": [], "validation_loss": [], "validation_accuracy": []}
    steps: list[int] = []
    epoch = 0
    for epoch in range(1, schedule.epochs + 1):
        optimizer.zero_grad(set_to_none=True)
        losses = _losses(_forward(model, parameters, call, training=True), task.target, task.train_weight)
        # Each member's gradient comes from its own loss alone, so the sum trains each as if it were by itself.
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if epoch % schedule.evaluate_every and epoch != schedule.epochs:
            continue
        steps.append(epoch)
        history["train_loss"].append(losses.detach())
        if task.validation is not None:
            with torch.no_grad():
                logits = _forward(model, parameters, call, training=False)
                loss, accuracy = _validate(logits, task)
            history["validation_loss"].append(loss)
            history["validation_accuracy"].append(accuracy)
            best.update(parameters, loss, accuracy, epoch)
        if progress is not None:
            seen = history["validation_accuracy"]
            report = Progress(epoch, schedule.epochs, float(losses.mean()), float(seen[-1].mean()) if seen else None)
            if progress(report):
                break
        if task.validation is not None and schedule.patience is not None and best.stale(epoch, schedule.patience):
            break
    if task.validation is None:
        best.keep_all(parameters, epoch)
    curves = {name: torch.stack(values).cpu() for name, values in history.items() if values}
    return Members(
        best.parameters,
        {"epoch": torch.tensor(steps), **curves},
        best.accuracy,
        best.epoch,
        epoch,
    )


class _Best:
    """Each member's best weights so far, by its own validation score."""

    def __init__(self, parameters: dict[str, Tensor], monitor: Monitor) -> None:
        first = next(iter(parameters.values()))
        self.monitor = monitor
        self.parameters = {name: value.detach().clone() for name, value in parameters.items()}
        self.loss = torch.full((len(first),), float("inf"), device=first.device)
        self.accuracy = torch.full_like(self.loss, float("nan"))
        self.epoch = torch.zeros(len(first), dtype=torch.int64, device=first.device)

    def update(self, parameters: dict[str, Tensor], loss: Tensor, accuracy: Tensor, epoch: int) -> None:
        if self.monitor == "accuracy":
            better = (accuracy > self.accuracy) | ((accuracy == self.accuracy) & (loss < self.loss))
        else:
            better = loss < self.loss
        better |= self.epoch == 0
        for name, value in parameters.items():
            where = better.view(-1, *[1] * (value.ndim - 1))
            torch.where(where, value.detach(), self.parameters[name], out=self.parameters[name])
        self.loss = torch.where(better, loss, self.loss)
        self.accuracy = torch.where(better, accuracy, self.accuracy)
        self.epoch = torch.where(better, epoch, self.epoch)

    def stale(self, epoch: int, patience: int) -> bool:
        return epoch - int(self.epoch.max()) >= patience

    def keep_all(self, parameters: dict[str, Tensor], epoch: int) -> None:
        self.parameters = {name: value.detach().clone() for name, value in parameters.items()}
        self.epoch.fill_(epoch)


def _losses(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Weighted cross-entropy of each member [S]; logits [S, R, C]."""
    return (_cross_entropy(logits, target) * weight).sum(dim=1)


def _validate(logits: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Mean loss and accuracy of each member on its own validation rows, [S] each."""
    assert task.validation is not None
    mask = task.validation.to(logits.dtype)
    count = mask.sum(dim=1).clamp_min(1)
    right = (logits.argmax(dim=2) == task.target).to(logits.dtype)
    loss = (_cross_entropy(logits, task.target) * mask).sum(dim=1) / count
    return loss, (right * mask).sum(dim=1) / count


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    target = target.expand(logits.shape[:2])
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)


def _mix(seeds: Sequence[int]) -> int:
    """One seed from several: dropout must not repeat the draws that the first member's weights came from."""
    mixed = 0x9E3779B9
    for seed in seeds:
        mixed = (mixed * 6364136223846793005 + int(seed) + 1442695040888963407) % 2**63
    return mixed
