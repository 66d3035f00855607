"""Networks with one hidden layer over blocks of features: many members, trained together by a hand-written step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from sobgnn.estimator.state import shaped
from sobgnn.training import BETA1, BETA2, TINY

# Dropout masks are rows of a pool that is drawn once; every step reads the pool from another row. Drawing new masks at
# every step would cost more than all its products.
_OFFSETS = 256
# Number of rows predicted at once.
_ROWS = 4096
# Steps between two reports of progress.
_REPORT_EVERY = 5


@dataclass(frozen=True)
class BlockNetworks:
    r"""S networks with one hidden layer, which has h units for each of B blocks of features.

    .. math:: \mathrm{logits}_s(x) = \sum_b \mathrm{ReLU}(x_b W_{1,b,s} + b_{1,b,s}) W_{2,b,s} + b_{2,s}

    With one block these are MLPs; with the blocks :math:`x, \hat{A}_\rho x, \dots` decoupled Sobolev networks.
    """

    weight1: Tensor = field(metadata=shaped("blocks", "members", "width", "hidden"))
    bias1: Tensor = field(metadata=shaped("blocks", "members", 1, "hidden"))
    weight2: Tensor = field(metadata=shaped("blocks", "members", "hidden", "classes"))
    bias2: Tensor = field(metadata=shaped("members", 1, "classes"))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Weights and biases of both layers."""
        return self.weight1, self.bias1, self.weight2, self.bias2

    def part(self, blocks: Sequence[int]) -> BlockNetworks:
        """The networks without the other blocks."""
        kept = list(blocks)
        return replace(self, weight1=self.weight1[kept], bias1=self.bias1[kept], weight2=self.weight2[kept])

    def member(self, number: int) -> BlockNetworks:
        """One of the networks."""
        one = slice(number, number + 1)
        return BlockNetworks(self.weight1[:, one], self.bias1[:, one], self.weight2[:, one], self.bias2[one])

    def double(self) -> BlockNetworks:
        """The same in float64."""
        return BlockNetworks(*(part.double() for part in self.parts))

    @torch.no_grad()
    def logits(self, X: Tensor) -> Tensor:
        """Logits [S, N, C] of points X [B, N, D]."""
        out = X.new_empty(self.bias2.shape[0], X.shape[1], self.bias2.shape[2])
        for start in range(0, X.shape[1], _ROWS):
            rows = slice(start, start + _ROWS)
            logits = self.bias2
            for x, weight1, bias1, weight2 in zip(X[:, rows], self.weight1, self.bias1, self.weight2, strict=True):
                hidden = torch.baddbmm(bias1, x.expand(len(bias1), -1, -1), weight1).clamp_min_(0)
                logits = torch.baddbmm(logits, hidden, weight2)
            out[:, rows] = logits
        return out


