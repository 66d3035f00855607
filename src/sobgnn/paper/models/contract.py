"""What a model of the table is: a network that is trained, or a predictor that is given points and some labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from sobgnn.paper.models.source import Source
from sobgnn.paper.models.space import Choice, Setting, Space, Uniform

# What the search spaces of networks share: those of the authors' later code.
COMMON: dict[str, Uniform | Choice] = {
    "lr": Uniform(0.005, 0.02),
    "weight_decay": Uniform(1e-4, 1e-3),
    "dropout": Uniform(0.3, 0.7),
}
HIDDEN = Choice((16, 32, 64))
DEEP: dict[str, Uniform | Choice] = {**COMMON, "hidden": HIDDEN, "layers": Choice((2, 3, 4, 5))}


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

    def shape(self, setting: Setting) -> tuple[tuple[str, Any], ...]:
        """What members of one batch must have in common."""
        return tuple(sorted((name, value) for name, value in setting.items() if name not in self.own_rates))


@dataclass(frozen=True)
class Predictor:
    """A model that predicts all labels from some.

    Args:
        predict: (source, y [N] with -1 for unknown, setting, seed) -> a label for every point [N].
        space: What a random search draws from; empty where nothing is searched.
        sizes: Whether it also gets the class frequencies, as ``sizes`` [C], which no other model does.
        width: Approximate cost of a prediction, in floats per node of a network's training.
    """

    predict: Callable[..., npt.NDArray[Any]]
    space: Space = field(default_factory=dict)
    sizes: bool = False
    width: int = 300


def layer_sizes(features: int, classes: int, setting: Setting) -> list[int]:
    """Sizes of rows before, between and after a network's layers."""
    return [features, *[int(setting["hidden"])] * (int(setting["layers"]) - 1), classes]


def at_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Some rows of x, or all."""
    return x if rows is None else x.index_select(0, rows)


def features_of(source: Source) -> npt.NDArray[np.float32]:
    """The features as an array, for models that are not torch's."""
    return np.asarray(source.X.cpu().numpy())
