"""The contract of a family, one way to learn from the labels, and of a fitted one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from sobgnn.estimator.labels import Labels
from sobgnn.estimator.problem import NewPoints, Problem


class FittedFamily(Protocol):
    """A family that has learned.

    One that needs more of the data than others has a number ``trust``, above 0 and up to 1, by which its prior in the
    blend is multiplied.
    """

    def probabilities(self) -> Tensor:
        """Class probabilities of every point without each fold's labels, and at last with all: [folds + 1, N, C]."""

    def predict(self, new: NewPoints) -> Tensor:
        """Class probabilities of new points by what was learned from all labels: [M, C]."""

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
            raise ValueError("A restored family predicts new points; the training points' probabilities were not kept.")
        return self.signals


class Family(Protocol):
    """One way to learn from the labels.

    Attributes:
        name: What ``families=``, ``describe()`` and the report call it.
        on_graph: Whether it learns on a graph, and so on each of several graphs separately.
        given_only: Whether it learns on a graph that was given only, and not on one of neighbors.
        smooths: Whether its probabilities may be smoothed over a graph; diffused labels are smooth already.
    """

    name: ClassVar[str]
    on_graph: ClassVar[bool]
    given_only: ClassVar[bool]
    smooths: ClassVar[bool]

    def fit(self, problem: Problem, labels: Labels) -> FittedFamily:
        """Learn without each fold in turn, and from all labels."""

    def restore(self, arrays: Mapping[str, Tensor], problem: Problem) -> FittedFamily:
        """The fitted family whose :meth:`FittedFamily.arrays` these are; it predicts, and has no probabilities.

        Raises:
            ValueError: The arrays contradict each other or the problem.
        """


@runtime_checkable
class Refits(Protocol):
    """A family that learns from a few labels more, or other ones, for much less than a fit takes."""

    def refit(self, problem: Problem, labels: Labels, before: Any) -> FittedFamily:
        """Learn from all labels, none held out, starting from what :meth:`Family.fit` or this gave ``before``."""


@runtime_checkable
class Sometimes(Protocol):
    """A family that takes part by default under some conditions only."""

    @staticmethod
    def worth_it(problem: Problem, labels: Labels) -> bool:
        """Whether it gains more than it costs there."""
