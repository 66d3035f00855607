"""Training of many members of a model at once: seeds of an experiment, or of an ensemble."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

from sobgnn._system.process import own_random_state

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
        run = _Run(model, (tuple(inputs), dict(keywords or {})), task, seeds, schedule, dict(buffers or {}))
        if cuda_graph and device.type == "cuda":
            run.record()
        torch.manual_seed(_mix(seeds))
        return run.train(progress)


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
    return forward_members(copy.deepcopy(model), dict(parameters), dict(buffers or {}), call, training=False)[0]


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
        model: Written for one member; its forward returns logits, or logits and such a loss. Its mode is set.
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


class _Run:
    """The state of one training and its two operations: a step, and a validation.

    All parameters of a member are one row of ``flat`` [S, P], so that Adam and keeping the best weights are a few
    elementwise operations for any model; nothing in the two synchronizes with the device, so that both can be recorded
    as CUDA graphs.
    """

    def __init__(
        self,
        model: nn.Module,
        call: tuple[Any, Any],
        task: Task,
        seeds: Sequence[int],
        schedule: Schedule,
        buffers: dict[str, Tensor],
    ) -> None:
        self.model = copy.deepcopy(model)  # its mode is switched
        self.call, self.task, self.schedule, self.buffers = call, task, schedule, buffers
        self.step, self.validate = self._step, self._validate
        device, size = task.train_weight.device, len(seeds)
        keyed = getattr(model, "keyed_dropout", False)
        self.keys = torch.tensor([_mix([seed]) % 2**31 for seed in seeds], device=device) if keyed else None
        parameters = initial_parameters(model, seeds, device)
        self.shapes = {name: value.shape[1:] for name, value in parameters.items()}
        self.initial = torch.cat([value.flatten(1) for value in parameters.values()], dim=1)
        self.flat = self.initial.clone().requires_grad_()
        self.moments = torch.zeros_like(self.initial), torch.zeros_like(self.initial)
        self.lr = _column(schedule.lr, size, device, "lr")
        self.decay = _column(schedule.weight_decay, size, device, "weight_decay")
        # Adam's two means start at 0: what they are divided by after each step.
        t = torch.arange(1, schedule.epochs + 1, dtype=torch.float64)
        self.corrections = torch.stack([1 - BETA1**t, (1 - BETA2**t).sqrt()], dim=1).float().to(device)
        self.epoch = torch.zeros(1, dtype=torch.int64, device=device)
        self.losses = torch.zeros(size, device=device)
        self.best = self.initial.clone()
        self.best_loss = torch.full((size,), float("inf"), device=device)
        self.best_accuracy = torch.full((size,), float("nan"), device=device)
        self.best_epoch = torch.zeros(size, dtype=torch.int64, device=device)
        self.loss, self.accuracy = torch.zeros_like(self.losses), torch.zeros_like(self.losses)
        self.done = torch.zeros(size, dtype=torch.bool, device=device)

    def train(self, progress: Callable[[Progress], bool | None] | None) -> Members:
        """All steps and validations, until every member is done or ``progress`` ends the training."""
        schedule, validated = self.schedule, self.task.validation is not None
        history: dict[str, list[Tensor]] = {}
        epoch, ended = 0, False
        while epoch < schedule.epochs and not ended:
            self.step()
            epoch += 1
            if epoch % schedule.evaluate_every and epoch != schedule.epochs:
                continue
            scores = {"epoch": torch.tensor(epoch), "train_loss": self.losses}
            if validated:
                self.validate()
                scores |= {"validation_loss": self.loss, "validation_accuracy": self.accuracy}
            for name, value in scores.items():
                history.setdefault(name, []).append(value.to("cpu", copy=True))
            if progress is not None:
                held = (float(self.accuracy.mean()), float(self.loss.mean())) if validated else (None, None)
                if progress(Progress(epoch, schedule.epochs, float(self.losses.mean()), *held)):
                    break
            ended = validated and schedule.patience is not None and bool(self.done.all())
        if not validated:
            self.best = self.flat.detach()
            self.best_epoch.fill_(epoch)
        curves = {name: torch.stack(values) for name, values in history.items()}
        return Members(self._unflatten(self.best), curves, self.best_accuracy, self.best_epoch, epoch)

    def record(self) -> None:
        """Record both operations as CUDA graphs, which take their places; the state is unchanged."""
        moves = [self._step] + [self._validate] * (self.task.validation is not None)
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries initialize at their first calls, which cannot be recorded
            for move in moves:
                move()
        torch.cuda.current_stream().wait_stream(side)
        graphs: list[torch.cuda.CUDAGraph] = []
        for move in moves:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
                move()
            graphs.append(graph)
        self.step, self.validate = graphs[0].replay, graphs[-1].replay
        with torch.no_grad():
            self.flat.copy_(self.initial)
            for state in (*self.moments, self.epoch, self.best_epoch, self.done):
                state.zero_()

    def _unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """The stacked parameters [S, ...] as views of ``flat``."""
        parts = torch.split(flat, [shape.numel() for shape in self.shapes.values()], dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(flat), *shape) for (name, shape), part in named}

    def _forward(self, training: bool, keys: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        parameters = self._unflatten(self.flat)
        return forward_members(self.model, parameters, self.buffers, self.call, training=training, keys=keys)

    def _step(self) -> None:
        r"""One step of Adam for every member, as torch's with ``weight_decay``.

        .. math:: g ← g + λθ, \quad m ← m + (1 - β_1)(g - m), \quad s ← β_2 s + (1 - β_2) g^2, \quad
            θ ← θ - \frac{η}{1 - β_1^t} \frac{m}{\sqrt{s / (1 - β_2^t)} + 10^{-8}}
        """
        logits, own = self._forward(True, None if self.keys is None else (self.keys + self.epoch * _STEP) % 2**31)
        losses = (_cross_entropy(logits, self.task.target) * self.task.train_weight).sum(dim=1)
        losses = losses if own is None else losses + own
        # Each member's gradient comes only from its own loss, so the sum trains each as if it were alone.
        (gradient,) = torch.autograd.grad(losses.sum(), self.flat)
        with torch.no_grad():
            self.losses.copy_(losses)
            first, second = self.corrections.index_select(0, self.epoch).unbind(dim=1)
            mean, square = self.moments
            gradient = torch.addcmul(gradient, self.flat, self.decay)
            mean.lerp_(gradient, 1 - BETA1)
            square.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
            self.flat.addcmul_(mean / (square.sqrt() / second + TINY), self.lr / first, value=-1)
            self.epoch += 1

    @torch.no_grad()
    def _validate(self) -> None:
        """Score every member on its validation rows, and keep the weights of members that improved."""
        assert self.task.validation is not None
        logits, _ = self._forward(False)
        mask = self.task.validation.to(logits.dtype)
        right = (logits.argmax(dim=2) == self.task.target).to(logits.dtype)
        parts = (_cross_entropy(logits, self.task.target) * mask, right * mask, mask)
        scores = torch.stack([part.sum(dim=1) for part in parts])
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


def _column(values: float | Sequence[float], size: int, device: torch.device, name: str) -> Tensor:
    """One value per member as a column [S, 1]."""
    column = torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1)
    if len(column) not in (1, size):
        raise ValueError(f"`{name}` must be a number or have one entry per member, but got {len(column)} for {size}.")
    return column.expand(size, 1).contiguous().to(device)


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Of each member and row [S, R]; logits [S, R, C]."""
    target = target.expand(logits.shape[:2])
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)


def _mix(seeds: Sequence[int]) -> int:
    """One seed from several: dropout must not repeat the draws that the first member's weights came from."""
    mixed = 0x9E3779B9
    for seed in seeds:
        mixed = (mixed * 6364136223846793005 + int(seed) + 1442695040888963407) % 2**63
    return mixed
