"""Points as families read them: scaled columns, original columns, and graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.features import FARTHEST
from sobgnn.estimator.spreading import Smoother, strongest
from sobgnn.estimator.state import NOT_SAVED, shaped
from sobgnn.estimator.validation import Networks
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.operators.new_points import Attachment

# The names of the graphs: the nearest-neighbor graph, and the given graph.
NEIGHBORS, GIVEN = "neighbors", "given"
# There are many numeric columns if at least this number, and this share of the columns that vary, have more than two
# values. Otherwise, unless this share of them has more than this number of values, columns are mostly categories.
_COLUMNS, _SHARE, _VALUES = 32, 0.75, 10
# Number of rows on which values are counted.
_ROWS = 1000
# Rows whose orders are read at once: on a GPU, enough to keep it busy.
_ROWS_PER_BLOCK = {"cpu": 1 << 13, "cuda": 1 << 17}


@dataclass(frozen=True)
class PointGraph:
    """A graph of the training points as families use it.

    Args:
        strongest: Number of edges that each point keeps for diffusing labels; ``None``: all.
        reweighted: Whether the graph's weights were all 1 and have been replaced by those of its normalized adjacency;
            new points' weights then are too.
    """

    graph: Graph
    alpha: int
    epsilon: float
    strongest: int | None = None
    reweighted: bool = False

    @cached_property
    def operators(self) -> SobolevOperators:
        """Its sparse Sobolev operators."""
        with warnings.catch_warnings():
            # Points with few distinct positions, such as integers in one column, have edges of equal weight: no user
            # can change that.
            warnings.filterwarnings("ignore", message="All edge weights are 1")
            return SobolevOperators(self.graph, self.alpha, self.epsilon)

    @cached_property
    def smoother(self) -> Smoother:
        """The operator that spreads over all edges."""
        return Smoother(self.operators.graph)

    @cached_property
    def strong_smoother(self) -> Smoother:
        """The operator that diffuses labels, over the strongest edges."""
        if self.strongest is None:
            return self.smoother
        return Smoother(strongest(self.graph, self.strongest).to(self.graph.device))

    def propagated(self, points: Tensor, hops: int) -> list[Tensor]:
        """The points [N, D] and every order of them after each hop, [N, α, D] each; cached for the same points."""
        cache = self._cache
        if not cache or cache[0] is not points:
            cache[:] = [points]
        for hop in range(len(cache) - 1, hops):
            propagate = self.operators.propagate_each if hop else self.operators.propagate
            cache.append(propagate(cache[-1]))
        return cache[: hops + 1]

    @cached_property
    def _cache(self) -> list[Tensor]:
        return []

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Raise ValueError unless the graph is one of the points, stays in bounds, and has the networks' orders."""
        indptr, indices, weight, count = self.graph.indptr, self.graph.indices, self.graph.weight, sizes["points"]
        good = (
            indptr.dtype == torch.int64
            and indices.dtype in (torch.int32, torch.int64)
            and weight.dtype == torch.float32
            and indptr.shape == (count + 1,)
            and indices.shape == weight.shape == (indices.numel(),)
            and int(indptr[0]) == 0
            and int(indptr[-1]) == indices.numel()
            and bool((indptr.diff() >= 0).all())
            and (not indices.numel() or (int(indices.min()) >= 0 and int(indices.max()) < count))
            and bool((weight > 0).all())
            and (self.strongest is None or self.strongest > 0)
            and (self.alpha, self.epsilon) == (points.networks.alpha, points.networks.epsilon)
        )
        if not good:
            raise ValueError("the graph's arrays contradict each other, or it has other orders than the networks")


class View(Protocol):
    """Rows that families read and predict: the training points themselves, or new points joined to them."""

    @property
    def points(self) -> Tensor:
        """float32 [M, D], the networks' input."""

    @property
    def columns(self) -> Any:
        """float32 [M, F'], for trees and kernels."""

    @property
    def rows(self) -> Any:
        """Raw X [M, F]; ``None`` for training points if no family reads it."""

    @property
    def training(self) -> Points:
        """The training points."""

    def joined(self, graph: str) -> Attachment | None:
        """The rows' edges to the training points in a graph; ``None`` if they are the training points."""

    def blocks(self, graph: str, hops: int, rows: Tensor) -> Tensor:
        """The features of some rows, and every order of them after each hop: [1 + hops · α, R, D]."""

    def row_blocks(self) -> Iterator[Tensor]:
        """All rows, in blocks that fit in memory with their orders."""


