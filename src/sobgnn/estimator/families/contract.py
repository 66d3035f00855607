"""The contracts of a family, which is one way to learn from the labels, and of a fitted family."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem


class FittedFamily(Protocol):
    """A fitted family.

    A family that assumes more about the data than others has a number ``trust`` in (0, 1], which multiplies its prior
    in the blend.
    """

    def probabilities(self) -> Tensor:
        """Class probabilities of every point, without each fold's labels and last with all: [folds + 1, N, C]."""

    def predict(self, new: NewPoints) -> Tensor:
        """Class probabilities of new points, learned from all labels: [M, C]."""

    def arrays(self) -> dict[str, Tensor]:
        """Everything that :meth:`predict` needs, by name; :meth:`Family.restore` takes it back."""


@dataclass(frozen=True, kw_only=True)
class KeptSignals:
    """A fitted family that keeps the training points' probabilities after a fit, but not in a saved model.

    Args:
        signals: What :meth:`probabilities` returns; ``None`` for a family that was restored.
    """

    signals: Tensor | None = None

    def probabilities(self) -> Tensor:
        """[folds + 1, N, C]."""
        if self.signals is None:
            raise ValueError("A restored family predicts only new points: training probabilities are not saved.")
        return self.signals


class Family(Protocol):
    """One way to learn from the labels.

    Attributes:
        name: Its name in ``families=`` and in the report; ``describe()`` prints a longer title.
        on_graph: Whether it learns on a graph, and so on each of several graphs separately.
        given_only: Whether it learns only on a given graph, not on the neighbor graph.
        smooths: Whether its probabilities may be smoothed over a graph; diffused labels are smooth already.
    """

    name: ClassVar[str]
    on_graph: ClassVar[bool]
    given_only: ClassVar[bool]
    smooths: ClassVar[bool]

    def fit(self, problem: Problem, labels: Labels) -> FittedFamily:
        """Learn without each fold in turn, and from all labels."""

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedFamily:
        """Rebuild a fitted family from :meth:`FittedFamily.arrays`; it predicts new points, and has no probabilities.

        Raises:
            ValueError: The arrays contradict each other or the problem.
        """


@runtime_checkable
class Refits(Protocol):
    """A family that can learn from a few more or changed labels in much less time than a fit."""

    def refit(self, problem: Problem, labels: Labels, before: Any) -> FittedFamily:
        """Learn from all labels, none held out, starting from ``before``, the result of a fit or an earlier refit."""


@runtime_checkable
class Sometimes(Protocol):
    """A family that is used by default only under some conditions."""

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether the family is worth its cost for this problem."""
