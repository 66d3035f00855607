"""What a model of the table is: a network that is trained, or a predictor that is given points and some labels."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sobgnn.paper.models.source import Source

Value = int | float | str | bool
Setting = Mapping[str, Value]
Labels = npt.NDArray[np.int64]

# Every published setting follows from this number, the trial's number and the parameter's name.
_SEED = 20221
# Approximate maximum number of floats of a batch's members in a step; it bounds memory on the device. It is part of the
# protocol, because the draws of dropout depend on which members share a batch.
_BATCH_FLOATS = 1_500_000_000


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high], or log-uniform if ``log``."""

    low: float
    high: float
    log: bool = False

    def draw(self, u: float) -> Value:
        """The value at ``u`` of [0, 1), to 6 significant digits."""
        if self.log:
            value = math.exp(math.log(self.low) + u * math.log(self.high / self.low))
        else:
            value = self.low + u * (self.high - self.low)
        return float(f"{value:.6g}")


@dataclass(frozen=True)
class Choice:
    """One of several values, all equally likely."""

    values: Sequence[Value]

    def draw(self, u: float) -> Value:
        """The value at ``u`` of [0, 1)."""
        return self.values[int(u * len(self.values))]


Space = Mapping[str, Uniform | Choice]

# What the search spaces of networks share: those of the authors' later code.
COMMON: Space = {"lr": Uniform(0.005, 0.02), "weight_decay": Uniform(1e-4, 1e-3), "dropout": Uniform(0.3, 0.7)}
HIDDEN = Choice((16, 32, 64))
DEEP: Space = {**COMMON, "hidden": HIDDEN, "layers": Choice((2, 3, 4, 5))}


def draw_settings(space: Space, trials: int) -> list[dict[str, Value]]:
    """The first ``trials`` settings of a space.

    A parameter's value in a trial depends only on its name and the trial's number: models that share a parameter are
    tried at the same values of it, and fewer trials are a prefix of more.
    """
    return [
        {name: axis.draw(np.random.default_rng([_SEED, trial, zlib.crc32(name.encode())]).random())
         for name, axis in space.items()}
        for trial in range(trials)
    ]  # fmt: skip


@dataclass(frozen=True)
class Call:
    """Arguments of a model's forward."""

    args: tuple[Any, ...]
    keywords: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Network:
    """A network: many members of it train as one batch.

    Args:
        build: (features, classes, setting) -> a module for one member, with ``reset_parameters``.
        inputs: (source, setting, rows) -> the inputs of its forward for logits at ``rows`` (``None``: all nodes).
        space: What a random search draws from.
        width: Approximate number of floats that a member keeps per node in a step; determines batch sizes.
        own_rates: Setting entries in which members of one batch may differ: all others determine shapes or inputs.
        headed: Whether the table also has it with the paper's head, the setting ``head="paper"``.
    """

    build: Callable[[int, int, Setting], nn.Module]
    inputs: Callable[[Source, Setting, Tensor | None], Call]
    space: Space
    width: Callable[[Setting], int]
    own_rates: tuple[str, ...] = ("lr", "weight_decay", "dropout")
    headed: bool = False

    def shape(self, trial: int, setting: Setting) -> Any:
        """What members of one batch must have in common."""
        return tuple(sorted((name, value) for name, value in setting.items() if name not in self.own_rates))

    def at_once(self, setting: Setting, num_nodes: int, seeds: int) -> int:
        """Maximum number of members of a batch."""
        return max(1, _BATCH_FLOATS // (num_nodes * self.width(setting)))


@dataclass(frozen=True)
class Predictor:
    """A model that predicts all labels from some.

    Args:
        predict: (source, y [N] with -1 for unknown, setting, seed) -> a label for every point [N].
        space: What a random search draws from; empty where nothing is searched.
        sizes: Whether it also gets the class frequencies, as ``sizes`` [C], which no other model does.
    """

    predict: Callable[..., Labels]
    space: Space = field(default_factory=dict)
    sizes: bool = False
    headed = False

    def shape(self, trial: int, setting: Setting) -> Any:
        """A batch is one setting with its seeds, which are trained one after another."""
        return trial

    def at_once(self, setting: Setting, num_nodes: int, seeds: int) -> int:
        """Maximum number of members of a batch: as many as the search has ``seeds``."""
        return seeds


def layer_sizes(features: int, classes: int, setting: Setting) -> list[int]:
    """Sizes of rows before, between and after a network's layers."""
    return [features, *[int(setting["hidden"])] * (int(setting["layers"]) - 1), classes]


def at_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Some rows of x, or all."""
    return x if rows is None else x.index_select(0, rows)
