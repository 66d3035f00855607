"""The problem that families learn: points, columns, views and settings, made once."""

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
from sobgnn.runtime.ranks import Ranks

# The names of the graphs: of nearest neighbors, and one that came with the points.
NEIGHBORS, GIVEN = "neighbors", "given"
# Columns of numbers are many from this number on with more than two values, which are at least this share of those that
# vary. Of others this share must hold more than so many values, or they are mostly categories.
_COLUMNS, _SHARE, _VALUES = 32, 0.75, 10
# Rows that values are counted on.
_ROWS = 1000


class View:
    """A graph of the points as families use it.

    Args:
        graph: N nodes.
        operators: Its sparse Sobolev operators.
        strongest: Edges that each point keeps for diffusing labels; ``None``: all.
        ranks: Processes that share the work.
        reweighted: The graph's weights were all 1 and are now those of its normalized adjacency; so are new points'.
    """

    def __init__(
        self,
        graph: Graph,
        operators: SobolevOperators,
        strongest: int | None,
        ranks: Ranks,
        reweighted: bool = False,
    ) -> None:
        self.graph, self.operators, self.strongest, self.ranks = graph, operators, strongest, ranks
        self.reweighted = reweighted
        self._propagated: list[Tensor] = []

    def propagated(self, points: Tensor, hops: int) -> list[Tensor]:
        """The points [N, D] and every order of them after each hop, [N, α, D] each; kept for the same points."""
        if not self._propagated or self._propagated[0] is not points:
            self._propagated = [points]
        for hop in range(len(self._propagated) - 1, hops):
            propagate = self.operators.propagate_each if hop else self.operators.propagate
            self._propagated.append(propagate(self._propagated[-1]))
        return self._propagated[: hops + 1]

    @cached_property
    def spread(self) -> Spread:
        """What probabilities are smoothed by."""
        return Spread(self.operators.graph, self.ranks)

    @cached_property
    def near(self) -> Spread:
        """What labels diffuse over: the strongest edges."""
        if self.strongest is None:
            return self.spread
        return Spread(strongest(self.graph, self.strongest).to(self.operators.device), self.ranks)


@dataclass(frozen=True)
class Problem:
    """Points and their graphs.

    Args:
        points: float32 [N, D], scaled as networks read them.
        columns: float32 [N, F], as trees read them: the columns as they came, or the points where these are too wide.
        views: Graphs by name: ``"neighbors"``, ``"given"``.
        classes: C.
        networks: Settings of the networks.
        rows: [N, F], dense or sparse, as they came: what is read where a graph was given.
        seed: From which each family draws its own.
        ranks: Processes that share the work.
        tell: Called with the stage, steps done, steps at most and scores; True asks to stop.
    """

    points: Tensor
    columns: npt.NDArray[np.float32]
    views: dict[str, View]
    classes: int
    networks: Networks = field(default_factory=Networks)
    rows: Any = None
    seed: int = 0
    ranks: Ranks = field(default_factory=Ranks)
    tell: Callable[..., bool] = lambda *_, **__: False

    @property
    def count(self) -> int:
        """N."""
        return len(self.points)

    @property
    def device(self) -> torch.device:
        """Where the points are."""
        return self.points.device

    @cached_property
    def many_numbers(self) -> bool:
        """Whether columns of numbers are many, as those of pictures, sounds, sensors and embeddings are."""
        values = self._values
        return int((values > 2).sum()) >= max(_COLUMNS, _SHARE * int((values > 1).sum()))

    @cached_property
    def mostly_categories(self) -> bool:
        """Whether too few columns are measured numbers for distances to tell much.

        They mix columns that tell the class with others that do not, so neighbors are of one class less often.
        """
        values = self._values
        # Of a few rows no column has many values.
        least = min(_VALUES, self.count // 2)
        return not self.many_numbers and int((values > least).sum()) < _SHARE * int((values > 1).sum())

    @cached_property
    def _values(self) -> npt.NDArray[np.int64]:
        """Different values of each column, [F]."""
        # At random: every n-th row of hours or weekdays would have a few of them only.
        some = self.columns[np.random.default_rng(0).permutation(self.count)[:_ROWS]]
        return np.asarray(1 + (np.diff(np.sort(some, axis=0), axis=0) > 0).sum(axis=0))

    def generator(self, name: str) -> np.random.Generator:
        """A family's own random numbers: they do not depend on which other families take part."""
        return np.random.default_rng([self.seed, *name.encode()])


@dataclass(frozen=True)
class NewPoints:
    """New points as families predict them.

    Args:
        points: float32 [M, D], scaled like the training points.
        columns: float32 [M, F], as trees read them.
        joined: How they are joined to the training points, by graph.
        nodes: float32 [N, D], the training points.
        rows: [M, F], as they came.
    """

    points: Tensor
    columns: npt.NDArray[np.float32]
    joined: dict[str, Attachment]
    nodes: Tensor
    rows: Any = None
