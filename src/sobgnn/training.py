"""One loop that trains many members of a model at once: seeds of an experiment, or of an ensemble."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, vmap

Monitor = Literal["accuracy", "loss"]

# Sets the dropout keys of successive steps far apart.
_STEP = 0x5851F42D
# Adam's, as in torch and in the paper it comes from.
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Args:
        epochs: Full-batch steps at the most.
        lr: Adam's learning rate; a sequence gives each member its own.
        weight_decay: L2 penalty, as torch's Adam takes it; a sequence gives each member its own.
        patience: Steps without a better validation score after which a member counts as done: its best weights
            stay as they are, and training ends when all are done. ``None``: all epochs.
        evaluate_every: Steps between two validations.
        monitor: What "better" means: higher validation accuracy (ties by lower loss), or lower loss.
        together: All members keep the weights of one step, the best over all their validation rows together. A
            member without any can then train on every label and still stop in time.
    """

    epochs: int = 500
    lr: float | Sequence[float] = 0.01
    weight_decay: float | Sequence[float] = 5e-4
    patience: int | None = 100
    evaluate_every: int = 1
    monitor: Monitor = "accuracy"
    together: bool = False


@dataclass(frozen=True)
class Task:
    """What S members learn on R rows of logits; all tensors on one device.

    Args:
        target: int64 [R] or [S, R], classes; any valid class where it is not used.
        train_weight: float32 [S, R]. Row r's share in member s's loss; 0 where it has none. Rows sum to 1.
        validation: bool [S, R], or ``None``. Rows that choose a member's best weights; numbers weigh them.
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


class Checkpoint(Protocol):
    """Where the state of a training is kept between interruptions: tensors by name."""

    def load(self) -> dict[str, Tensor] | None:
        """The state last saved, if any."""

    def save(self, state: dict[str, Tensor]) -> None:
        """Keep a state, whole or not at all."""


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
    sum_over_ranks: Callable[[Sequence[Tensor]], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Members:
    """Train one member per seed, all in one batch, by cross-entropy on each member's own rows.

    Members share the inputs and nothing else: parameters are stacked, the forward is mapped over them, and one
    backward serves all. Without dropout the outcome is that of training them one by one.

    Args:
        model: A module with ``reset_parameters``, written for one member; its own weights are not used or changed.
        inputs: Positional arguments of the model's forward, which gives logits [R, C].
        task: Rows, targets and validation.
        seeds: One per member. A member's initial weights depend on its seed alone, and so does its dropout where the
            model takes a ``dropout_key`` (its ``keyed_dropout`` is true); else dropout depends on all the seeds.
        schedule: How long and how fast.
        keywords: Keyword arguments of the model's forward.
        buffers: Buffers of the model that differ from member to member, stacked [S, ...].
        progress: Called after each evaluation; returning True ends training there, keeping the best so far.
        cuda_graph: Record a step once and replay it. Pays where steps are short; on CUDA, for forwards that
            neither wait for the device nor depend on values on it.
        sum_over_ranks: Where several processes hold some of the rows each: adds up tensors over them, in place.
        checkpoint: Keeps the state of training after each evaluation, and gives it back after an interruption; with
            keyed dropout the outcome is that of a training that was not interrupted.
    """
    if task.train_weight.shape[0] != len(seeds):
        raise ValueError(
            f"train_weight must have one row per seed, but got {task.train_weight.shape[0]} for {len(seeds)}."
        )
    device = task.train_weight.device
    # The random state is the caller's: it is put back as it was found.
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        parameters = initial_parameters(model, seeds, device)
        call = (tuple(inputs), dict(keywords or {}))
        keys = torch.tensor([_mix([seed]) % 2**31 for seed in seeds], device=device)
        run = _Run(model, parameters, dict(buffers or {}), call, task, schedule, keys, sum_over_ranks)
        if cuda_graph and device.type == "cuda":
            run.record()
        torch.manual_seed(_mix(seeds))
        return _train(run, schedule, progress, checkpoint)


def initial_parameters(model: nn.Module, seeds: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """Stacked initial parameters [S, ...], drawn on the CPU, so that they are the same on every device."""
    member = copy.deepcopy(model).cpu()
    drawn: dict[int, dict[str, Tensor]] = {}
    for seed in set(seeds):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            member.reset_parameters()  # type: ignore[operator]
        drawn[seed] = {name: value.detach().clone() for name, value in member.named_parameters()}
    return {name: torch.stack([drawn[s][name] for s in seeds]).to(device) for name, _ in member.named_parameters()}


@torch.no_grad()
def predict_members(
    model: nn.Module,
    parameters: Mapping[str, Tensor],
    inputs: Sequence[Any],
    keywords: Mapping[str, Any] | None = None,
    *,
    buffers: Mapping[str, Tensor] | None = None,
) -> Tensor:
    """Logits of every member in evaluation mode, [S, R, C]."""
    call = (tuple(inputs), dict(keywords or {}))
    return _forward(model, dict(parameters), dict(buffers or {}), call, training=False)


def _forward(
    model: nn.Module,
    parameters: dict[str, Tensor],
    buffers: dict[str, Tensor],
    call: tuple[Any, Any],
    *,
    training: bool,
    keys: Tensor | None = None,
) -> Tensor:
    inputs, keywords = call
    shared = {name: value for name, value in model.named_buffers() if name not in buffers}
    model.train(training)

    def one(member: dict[str, Tensor], key: Tensor | None) -> Tensor:
        own = keywords if key is None else {**keywords, "dropout_key": key}
        logits: Tensor = functional_call(model, (member, shared), inputs, own)
        return logits

    mapped = {**parameters, **buffers}
    if len(next(iter(mapped.values()))) == 1:  # no batch to map over: half the overhead
        single = {name: value[0] for name, value in mapped.items()}
        return one(single, None if keys is None else keys[0]).unsqueeze(0)
    logits: Tensor = vmap(one, (0, None if keys is None else 0), randomness="different")(mapped, keys)
    return logits


class _Run:
    """The state of one training and its two moves: a step, and a validation.

    All parameters of a member stand in one row of ``flat`` [S, P], so that Adam and the keeping of the best weights
    are a handful of elementwise operations whatever the model; nothing here waits for the device, so that both
    moves can be recorded as CUDA graphs.
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
        sum_over_ranks: Callable[[Sequence[Tensor]], None] | None,
    ) -> None:
        self.model = copy.deepcopy(model)  # its mode is switched below
        self.keys = keys if getattr(model, "keyed_dropout", False) else None
        self.sum_over_ranks = sum_over_ranks or (lambda tensors: None)
        self.buffers, self.call, self.task, self.schedule = buffers, call, task, schedule
        self.shapes = {name: value.shape[1:] for name, value in parameters.items()}
        self.initial = torch.cat([value.flatten(1) for value in parameters.values()], dim=1)
        self.flat = self.initial.clone().requires_grad_()
        self.mean, self.square = torch.zeros_like(self.initial), torch.zeros_like(self.initial)
        device, size = self.flat.device, len(self.flat)
        self.lr = _column(schedule.lr, size, device, "lr")
        self.decay = _column(schedule.weight_decay, size, device, "weight_decay")
        t = torch.arange(1, schedule.epochs + 1, dtype=torch.float64)
        corrections = torch.stack([1 - _BETA1**t, (1 - _BETA2**t).sqrt()], dim=1)
        self.corrections = corrections.to(device, torch.float32)
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
        """Score every member on its validation rows, and keep the weights of those that are better than before."""
        if self._graphs:
            self._graphs[1].replay()
        else:
            self._validate()

    def _step(self) -> None:
        keys = None if self.keys is None else (self.keys + self.epoch * _STEP) % 2**31
        logits = _forward(self.model, self.unflatten(self.flat), self.buffers, self.call, training=True, keys=keys)
        losses = _losses(logits, self.task.target, self.task.train_weight)
        # Each member's gradient comes from its own loss alone, so the sum trains each as if it were by itself.
        (gradient,) = torch.autograd.grad(losses.sum(), self.flat)
        with torch.no_grad():
            self.losses.copy_(losses)
            self.sum_over_ranks((gradient, self.losses))
            first, second = self.corrections.index_select(0, self.epoch).unbind(dim=1)
            gradient = torch.addcmul(gradient, self.flat, self.decay)
            self.mean.lerp_(gradient, 1 - _BETA1)
            self.square.mul_(_BETA2).addcmul_(gradient, gradient, value=1 - _BETA2)
            update = self.mean / (self.square.sqrt() / second + _TINY)
            self.flat.addcmul_(update, self.lr / first, value=-1)
            self.epoch += 1

    @torch.no_grad()
    def _validate(self) -> None:
        logits = _forward(self.model, self.unflatten(self.flat), self.buffers, self.call, training=False)
        scores = _scores(logits, self.task)
        self.sum_over_ranks((scores,))
        if self.schedule.together:
            scores = scores.sum(dim=1, keepdim=True).expand_as(scores)
        loss, accuracy = scores[0] / scores[2].clamp_min(1), scores[1] / scores[2].clamp_min(1)
        self.loss.copy_(loss)
        self.accuracy.copy_(accuracy)
        if self.schedule.monitor == "accuracy":
            better = (accuracy > self.best_accuracy) | ((accuracy == self.best_accuracy) & (loss < self.best_loss))
        else:
            better = loss < self.best_loss
        better = (better | (self.best_epoch == 0)) & ~self.done
        self.best.copy_(torch.where(better.unsqueeze(1), self.flat, self.best))
        self.best_loss.copy_(torch.where(better, loss, self.best_loss))
        self.best_accuracy.copy_(torch.where(better, accuracy, self.best_accuracy))
        self.best_epoch.copy_(torch.where(better, self.epoch, self.best_epoch))
        if self.schedule.patience is not None:
            self.done |= self.epoch - self.best_epoch >= self.schedule.patience

    def state(self) -> dict[str, Tensor]:
        """Everything that a step or a validation changes and a later one reads."""
        names = ("flat", "mean", "square", "epoch", "best", "best_loss", "best_accuracy", "best_epoch", "done")
        return {name: getattr(self, name).detach() for name in names}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Take over a state of the same members."""
        for name, value in self.state().items():
            if name not in state or state[name].shape != value.shape:
                raise ValueError(f"The checkpoint is of another training: its {name!r} does not fit.")
            value.copy_(state[name])

    def record(self) -> None:
        """Make ``step`` and ``validate`` replays of CUDA graphs; the state is as before."""
        moves = [self._step] + ([self._validate] if self.task.validation is not None else [])
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries set themselves up at their first calls, which cannot be recorded
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
            for state in (self.mean, self.square, self.epoch, self.best_epoch, self.done):
                state.zero_()


def _train(
    run: _Run,
    schedule: Schedule,
    progress: Callable[[Progress], bool | None] | None,
    checkpoint: Checkpoint | None,
) -> Members:
    validated = run.task.validation is not None
    history: dict[str, list[Tensor]] = {"epoch": [], "train_loss": [], "validation_loss": [], "validation_accuracy": []}
    state = None if checkpoint is None else checkpoint.load()
    if state is not None:
        run.restore({name: value for name, value in state.items() if name in run.state()})
        history = {name: list(state.get(f"history.{name}", ())) for name in history}
    epoch = int(run.epoch)
    ended = validated and bool(run.done.all())
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
        if checkpoint is not None:
            curves = {f"history.{name}": torch.stack(values) for name, values in history.items() if values}
            checkpoint.save({**run.state(), **curves})
        if progress is not None:
            accuracy = float(run.accuracy.mean()) if validated else None
            if progress(Progress(epoch, schedule.epochs, float(run.losses.mean()), accuracy)):
                break
        ended = validated and schedule.patience is not None and bool(run.done.all())
    if not validated:
        run.best = run.flat.detach()
        run.best_epoch.fill_(epoch)
    curves = {name: torch.stack(values) for name, values in history.items() if values}
    return Members(run.unflatten(run.best), curves, run.best_accuracy, run.best_epoch, epoch)


def _column(values: float | Sequence[float], size: int, device: torch.device, name: str) -> Tensor:
    """One value per member as a column [S, 1]."""
    column = torch.as_tensor(values, dtype=torch.float32).reshape(-1, 1)
    if len(column) not in (1, size):
        raise ValueError(f"`{name}` must be a number or have one entry per member, but got {len(column)} for {size}.")
    return column.expand(size, 1).contiguous().to(device)


def _losses(logits: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Weighted cross-entropy of each member [S]; logits [S, R, C]."""
    return (_cross_entropy(logits, target) * weight).sum(dim=1)


def _scores(logits: Tensor, task: Task) -> Tensor:
    """Summed loss, right answers and number of each member's own validation rows, [3, S]."""
    assert task.validation is not None
    mask = task.validation.to(logits.dtype)
    right = (logits.argmax(dim=2) == task.target).to(logits.dtype)
    parts = (_cross_entropy(logits, task.target) * mask, right * mask, mask)
    return torch.stack([part.sum(dim=1) for part in parts])


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    target = target.expand(logits.shape[:2])
    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view(target.shape)


def _mix(seeds: Sequence[int]) -> int:
    """One seed from several: dropout must not repeat the draws that the first member's weights came from."""
    mixed = 0x9E3779B9
    for seed in seeds:
        mixed = (mixed * 6364136223846793005 + int(seed) + 1442695040888963407) % 2**63
    return mixed