def train_blocks(
    X: Tensor,
    target: Tensor,
    weight: Tensor,
    seeds: Sequence[int],
    hidden: int,
    classes: int,
    *,
    steps: int = 150,
    passes: int = 10,
    batch: int = 256,
    lr: float = 0.03,
    weight_decay: float = 5e-3,
    dropout: float = 0.5,
    held_out: Tensor | None = None,
    start: BlockNetworks | None = None,
    progress: Callable[..., bool | None] | None = None,
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
        steps: Maximum number of steps of Adam.
        passes: Minimum number of passes over all rows, which for many rows takes more steps than ``steps``.
        batch: Maximum number of rows per step.
        lr: Adam's learning rate at the first step; it decays linearly to 0.
        weight_decay: L2 penalty, as in torch's Adam.
        dropout: Share of hidden units dropped in training, in [0, 1).
        held_out: [S, L], the weight of row l in the scores of member s that progress reports, or 0. Members that hold
            out rows come first.
        start: Networks whose weights to start from, instead of random ones.
        progress: Called after every few steps with the step, their number, the training loss, and the loss and accuracy
            on what is held out, means over the members; returning True stops training.
    """
    count = X.shape[1]
    batches = max(1, math.ceil(count / batch))
    steps = max(steps, passes * batches)
    generator = np.random.default_rng(list(seeds))
    training = _Training(X, len(seeds), hidden, classes, batch_size=math.ceil(count / batches))
    training.draw_weights(seeds)
    data = list(_batches(X, target, weight, classes, batches, generator))
    training.draw_dropout(generator, dropout)
    offsets = generator.integers(_OFFSETS, size=steps).tolist()
    if start is not None:
        for own, given in zip(training.networks.parts, start.parts, strict=True):
            own.copy_(given)
    for number in range(steps):
        training.gradients_of(*data[number % batches], offsets[number])
        training.adam(number, lr * (1 - number / steps), weight_decay)
        if progress is None or ((number + 1) % _REPORT_EVERY and number + 1 != steps):
            continue
        scores = (math.nan, math.nan) if held_out is None else _scores(training.networks, X, target, held_out)
        if progress(number + 1, steps, training.loss(*data[number % batches][1:]), *scores):
            break
    return training.networks


class _Training:
    """Parameters, gradients and work space; all parameters are in ``flat``, so that Adam passes over one vector."""

    def __init__(self, X: Tensor, members: int, hidden: int, classes: int, batch_size: int) -> None:
        blocks, _, width = X.shape
        shapes = (
            (blocks, members, width, hidden), (blocks, members, 1, hidden), (blocks, members, hidden, classes),
            (members, 1, classes),
        )  # fmt: skip
        self.flat = X.new_zeros(sum(math.prod(shape) for shape in shapes))
        self.gradient, self.mean, self.square, self.work = (torch.zeros_like(self.flat) for _ in range(4))

        def views(flat: Tensor) -> BlockNetworks:
            parts = torch.split(flat, [math.prod(shape) for shape in shapes])
            return BlockNetworks(*(part.view(shape) for part, shape in zip(parts, shapes, strict=True)))

        self.networks, self.gradients = views(self.flat), views(self.gradient)
        # A step writes into existing memory: the system would clear the memory of a large new tensor every time.
        self.hidden, self.back = (X.new_empty(blocks, members, batch_size, hidden) for _ in range(2))
        self.logits, self.delta = (X.new_empty(members, batch_size, classes) for _ in range(2))

    def draw_weights(self, seeds: Sequence[int]) -> None:
        """Draw Glorot weights, for a second layer that reads all blocks; a member's weights depend only on its seed."""
        weight1, _, weight2, _ = self.networks.parts
        blocks, _, width, hidden = weight1.shape
        for member, seed in enumerate(seeds):
            generator = np.random.default_rng(seed)
            for weight, fan in ((weight1, width + hidden), (weight2, blocks * hidden + weight2.shape[3])):
                drawn = generator.uniform(-1, 1, weight[:, member].shape) * math.sqrt(6 / fan)
                weight[:, member] = torch.from_numpy(drawn).to(weight)

    def draw_dropout(self, generator: np.random.Generator, dropout: float) -> None:
        """Draw the pool of masks, and set the factor of what remains."""
        blocks, members, rows, hidden = self.hidden.shape
        pool = generator.random((blocks, members, rows + _OFFSETS, hidden), dtype=np.float32) >= dropout
        self.pool, self.scale = torch.from_numpy(pool).to(self.flat), 1 / (1 - dropout)

    @torch.no_grad()
    def gradients_of(self, X: Tensor, one_hot: Tensor, share: Tensor, offset: int) -> None:
        """The gradient of every member's loss on a batch."""
        weight1, bias1, weight2, bias2 = self.networks.parts
        gradient1, gradient_bias1, gradient2, gradient_bias2 = self.gradients.parts
        members = len(bias2)
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

    def adam(self, number: int, lr: float, weight_decay: float) -> None:
        """One step of Adam for every member."""
        t = number + 1
        self.gradient.add_(self.flat, alpha=weight_decay)
        self.mean.lerp_(self.gradient, 1 - BETA1)
        self.square.mul_(BETA2).addcmul_(self.gradient, self.gradient, value=1 - BETA2)
        torch.sqrt(self.square, out=self.work)
        self.work.mul_(1 / math.sqrt(1 - BETA2**t)).add_(TINY)
        self.flat.addcdiv_(self.mean, self.work, value=-lr / (1 - BETA1**t))

    def loss(self, one_hot: Tensor, share: Tensor) -> float:
        """Mean over the members of the last step's loss, with its dropout."""
        return -float((self.logits.log_softmax(2) * one_hot * share).sum()) / len(self.logits)


def _batches(
    X: Tensor, target: Tensor, weight: Tensor, classes: int, number: int, generator: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Equal batches of rows in random order, each contiguous in memory; the last is padded with the first rows.

    Yields:
        For each batch its rows [B, R, D], one-hot targets [R, C], and shares in the loss [S, R, 1].
    """
    count = X.shape[1]
    size = math.ceil(count / number)
    one_hot = torch.nn.functional.one_hot(target, classes).to(X)
    for part in np.resize(generator.permutation(count), (number, size)):
        rows = torch.from_numpy(part).to(X.device)
        share = (weight[:, rows] * (count / size)).to(X).unsqueeze(2).contiguous()
        yield X[:, rows].contiguous(), one_hot[rows], share


def _scores(networks: BlockNetworks, X: Tensor, target: Tensor, held_out: Tensor) -> tuple[float, float]:
    """Loss and accuracy over all rows that members hold out, by their weights [S, L]."""
    loss = right = total = 0.0
    for member, weight in enumerate(held_out):
        rows = weight.nonzero().flatten()
        if not len(rows):
            break
        own, share = target[rows], weight[rows].double()
        logits = networks.member(member).logits(X[:, rows])[0]
        loss += float(share @ torch.nn.functional.cross_entropy(logits, own, reduction="none").double())
        right += float(share @ (logits.argmax(dim=1) == own).double())
        total += float(share.sum())
    return loss / total, right / total
