"""Networks with one hidden layer over blocks of features: many members, trained together by a hand-written step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.training.adam import BETA1, BETA2, TINY

__all__ = ["BlockNetworks", "BlockProgress", "BlockSchedule", "train_blocks"]

# Dropout masks are rows of a pool that is drawn once; every step reads the pool from another row. Drawing new masks at
# every step would cost more than all its products.
_OFFSETS = 256
# Number of rows predicted at once.
_ROWS = 4096
# Steps between two reports of progress.
_REPORT_EVERY = 5

Parameters = tuple[Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class BlockSchedule:
    """How long and how fast to train.

    Args:
        steps: Maximum number of steps of Adam.
        passes: Minimum number of passes over all rows, which for many rows takes more steps than ``steps``.
        batch: Maximum number of rows per step.
        lr: Adam's learning rate at the first step; it decays linearly to 0.
        weight_decay: L2 penalty, as in torch's Adam.
    """

    steps: int = 150
    passes: int = 10
    batch: int = 256
    lr: float = 0.03
    weight_decay: float = 5e-3

    def batches(self, rows: int) -> int:
        """Number of batches in a pass over the rows."""
        return max(1, math.ceil(rows / self.batch))

    def total(self, rows: int) -> int:
        """Total number of steps, unless progress ends training."""
        return max(self.steps, self.passes * self.batches(rows))


@dataclass(frozen=True)
class BlockProgress:
    """Progress after some steps; losses are means over the members, NaN if nothing is held out."""

    step: int
    steps: int
    train_loss: float
    validation_loss: float
    validation_accuracy: float


@dataclass(frozen=True)
class BlockNetworks:
    r"""S networks with one hidden layer, which has h units for each of B blocks of features.

    .. math:: \mathrm{logits}_s(x) = \sum_b \mathrm{ReLU}(x_b W_{1,b,s} + b_{1,b,s}) W_{2,b,s} + b_{2,s}

    With one block these are MLPs; with the blocks :math:`x, \hat{A}_\rho x, \dots` decoupled Sobolev networks.

    Attributes:
        weight1: [B, S, D, h].
        bias1: [B, S, 1, h].
        weight2: [B, S, h, C].
        bias2: [S, 1, C].
    """

    weight1: Tensor
    bias1: Tensor
    weight2: Tensor
    bias2: Tensor

    def part(self, blocks: Sequence[int]) -> BlockNetworks:
        """The networks without the other blocks."""
        kept = list(blocks)
        return replace(self, weight1=self.weight1[kept], bias1=self.bias1[kept], weight2=self.weight2[kept])

    def double(self) -> BlockNetworks:
        """The same in float64."""
        return BlockNetworks(self.weight1.double(), self.bias1.double(), self.weight2.double(), self.bias2.double())

    @torch.no_grad()
    def logits(self, X: Tensor) -> Tensor:
        """Logits [S, N, C] of points X [B, N, D]."""
        out = X.new_empty(self.bias2.shape[0], X.shape[1], self.bias2.shape[2])
        for start in range(0, X.shape[1], _ROWS):
            rows = slice(start, start + _ROWS)
            out[:, rows] = _forward(X[:, rows], (self.weight1, self.bias1, self.weight2, self.bias2))
        return out


def train_blocks(
    X: Tensor,
    target: Tensor,
    weight: Tensor,
    seeds: Sequence[int],
    hidden: int,
    classes: int,
    schedule: BlockSchedule,
    *,
    dropout: float = 0.5,
    held_out: Tensor | None = None,
    start: BlockNetworks | None = None,
    progress: Callable[[BlockProgress], bool | None] | None = None,
) -> BlockNetworks:
    """Train one network per seed, all in one batch, by cross-entropy on each member's own rows.

    The result is a function of the arguments; torch's random state is neither read nor changed.

    Args:
        X: [B, L, D], the labeled rows of each block.
        target: int64 [L], classes.
        weight: [S, L], row l's share in member s's loss, 0 for none; rows sum to 1.
        seeds: One per member, non-negative, for its initial weights. All seeds together determine dropout and the order
            of the rows.
        hidden: h, hidden units per block.
        classes: C.
        schedule: How long and how fast.
        dropout: Share of hidden units dropped in training, in [0, 1).
        held_out: [S, L], the weight of row l in the scores of member s that progress reports, or 0. Members that hold
            out rows come first.
        start: Networks whose weights to start from, instead of random ones.
        progress: Called after every few steps; returning True stops training.
    """
    if weight.shape != (len(seeds), X.shape[1]):
        raise ValueError(
            f"`weight` must be [members, rows] = {[len(seeds), X.shape[1]]}, but got {list(weight.shape)}."
        )
    state = _State(X, target, weight, seeds, hidden, classes, schedule, dropout)
    if start is not None:
        for own, given in zip(state.parameters, (start.weight1, start.bias1, start.weight2, start.bias2), strict=True):
            own.copy_(given)
    validation = None if held_out is None else _Validation(X, target, held_out)
    for step in range(1, state.steps + 1):
        state.step(step - 1)
        if progress is None or (step % _REPORT_EVERY and step != state.steps):
            continue
        loss, accuracy = (math.nan, math.nan) if validation is None else validation(state.parameters)
        if progress(BlockProgress(step, state.steps, state.train_loss(step - 1), loss, accuracy)):
            break
    return BlockNetworks(*state.parameters)


class _State:
    """The state of a training. All parameters are in ``flat``, so that Adam is a few passes over one vector."""

    def __init__(
        self,
        X: Tensor,
        target: Tensor,
        weight: Tensor,
        seeds: Sequence[int],
        hidden: int,
        classes: int,
        schedule: BlockSchedule,
        dropout: float,
    ) -> None:
        blocks, rows, width = X.shape
        members = len(seeds)
        self.schedule, self.steps, self.scale = schedule, schedule.total(rows), 1 / (1 - dropout)
        self.shapes = (
            (blocks, members, width, hidden),
            (blocks, members, 1, hidden),
            (blocks, members, hidden, classes),
            (members, 1, classes),
        )
        self.flat = X.new_zeros(sum(math.prod(shape) for shape in self.shapes))
        self.gradient, self.mean, self.square, self.work = (torch.zeros_like(self.flat) for _ in range(4))
        self.parameters, self.gradients = self.views(self.flat), self.views(self.gradient)
        self._draw_weights(seeds)
        generator = np.random.default_rng(list(seeds))
        self.batches = list(_batches(X, target, weight, classes, schedule, generator))
        size = self.batches[0][0].shape[1]
        pool = generator.random((blocks, members, size + _OFFSETS, hidden), dtype=np.float32) >= dropout
        self.pool = torch.from_numpy(pool).to(X)
        self.offsets: list[int] = generator.integers(_OFFSETS, size=self.steps).tolist()
        # A step writes into existing memory: the system would clear the memory of a large new tensor every time.
        self.hidden, self.back = (X.new_empty(blocks, members, size, hidden) for _ in range(2))
        self.logits, self.delta = (X.new_empty(members, size, classes) for _ in range(2))

    def views(self, flat: Tensor) -> Parameters:
        """Weights and biases of both layers as views of a flat vector."""
        parts = torch.split(flat, [math.prod(shape) for shape in self.shapes])
        weight1, bias1, weight2, bias2 = (part.view(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return weight1, bias1, weight2, bias2

    def _draw_weights(self, seeds: Sequence[int]) -> None:
        """Draw Glorot weights, for a second layer that reads all blocks; a member's weights depend only on its seed."""
        weight1, _, weight2, _ = self.parameters
        blocks, _, width, hidden = weight1.shape
        for member, seed in enumerate(seeds):
            generator = np.random.default_rng(seed)
            for weight, fan in ((weight1, width + hidden), (weight2, blocks * hidden + weight2.shape[3])):
                drawn = generator.uniform(-1, 1, weight[:, member].shape) * math.sqrt(6 / fan)
                weight[:, member] = torch.from_numpy(drawn).to(weight)

    @torch.no_grad()
    def step(self, number: int) -> None:
        """One step of Adam for every member."""
        X, one_hot, share = self.batches[number % len(self.batches)]
        weight1, bias1, weight2, bias2 = self.parameters
        gradient1, gradient_bias1, gradient2, gradient_bias2 = self.gradients
        members, offset = len(bias2), self.offsets[number]
        for b, rows in enumerate(X):
            torch.baddbmm(bias1[b], rows.expand(members, -1, -1), weight1[b], out=self.hidden[b])
        self.hidden.clamp_min_(0).mul_(self.pool[:, :, offset : offset + X.shape[1]])
        # Dropout's factor is part of the products with the second layer, forward and backward.
        torch.baddbmm(bias2, self.hidden[0], weight2[0], alpha=self.scale, out=self.logits)
        for b in range(1, len(X)):
            self.logits.baddbmm_(self.hidden[b], weight2[b], alpha=self.scale)
        torch.softmax(self.logits, 2, out=self.delta)
        self.delta.sub_(one_hot).mul_(share)  # the derivative of the loss with respect to the logits
        torch.sum(self.delta, 1, keepdim=True, out=gradient_bias2)
        for b in range(len(X)):
            torch.bmm(self.hidden[b].transpose(1, 2), self.delta, out=gradient2[b])
            torch.bmm(self.delta, weight2[b].transpose(1, 2), out=self.back[b])
        gradient2.mul_(self.scale)
        # Entries that neither ReLU nor dropout removed are positive; the sign, 0 or 1, is the derivative of both.
        self.back.mul_(self.hidden.sign_()).mul_(self.scale)
        torch.sum(self.back, 2, keepdim=True, out=gradient_bias1)
        for b, rows in enumerate(X):
            torch.bmm(rows.t().expand(members, -1, -1), self.back[b], out=gradient1[b])
        self._adam(number)

    def _adam(self, number: int) -> None:
        schedule, t = self.schedule, number + 1
        lr = schedule.lr * (1 - number / self.steps)
        self.gradient.add_(self.flat, alpha=schedule.weight_decay)
        self.mean.lerp_(self.gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(self.gradient, self.gradient, value=1 - BETA2)
        torch.sqrt(self.square, out=self.work)
        self.work.mul_(1 / math.sqrt(1 - BETA2**t)).add_(TINY)
        self.flat.addcdiv_(self.mean, self.work, value=-lr / (1 - BETA1**t))

    def train_loss(self, number: int) -> float:
        """Mean over the members of a step's loss, right after it, with its dropout."""
        _, one_hot, share = self.batches[number % len(self.batches)]
        return -float((self.logits.log_softmax(2) * one_hot * share).sum()) / len(self.logits)


class _Validation:
    """The held-out rows of each member that has some; shorter lists are padded with rows of weight 0."""

    def __init__(self, X: Tensor, target: Tensor, held_out: Tensor) -> None:
        counts = (held_out > 0).sum(dim=1)
        self.members, most = int(counts.nonzero().max()) + 1, int(counts.max())
        first = (held_out[: self.members] > 0).int().argsort(dim=1, descending=True, stable=True)[:, :most]
        share = held_out[: self.members].gather(1, first).to(X)
        self.X, self.target, self.share = X[:, first], target[first], share / share.sum()

    @torch.no_grad()
    def __call__(self, parameters: Parameters) -> tuple[float, float]:
        """Loss and accuracy over all held-out rows."""
        weight1, bias1, weight2, bias2 = parameters
        m = self.members
        logits = _forward(self.X, (weight1[:, :m], bias1[:, :m], weight2[:, :m], bias2[:m]))
        losses = logits.log_softmax(2).gather(2, self.target.unsqueeze(2)).squeeze(2)
        right = (logits.argmax(2) == self.target).to(self.share)
        # Rounded: shares are float32, but if every row is right, the accuracy is 1.
        accuracy = round(float((right * self.share).sum(dtype=torch.float64)), 7)
        return -float((losses * self.share).sum()), accuracy


def _batches(
    X: Tensor,
    target: Tensor,
    weight: Tensor,
    classes: int,
    schedule: BlockSchedule,
    generator: np.random.Generator,
) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Equal batches of rows in random order, each contiguous in memory; the last is padded with the first rows.

    Returns:
        For each batch its rows [B, R, D], one-hot targets [R, C], and shares in the loss [S, R, 1].
    """
    count = X.shape[1]
    number = schedule.batches(count)
    size = math.ceil(count / number)
    order: npt.NDArray[np.int64] = generator.permutation(count)
    one_hot = torch.nn.functional.one_hot(target, classes).to(X)
    out = []
    for part in np.resize(order, (number, size)):
        rows = torch.from_numpy(part).to(X.device)
        share = (weight[:, rows] * (count / size)).to(X).unsqueeze(2).contiguous()
        out.append((X[:, rows].contiguous(), one_hot[rows], share))
    return out


def _forward(X: Tensor, parameters: Parameters) -> Tensor:
    """Logits [S, N, C] of rows that all members share, X [B, N, D], or of each member's own, X [B, S, N, D]."""
    weight1, bias1, weight2, bias2 = parameters
    logits = bias2
    for b, rows in enumerate(X):
        each = rows if X.ndim == 4 else rows.expand(len(bias2), -1, -1)
        logits = torch.baddbmm(logits, torch.baddbmm(bias1[b], each, weight1[b]).clamp_min_(0), weight2[b])
    return logits