@dataclass(frozen=True)
class Points:
    """The training points and their graphs; they are a :class:`View`.

    Args:
        points: float32 [N, D], the networks' input.
        graphs: Graphs by name: ``"neighbors"``, ``"given"``.
        classes: C.
        networks: Settings of the networks.
        columns: float32 [N, F'], for trees and kernels: the original columns, or the points if there are too many
            columns. Like the rows, it is not saved: new points need only their own.
        rows: Raw X [N, F], dense or sparse, for the families on a given graph and for classifiers of others.
        seed: Seed from which each family derives its own.
        report: Called with the stage, steps done, maximum steps and scores; returns True to request a stop.
    """

    points: Tensor = field(metadata=shaped("points", "width", most=FARTHEST))
    graphs: dict[str, PointGraph]
    classes: int
    networks: Networks = field(default_factory=Networks)
    columns: Any = field(default=None, metadata=NOT_SAVED)
    rows: Any = field(default=None, metadata=NOT_SAVED)
    seed: int = field(default=0, metadata=NOT_SAVED)
    report: Callable[..., bool] = field(default=lambda *_, **__: False, metadata=NOT_SAVED)

    @property
    def training(self) -> Points:
        """These points."""
        return self

    def joined(self, graph: str) -> None:
        """``None``: these are the training points."""

    def blocks(self, graph: str, hops: int, rows: Tensor) -> Tensor:
        """Blocks [1 + hops · α, R, D] of :class:`View`."""
        X, own = self.points, self.graphs[graph]
        if hops == 1 and len(rows) < len(X):  # no copy of all orders of all points
            orders = [own.operators.rows(rows).propagate(X)]
        else:
            orders = [hop[rows] for hop in own.propagated(X, hops)[1:]]
        return torch.cat([X[rows].unsqueeze(0), *(hop.transpose(0, 1) for hop in orders)])

    def row_blocks(self) -> Iterator[Tensor]:
        """Blocks of consecutive rows."""
        size = _ROWS_PER_BLOCK.get(self.device.type, 1 << 14)
        for start in range(0, self.count, size):
            yield torch.arange(start, min(start + size, self.count), device=self.device)

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
        """Number of distinct values of each column, [F']."""
        # Random rows: every n-th row could have only a few of the hours or weekdays.
        some = self.columns[np.random.default_rng(0).permutation(self.count)[:_ROWS]]
        return np.asarray(1 + (np.diff(np.sort(some, axis=0), axis=0) > 0).sum(axis=0))

    def generator(self, name: str) -> np.random.Generator:
        """A family's own random numbers: they do not depend on which other families take part."""
        return np.random.default_rng([self.seed, *name.encode()])

    def __getstate__(self) -> dict[str, Any]:
        # A hook, often a local function, is of no use to a copy.
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "report"}


@dataclass(frozen=True)
class NewPoints:
    """New points beside the training points, as a :class:`View`.

    Args:
        edges: Their edges to the training points, by graph.
    """

    points: Tensor
    columns: npt.NDArray[np.float32]
    edges: dict[str, Attachment]
    training: Points
    rows: Any = None

    def joined(self, graph: str) -> Attachment:
        """Their edges to the training points in a graph."""
        return self.edges[graph]

    def blocks(self, graph: str, hops: int, rows: Tensor) -> Tensor:
        """Blocks [1 + hops · α, R, D] of :class:`View`; they read their neighbors, which stay unchanged."""
        joined, X = self.edges[graph], self.training.points
        orders = [joined.propagate(X, self.points)]
        for nodes in self.training.graphs[graph].propagated(X, hops - 1)[1:]:
            orders.append(joined.propagate_each(nodes, orders[-1]))
        return torch.cat([self.points[rows].unsqueeze(0), *(hop[rows].transpose(0, 1) for hop in orders)])

    def row_blocks(self) -> Iterator[Tensor]:
        """All rows at once: they are few."""
        yield torch.arange(len(self.points), device=self.points.device)
