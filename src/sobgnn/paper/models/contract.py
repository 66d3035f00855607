"""What a model of the table is, a network that is trained or a predictor that is given some labels; what both read."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from sobgnn import propagation
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.propagation import SobolevCSR

Value = int | float | str | bool
Setting = Mapping[str, Value]
Labels = npt.NDArray[np.int64]
Kind = Literal["gcn", "adjacency", "chebyshev", "cluster"]

# Every published setting follows from this number, the trial's number and the parameter's name.
_SEED = 20221
# Approximate maximum number of floats of a batch's members in a step; it bounds memory on the device. It is part of the
# protocol, because the draws of dropout depend on which members share a batch.
_BATCH_FLOATS = 1_500_000_000


Axis = Callable[[float], Value]  # u of [0, 1) -> a parameter's value
Space = Mapping[str, Axis]


def uniform(low: float, high: float, *, log: bool = False) -> Axis:
    """uniform on [low, high], or log-uniform; to 6 significant digits."""

    def draw(u: float) -> Value:
        value = math.exp(math.log(low) + u * math.log(high / low)) if log else low + u * (high - low)
        return float(f"{value:.6g}")

    return draw


def choice(*values: Value) -> Axis:
    """One of several values, all equally likely."""
    return lambda u: values[int(u * len(values))]


# What the search spaces of networks share: those of the authors' later code.
COMMON: Space = {"lr": uniform(0.005, 0.02), "weight_decay": uniform(1e-4, 1e-3), "dropout": uniform(0.3, 0.7)}
HIDDEN = choice(16, 32, 64)
DEEP: Space = {**COMMON, "hidden": HIDDEN, "layers": choice(2, 3, 4, 5)}


def draw_settings(space: Space, trials: int) -> list[dict[str, Value]]:
    """The first ``trials`` settings of a space.

    A parameter's value in a trial depends only on its name and the trial's number: models that share a parameter are
    tried at the same values of it, and fewer trials are a prefix of more.
    """
    return [
        {name: draw(np.random.default_rng([_SEED, trial, zlib.crc32(name.encode())]).random())
         for name, draw in space.items()}
        for trial in range(trials)
    ]  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """A fixed sparse matrix S [R, N] of a graph, the only order of its CSR; ``index`` are its rows, ``None`` all N."""

    csr: SobolevCSR
    index: Tensor | None = None

    def __call__(self, H: Tensor) -> Tensor:
        """S H, [R, h] of H [N, h]."""
        return propagation.propagate(self.csr, H)[:, 0]


class Source:
    """Features and a graph, and what models derive from them without learning.

    Args:
        graph: The graph of N points.
        X: float32 [N, F], on the graph's device.

    Attributes:
        sobolev: (alpha, epsilon) -> the Sobolev operators; the last ones are kept.
    """

    def __init__(self, graph: Graph, X: Tensor) -> None:
        self.graph, self.X = graph, X
        self.sobolev: Callable[[int, float], SobolevOperators] = lru_cache(1)(partial(SobolevOperators, graph))
        self._kept: dict[Any, Any] = {}

    def keep(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """``make(self, *arguments)``, computed once; tensors among the arguments are told apart by identity."""
        key = (make, *arguments)
        if key not in self._kept:
            self._kept[key] = make(self, *arguments)
        return self._kept[key]

    def operator(self, kind: Kind, index: Tensor | None = None) -> Operator:
        r"""A fixed matrix, or its rows ``index``.

        ``"gcn"``: :math:`D^{-1/2}(A + I)D^{-1/2}`; ``"adjacency"``: :math:`D^{-1/2} A D^{-1/2}`, and ``"chebyshev"``
        minus that; ``"cluster"``: :math:`D^{-1}(A + I)` without edge weights, as ClusterGCN defines it.
        """
        operator: Operator = self.keep(_operator, kind, index)
        return operator

    def power(self, kind: Kind, k: int) -> Tensor:
        """S^k X, [N, F]."""
        power: Tensor = self.keep(_power, kind, k) if k else self.X
        return power


def _operator(source: Source, kind: Kind, index: Tensor | None) -> Operator:
    graph = source.graph
    if kind == "cluster":
        graph = Graph(graph.indptr, graph.indices, torch.ones_like(graph.weight))
    whole = SobolevOperators(graph, 1, 1.0 if kind in ("gcn", "cluster") else 0.0)
    csr = (whole if index is None else whole.rows(index)).csr()
    if kind == "chebyshev":
        csr = csr._replace(row_scale=csr.row_scale * csr.row_scale.new_tensor([1, -1]))
    elif kind == "cluster":  # all of D on the left
        csr = csr._replace(row_scale=csr.row_scale.square(), column_scale=torch.ones_like(csr.column_scale))
    return Operator(csr, index)


def _power(source: Source, kind: Kind, k: int) -> Tensor:
    return source.operator(kind)(source.power(kind, k - 1))


def at_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Some rows of x, or all."""
    return x if rows is None else x.index_select(0, rows)


@dataclass(frozen=True)
class Network:
    """A network: many members of it train as one batch.

    Args:
        build: (features, classes, setting) -> a module for one member, with ``reset_parameters``.
        inputs: (source, setting, rows) -> the arguments of its forward by name, for logits at ``rows`` (``None``: all
            nodes).
        space: What a random search draws from.
        width: Approximate number of floats that a member keeps per node in a step; determines batch sizes.
        own_rates: Setting entries in which members of one batch may differ: all others determine shapes or inputs.
        headed: Whether the table also has it with the paper's head, the setting ``head="paper"``.
    """

    build: Callable[[int, int, Setting], nn.Module]
    inputs: Callable[[Source, Setting, Tensor | None], dict[str, Any]]
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
