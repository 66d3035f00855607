"""The contract of a family, which is one way to learn from the labels, and of what it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, View

# Which graphs a family learns on, each separately.
Graphs = Literal["none", "any", "given"]


class FittedFamily:
    """What a family learned: a frozen dataclass whose fields are what a saved model holds of it."""

    def predict(self, view: View) -> Tensor:
        """Class probabilities of rows, training points or new ones, learned from all labels: [M, C]."""
        raise NotImplementedError

    def check(self, sizes: Mapping[str, int], points: Points) -> None:
        """Raise ValueError if it does not fit the points (:func:`~sobgnn.estimator.state.check_parts`)."""
        if getattr(self, "graph", None) not in (None, *points.graphs):
            raise ValueError("its family learns on a graph that is missing")


@dataclass(frozen=True)
class Learned:
    """The result of a fit.

    Attributes:
        fitted: Predicts views.
        out_of_fold: Class probabilities of the evaluated labels, each learned without its fold: float64 [J, C].
        prior_factor: In (0, 1], multiplies the family's prior in the blend; below 1 if the data do not look as the
            family assumes.
    """

    fitted: FittedFamily
    out_of_fold: npt.NDArray[np.float64]
    prior_factor: float = 1.0


@dataclass(frozen=True)
class Family:
    """One way to learn from the labels.

    Attributes:
        name: Its name in ``families=``.
        title, explained: What people read of it: its name, and how it decides, for readers who know none of them.
        graphs: Whether it learns on no graph, on any, or only on a given one, not on the neighbor graph.
        worth_it: Whether "auto" means it too for some points and labels; ``None``: always.
        graph: The name of the graph that it learns on, if it learns on one.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    explained: ClassVar[str]
    graphs: ClassVar[Graphs] = "none"
    worth_it: ClassVar[Any] = None  # (points, labels) -> bool
    graph: Any = None

    def fit(self, points: Points, labels: Labels, before: Any = None) -> Learned:
        """Learn without each fold in turn, and from all labels.

        ``before`` is what an earlier fit of nearly the same labels learned, if nothing is held out this time; families
        that can start from it take much less time.
        """
        raise NotImplementedError
