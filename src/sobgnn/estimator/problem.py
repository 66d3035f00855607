"""The problem that families learn from: points, columns, views and settings, built once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.settings import Networks
from sobgnn.estimator.smoothing import Spread, strongest
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.operators.attached import Attachment

# The names of the graphs: the nearest-neighbor graph, and the given graph.
NEIGHBORS, GIVEN = "neighbors", "given"
# There are many numeric columns if at least this number, and this share of the columns that vary, have more than two
# values. Otherwise, unless this share of them has more than this number of values, columns are mostly categories.
_COLUMNS, _SHARE, _VALUES = 32, 0.75, 10
# Number of rows on which values are counted.
_ROWS = 1000


class View:
    """A graph of the points as families use it.

    Args:
        graph: N nodes.
        operators: Its sparse Sobolev operators.
        strongest: Number of edges that each point keeps for diffusing labels; ``None``: all.
        reweighted: Whether the graph's weights were all 1 and have been replaced by those of its normalized adjacency;
            new points' weights then are too.
    """

    def __init__(
        self,
        graph: Graph,
        operators: SobolevOperators,
        strongest: int | None,
        reweighted: bool = False,
    ) -> None:
        self.graph, self.operators, self.strongest = graph, operators, strongest
        self.reweighted = reweighted
        self._propagated: list[Tensor] = []

    def propagated(self, points: Tensor, hops: int) -> list[Tensor]:
        """The points [N, D] and every order of them after each hop, [N, α, D] each; cached for the same points."""
        if not self._propagated or self._propagated[0] is not points:
            self._propagated = [points]
        for hop in range(len(self._propagated) - 1, hops):
            propagate = self.operators.propagate_each if hop else self.operators.propagate
            self._propagated.append(propagate(self._propagated[-1]))
        return self._propagated[: hops + 1]

    @cached_property
    def spread(self) -> Spread:
        """The operator that smooths probabilities."""
        return Spread(self.operators.graph)

    @cached_property
    def near(self) -> Spread:
        """The operator that diffuses labels, over the strongest edges."""
        if self.strongest is None:
            return self.spread
        return Spread(strongest(self.graph, self.strongest).to(self.operators.device))


@dataclass(frozen=True)
class Problem:
    """Points and their graphs.

    Args:
        points: float32 [N, D], the networks' input.
        columns: float32 [N, F], for trees and kernels: the original columns, or the points if there are too many
            columns.
        views: Graphs by name: ``"neighbors"``, ``"given"``.
        classes: C.
        networks: Settings of the networks.
        rows: Raw X [N, F], dense or sparse, for the families on a given graph.
        seed: Seed from which each family derives its own.
        tell: Called with the stage, steps done, maximum steps and scores; returns True to request a stop.
    """

    points: Tensor
    columns: npt.NDArray[np.float32]
    views: dict[str, View]
    classes: int
    networks: Networks = field(default_factory=Networks)
    rows: Any = None
    seed: int = 0
    tell: Callable[..., bool] = lambda *_, **__: False

    @property
    def count(self) -> int:
        """Number of points N."""
        return len(self.points)

    @property
    def device(self) -> torch.device:
        """Device of the points."""
        return self.points.device

    @cached_property
    def many_numbers(self) -> bool:
        """Whether there are many numeric columns, as in pictures, sounds, sensor data and embeddings."""
        values = self._values
        return int((values > 2).sum()) >= max(_COLUMNS, _SHARE * int((values > 1).sum()))

    @cached_property
    def mostly_categories(self) -> bool:
        """Whether too few columns are measurements for distances to be informative.

        Distances then mix columns that separate the classes with others that do not, so neighbors share a class less
        often.
        """
        values = self._values
        # With few rows, no column has many values.
        least = min(_VALUES, self.count // 2)
        return not self.many_numbers and int((values > least).sum()) < _SHARE * int((values > 1).sum())

    @cached_property
    def _values(self) -> npt.NDArray[np.int64]:
        """Number of distinct values of each column, [F]."""
        # Random rows: every n-th row could have only a few of the hours or weekdays.
        some = self.columns[np.random.default_rng(0).permutation(self.count)[:_ROWS]]
        return np.asarray(1 + (np.diff(np.sort(some, axis=0), axis=0) > 0).sum(axis=0))

    def generator(self, name: str) -> np.random.Generator:
        """A family's own random numbers: they do not depend on which other families take part."""
        return np.random.default_rng([self.seed, *name.encode()])


@dataclass(frozen=True)
class NewPoints:
    """New points, in the forms that families read.

    Args:
        points: float32 [M, D], scaled like the training points.
        columns: float32 [M, F], for trees and kernels.
        joined: Their edges to the training points, by graph.
        nodes: float32 [N, D], the training points.
        rows: Raw X [M, F].
    """

    points: Tensor
    columns: npt.NDArray[np.float32]
    joined: dict[str, Attachment]
    nodes: Tensor
    rows: Any = None
