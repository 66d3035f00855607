"""The space that a random search draws from."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

Value = int | float | str | bool
Setting = Mapping[str, Value]

# Every published setting follows from this number, the trial's number and the parameter's name.
_SEED = 20221


@dataclass(frozen=True)
class Uniform:
    """Uniform on [low, high], or log-uniform if ``log``."""

    low: float
    high: float
    log: bool = False

    def draw(self, u: float) -> Value:
        """The value at ``u`` of [0, 1), to 6 significant digits."""
        if self.log:
            value = math.exp(math.log(self.low) + u * math.log(self.high / self.low))
        else:
            value = self.low + u * (self.high - self.low)
        return float(f"{value:.6g}")


@dataclass(frozen=True)
class Choice:
    """One of several values, all equally likely."""

    values: Sequence[Value]

    def draw(self, u: float) -> Value:
        """The value at ``u`` of [0, 1)."""
        return self.values[int(u * len(self.values))]


Space = Mapping[str, Uniform | Choice]


def draw_settings(space: Space, trials: int) -> list[dict[str, Value]]:
    """The first ``trials`` settings of a space.

    A parameter's value in a trial depends only on its name and the trial's number: models that share a parameter are
    tried at the same values of it, and fewer trials are a prefix of more.
    """
    return [
        {name: axis.draw(np.random.default_rng([_SEED, trial, zlib.crc32(name.encode())]).random())
         for name, axis in space.items()}
        for trial in range(trials)
    ]  # fmt: skip
