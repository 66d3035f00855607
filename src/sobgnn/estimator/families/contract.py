"""The contracts of a family, which is one way to learn from the labels, and of a fitted family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import Points, Sizes, View

# Which graphs a family learns on, each separately.
Graphs = Literal["none", "any", "given"]
# Larger weights of a saved model are refused: their products overflow single precision.
LARGEST_WEIGHT = 1e9


class FittedFamily(Protocol):
    """A fitted family: a frozen dataclass whose fields are what a saved model holds of it."""

    def predict(self, view: View) -> Tensor:
        """Class probabilities of rows, training points or new ones, learned from all labels: [M, C]."""

    def check(self, sizes: Sizes) -> None:
        """Raise ValueError if the fields, which may be those of a file, are impossible or do not fit the points."""


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


class Family(Protocol):
    """One way to learn from the labels.

    Attributes:
        name: Its name in ``families=``.
        graphs: Whether it learns on no graph, on any, or only on a given one, not on the neighbor graph.
    """

    name: ClassVar[str]
    graphs: ClassVar[Graphs]

    def fit(self, points: Points, labels: Labels) -> Learned:
        """Learn without each fold in turn, and from all labels."""


@runtime_checkable
class Refits(Protocol):
    """A family that can learn from a few more or changed labels in much less time than a fit."""

    def refit(self, points: Points, labels: Labels, before: Any) -> Learned:
        """Learn from all labels, none held out, starting from ``before``, fitted by a fit or an earlier refit."""


@runtime_checkable
class Sometimes(Protocol):
    """A family that is used by default only under some conditions."""

    @staticmethod
    def worth_it(points: Points, labels: Labels) -> bool:
        """Whether the family is worth its cost for these points and labels."""
