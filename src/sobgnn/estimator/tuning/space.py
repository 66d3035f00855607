"""The search space: a range or a choice for each parameter of the estimator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``, both included; integers if ``low`` is an integer."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw a value in a trial."""
        if isinstance(self.low, int):
            return trial.suggest_int(name, self.low, int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class OneOf:
    """One of the given values: numbers, strings, booleans or ``None``."""

    choices: tuple[Any, ...]

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return value in self.choices

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw a value in a trial."""
        return trial.suggest_categorical(name, self.choices)


Space = Mapping[str, Between | OneOf]

# Around the ranges of the paper's authors (hidden 16-64, dropout 0.3-0.7, lr 0.005-0.02, weight decay 1e-4-1e-3,
# α 1-6, ε 0.5-2), and the graph itself.
SPACE: Space = {
    "k": Between(5, 30, log=True),
    "bandwidth": OneOf(("mean", "local")),
    "alpha": Between(1, 6),
    "epsilon": Between(0.25, 4.0, log=True),
    "hidden_channels": OneOf((16, 32, 64)),
    "dropout": Between(0.1, 0.8),
    "lr": Between(0.005, 0.05, log=True),
    "weight_decay": Between(1e-5, 1e-2, log=True),
}
