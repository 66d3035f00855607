"""The state of a training of many members, and its two operations: a step of Adam, and a validation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

# Of Adam, as in torch and in the original paper.
BETA1, BETA2, TINY = 0.9, 0.999, 1e-8
# Spreads the dropout keys of successive steps.
_STEP = 0x5851F42D


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Args:
        epochs: Maximum number of full-batch steps.
        lr: Adam's learning rate; a sequence gives each member its own.
        weight_decay: L2 penalty, as in torch's Adam; a sequence gives each member its own.
        patience: Steps without a better validation score, a higher accuracy or the same with a lower loss, after which
            a member is done: its best weights are final, and training ends when all members are done. ``None``: all
            epochs.
        evaluate_every: Steps between two validations.
        shared_early_stopping: Whether all members keep the weights of one step, the best over all their validation
            rows. A member without validation rows can then train on every label and still stop in time.
    """

    epochs: int = 500
    lr: float | Sequence[float] = 0.01
    weight_decay: float | Sequence[float] = 5e-4
    patience: int | None = 100
    evaluate_every: int = 1
    shared_early_stopping: bool = False


@dataclass(frozen=True)
class Task:
    """What S members learn on R rows of logits; all tensors on one device.

    Args:
        target: int64 [R] or [S, R], classes; any valid class for unused rows.
        train_weight: float32 [S, R]. Row r's share in member s's loss, or 0. Rows sum to 1.
        validation: bool [S, R], or ``None``. Rows that choose a member's best weights; numbers are used as weights.
    """

    target: Tensor
    train_weight: Tensor
    validation: Tensor | None = None


def forward_members(
    model: nn.Module,
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    call: tuple[Any, Any],
    *,
    training: bool,
    keys: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Logits of every member [S, R, C], and the loss that a model adds to cross-entropy in training [S], if any.

    Args:
        model: Written for one member; its forward returns logits, or logits and such a loss.
        parameters: Stacked, [S, ...].
        buffers: Buffers that differ between members, stacked.
        call: Positional and keyword arguments of the model's forward.
        training: The mode.
        keys: int64 [S], each member's ``dropout_key`` of this step, for models that accept one.
    """
    inputs, keywords = call
    shared = {name: value for name, value in model.named_buffers() if name not in buffers}
    model.train(training)

    def one(member: dict[str, Tensor], key: Tensor | None) -> Any:
        own = keywords if key is None else {**keywords, "dropout_key": key}
        return functional_call(model, (member, shared), inputs, own)

    mapped = {**parameters, **buffers}
    if len(next(iter(mapped.values()))) == 1:  # no batch to map over: half the overhead
        single = {name: value[0] for name, value in mapped.items()}
        alone = one(single, None if keys is None else keys[0])
        return tuple(value.unsqueeze(0) for value in alone) if isinstance(alone, tuple) else (alone.unsqueeze(0), None)
    found = vmap(one, (0, None if keys is None else 0), randomness="different")(mapped, keys)
    return found if isinstance(found, tuple) else (found, None)


class Run:
    """The state of one training and its two operations: a step, and a validation.

    All parameters of a member are one row of ``flat`` [S, P], so that Adam and keeping the best weights are a few
    elementwise operations for any model; nothing here synchronizes with the device, so that both operations can be
    recorded as CUDA graphs.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, Tensor],
        buffers: dict[str, Tensor],
        call: tuple[Any, Any],
        task: Task,
        schedule: Schedule,
        keys: Tensor,
    ) -> None:
        self.model = copy.deepcopy(model)  # its mode is switched below
        self.keys = keys if getattr(model, "keyed_dropout", False) else None
        self.buffers, self.call, self.task, self.schedule = buffers, call, task, schedule
        self.shapes = {name: value.shape[1:] for name, value in parameters.items()}
        self.initial = torch.cat([value.flatten(1) for value in parameters.values()], dim=1)
        self.flat = self.initial.clone().requires_grad_()
        self.moments = torch.zeros_like(self.initial), torch.zeros_like(self.initial)
        device, size = self.flat.device, len(self.flat)
        self.lr = _column(schedule.lr, size, device, "lr")
        self.decay = _column(schedule.weight_decay, size, device, "weight_decay")
        self.corrections = corrections(schedule.epochs).to(device)
        self.epoch = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(size, device=device)
        self.best = self.initial.clone()
        self.best_loss = torch.full((size,), float("inf"), device=device)
        self.best_accuracy = torch.full((size,), float("nan"), device=device)
        self.best_epoch = torch.zeros(size, dtype=torch.int64, device=device)
        self.loss, self.accuracy = torch.zeros_like(self.losses), torch.zeros_like(self.losses)
        self.done = torch.zeros(size, dtype=torch.bool, device=device)
        self._graphs: list[torch.cuda.CUDAGraph] = []

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """The stacked parameters [S, ...] as views of ``flat``."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(flat), *shape) for (name, shape), part in named}

    def step(self) -> None:
        """One step of Adam for every member."""
        if self._graphs:
            self._graphs[0].replay()
        else:
            self._step()

    def validate(self) -> None:
        """Score every member on its validation rows, and keep the weights of members that improved."""
        if self._graphs:
            self._graphs[1].replay()
        else:
            self._validate()

    def _step(self) -> None:
        keys = None if self.keys is None else (self.keys + self.epoch * _STEP) % 2**31
        logits, own = forward_members(
            self.model, self.unflatten(self.flat), self.buffers, self.call, training=True, keys=keys
        )
        losses = (_cross_entropy(logits, self.task.target) * self.task.train_weight).sum(dim=1)
        if own is not None:
            losses = losses + own
        # Each member's gradient comes only from its own loss, so the sum trains each as if it were alone.
        (gradient,) = torch.autograd.grad(losses.sum(), self.flat)
        with torch.no_grad():
            self.losses.copy_(losses)
            correction = self.corrections.index_select(0, self.epoch)
            adam_step(self.flat, gradient, *self.moments, self.lr, self.decay, correction)
            self.epoch += 1

    @torch.no_grad()
    def _validate(self) -> None:
        logits, _ = forward_members(self.model, self.unflatten(self.flat), self.buffers, self.call, training=False)
        scores = _scores(logits, self.task)
        if self.schedule.shared_early_stopping:
            scores = scores.sum(dim=1, keepdim=True).expand_as(scores)
        # Compared as they are kept: a float64 score and its float32 copy would differ.
        loss = self.loss.copy_(scores[0] / scores[2].clamp_min(1))
        accuracy = self.accuracy.copy_(scores[1] / scores[2].clamp_min(1))
        better = (accuracy > self.best_accuracy) | ((accuracy == self.best_accuracy) & (loss < self.best_loss))
        better = (better | (self.best_epoch == 0)) & ~self.done
        self.best.copy_(torch.where(better.unsqueeze(1), self.flat, self.best))
        self.best_loss.copy_(torch.where(better, loss, self.best_loss))
        self.best_accuracy.copy_(torch.where(better, accuracy, self.best_accuracy))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        if self.schedule.patience is not None:
            self.done |= self.epoch - self.best_epoch >= self.schedule.patience

    def record(self) -> None:
        """Record ``step`` and ``validate`` as CUDA graphs to replay; the state is unchanged."""
        moves = [self._step] + ([self._validate] if self.task.validation is not None else [])
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries initialize at their first calls, which cannot be recorded
            for move in moves:
                move()
        torch.cuda.current_stream().wait_stream(side)
        for move in moves:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=self._graphs[0].pool() if self._graphs else None):
                move()
            self._graphs.append(graph)
        with torch.no_grad():
            self.flat.copy_(self.initial)
            for state in (*self.moments, self.epoch, self.best_epoch, self.done):
                state.zero_()


def corrections(steps: int) -> Tensor:
    r"""Adam's corrections of its two means, which start at 0: :math:`1 - β_1^t, \sqrt{1 - β_2^t}` [steps, 2]."""
    t = torch.arange(1, steps + 1, dtype=torch.float64)
    return torch.stack([1 - BETA1**t, (1 - BETA2**t).sqrt()], dim=1).to(torch.float32)


