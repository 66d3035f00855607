"""Sparse Sobolev graph neural networks: labels for many points from a few.

Names are imported when they are first used, so that ``import sobgnn`` and ``sobgnn --help`` do not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sobgnn import sobolev, spectrum
    from sobgnn.classifier import SobolevClassifier
    from sobgnn.conv import SobolevConv
    from sobgnn.graph import Graph
    from sobgnn.knn import graph_from_neighbors, knn_graph
    from sobgnn.model import SSobGNN
    from sobgnn.operators import SobolevOperators
    from sobgnn.weights import reweight

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "SSobGNN",
    "SobolevClassifier",
    "SobolevConv",
    "SobolevOperators",
    "graph_from_neighbors",
    "knn_graph",
    "reweight",
    "sobolev",
    "spectrum",
]

_HOME = {
    "Graph": "graph",
    "SSobGNN": "model",
    "SobolevClassifier": "classifier",
    "SobolevConv": "conv",
    "SobolevOperators": "operators",
    "graph_from_neighbors": "knn",
    "knn_graph": "knn",
    "reweight": "weights",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"sobgnn.{_HOME[name]}"), name)
    else:
        try:
            value = importlib.import_module(f"sobgnn.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"sobgnn.{name}":
                raise
            raise AttributeError(f"module 'sobgnn' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
