"""Points that a search is tried on."""

from __future__ import annotations

from typing import Any

import numpy as np


def clusters(labels: int = 6) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    true = np.repeat([0, 1, 2], 30)
    X = generator.normal(size=(90, 5)) + 2 * np.eye(3, 5)[true]
    y = np.full(90, -1)
    for code in range(3):
        y[np.flatnonzero(true == code)[:labels]] = code
    return X, y