def adam_step(
    flat: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, lr: Tensor, decay: Tensor, correction: Tensor
) -> None:
    r"""One step of Adam in place for all members, as in torch with ``weight_decay``.

    .. math:: g ← g + λθ, \quad m ← m + (1 - β_1)(g - m), \quad s ← β_2 s + (1 - β_2) g^2, \quad
        θ ← θ - \frac{η}{c_1} \frac{m}{\sqrt{s} / c_2 + 10^{-8}}

    Args:
        flat: The members' weights θ [S, P].
        gradient: g [S, P].
        mean: m [S, P].
        square: s [S, P].
        lr: η of each member [S, 1].
        decay: λ of each member [S, 1].
        correction: :math:`c_1, c_2` of this step [1, 2].
    """
    first, second = correction.unbind(dim=1)
    gradient = torch.addcmul(gradient, flat, decay)
    mean.lerp_(gradient, 1 - BETA1)
    square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    update = mean / (square.sqrt() / second + TINY)
    flat.addcmul_(update, lr / first, value=-1)


def _column(values: float | Sequence[float], size: int, device: torch.device, name: str) -> Tensor:
    """One value per member as a column [S, 1]."""
    column = torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1)
    if len(column) not in (1, size):
        raise ValueError(f"`{name}` must be a number or have one entry per member, but got {len(column)} for {size}.")
    return column.expand(size, 1).contiguous().to(device)


def _scores(logits: Tensor, task: Task) -> Tensor:
    """Summed loss, correct predictions and number of each member's own validation rows, [3, S]."""
    assert task.validation is not None
    mask = task.validation.to(logits.dtype)
    right = (logits.argmax(dim=2) == task.target).to(logits.dtype)
    parts = (_cross_entropy(logits, task.target) * mask, right * mask, mask)
    return torch.stack([part.sum(dim=1) for part in parts])


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Of each member and row [S, R]; logits [S, R, C]."""
    target = target.expand(logits.shape[:2])
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)
