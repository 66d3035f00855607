"""One loop that trains many members of a model at once: seeds of an experiment, or of an ensemble."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sobgnn._system.process import own_random_state
from sobgnn.training.state import Run, Schedule, Task, forward_members


@dataclass(frozen=True)
class Progress:
    """Progress after a step."""

    epoch: int
    epochs: int
    train_loss: float
    validation_accuracy: float | None
    validation_loss: float | None = None


@dataclass(frozen=True)
class Members:
    """S trained members of one model.

    Attributes:
        parameters: Each parameter stacked, [S, ...]: the best on validation, or the last without one.
        history: ``epoch`` [T] and per member [T, S]: ``train_loss``, and with validation ``validation_loss`` and
            ``validation_accuracy``.
        validation_accuracy: Validation accuracy of the kept weights, [S]; NaN without validation.
        best_epoch: Step of the kept weights, int64 [S].
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
    buffers: Mapping[str, Tensor] | None = None,
    progress: Callable[[Progress], bool | None] | None = None,
    cuda_graph: bool = False,
) -> Members:
    """Train one member per seed, all in one batch, by cross-entropy on each member's own rows.

    Members share the inputs and nothing else: parameters are stacked, the forward is mapped over them, and one backward
    pass serves all. Without dropout the result is the same as training them one by one.

    Args:
        model: A module with ``reset_parameters``, written for one member; its own weights are not used or changed.
        inputs: Positional arguments of the model's forward, which returns logits [R, C]; in training it may also return
            a loss, which is added to cross-entropy.
        task: Rows, targets and validation.
        seeds: One per member. A member's initial weights depend only on its seed, and so does its dropout if the model
            accepts a ``dropout_key`` (its ``keyed_dropout`` is true); otherwise dropout depends on all seeds.
        schedule: How long and how fast.
        keywords: Keyword arguments of the model's forward.
        buffers: Buffers of the model that differ between members, stacked [S, ...].
        progress: Called after each evaluation; returning True stops training and keeps the best weights so far.
        cuda_graph: Record a step once and replay it. Pays off if steps are short; on CUDA, for forwards that neither
            synchronize with the device nor depend on values on it.
    """
    if task.train_weight.shape[0] != len(seeds):
        raise ValueError(
            f"train_weight must have one row per seed, but got {task.train_weight.shape[0]} for {len(seeds)}."
        )
    device = task.train_weight.device
    with own_random_state(device):
        parameters = initial_parameters(model, seeds, device)
        call = (tuple(inputs), dict(keywords or {}))
        keys = torch.tensor([_mix([seed]) % 2**31 for seed in seeds], device=device)
        run = Run(model, parameters, dict(buffers or {}), call, task, schedule, keys)
        if cuda_graph and device.type == "cuda":
            run.record()
        torch.manual_seed(_mix(seeds))
        return _train(run, schedule, progress)


def initial_parameters(model: nn.Module, seeds: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Stacked initial parameters [S, ...], drawn on the CPU, so that they are the same on every device."""
    member = copy.deepcopy(model).cpu()
    stacked = {name: value.new_empty(len(seeds), *value.shape) for name, value in member.named_parameters()}
    with torch.no_grad():
        for i, seed in enumerate(seeds):
            with own_random_state():
                torch.manual_seed(seed)
                member.reset_parameters()  # type: ignore[operator]
            for name, value in member.named_parameters():
                stacked[name][i] = value
    return {name: value.to(device) for name, value in stacked.items()}


@torch.no_grad()
def predict_members(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    buffers: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Logits of every member in evaluation mode, [S, R, C]; ``model`` keeps its own mode."""
    call = (tuple(inputs), dict(keywords or {}))
    modes = [(module, module.training) for module in model.modules()]
    try:
        return forward_members(model, dict(parameters), dict(buffers or {}), call, training=False)[0]
    finally:
        for module, mode in modes:
            module.training = mode


def _train(run: Run, schedule: Schedule, progress: Callable[[Progress], bool | None] | None) -> Members:
    validated = run.task.validation is not None
    history: dict[str, list[Tensor]] = {"epoch": [], "train_loss": [], "validation_loss": [], "validation_accuracy": []}
    epoch, ended = 0, False
    while epoch < schedule.epochs and not ended:
        run.step()
        epoch += 1
        if epoch % schedule.evaluate_every and epoch != schedule.epochs:
            continue
        history["epoch"].append(torch.tensor(epoch))
        history["train_loss"].append(run.losses.to("cpu", copy=True))
        if validated:
            run.validate()
            history["validation_loss"].append(run.loss.to("cpu", copy=True))
            history["validation_accuracy"].append(run.accuracy.to("cpu", copy=True))
        if progress is not None:
            held = (float(run.accuracy.mean()), float(run.loss.mean())) if validated else (None, None)
            if progress(Progress(epoch, schedule.epochs, float(run.losses.mean()), *held)):
                break
        ended = validated and schedule.patience is not None and bool(run.done.all())
    if not validated:
        run.best = run.flat.detach()
        run.best_epoch.fill_(epoch)
    curves = {name: torch.stack(values) for name, values in history.items() if values}
    return Members(run.unflatten(run.best), curves, run.best_accuracy, run.best_epoch, epoch)


def _mix(seeds: Sequence[int]) -> int:
    """One seed from several: dropout must not repeat the draws that the first member's weights came from."""
    mixed = 0x9E3779B9
    for seed in seeds:
        mixed = (mixed * 6364136223846793005 + int(seed) + 1442695040888963407) % 2**63
    return mixed
