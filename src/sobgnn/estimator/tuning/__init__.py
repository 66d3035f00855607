"""Search for settings on held-out labels, in one process or many.

Names are imported when they are first used, so that the command's help does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sobgnn.estimator.tuning.result import Trial, TuningResult
    from sobgnn.estimator.tuning.search import TuningProgress, tune
    from sobgnn.estimator.tuning.space import SPACE, Between, OneOf, Space
    from sobgnn.estimator.tuning.storage import Pulse

__all__ = [
    "SPACE",
    "Between",
    "OneOf",
    "Pulse",
    "Space",
    "Trial",
    "TuningProgress",
    "TuningResult",
    "tune",
]

_HOME = {
    "SPACE": "space",
    "Between": "space",
    "OneOf": "space",
    "Pulse": "storage",
    "Space": "space",
    "Trial": "result",
    "TuningProgress": "search",
    "TuningResult": "result",
    "tune": "search",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sobgnn.estimator.tuning' has no attribute {name!r}")
    return getattr(importlib.import_module(f"sobgnn.estimator.tuning.{_HOME[name]}"), name)
