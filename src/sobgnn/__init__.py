"""Sparse Sobolev graph neural networks: labels for many points from a few.

Names are imported when they are first used, so that ``import sobgnn`` and ``sobgnn --help`` do not wait for torch.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from sobgnn import sharded, sobolev, spectrum
    from sobgnn.app.labeling.launch import label
    from sobgnn.estimator.classifier import SobolevClassifier
    from sobgnn.graphs.graph import Graph
    from sobgnn.graphs.knn import graph_from_neighbors, knn_graph
    from sobgnn.graphs.reweight import reweight
    from sobgnn.nn.conv import SobolevConv
    from sobgnn.nn.features import SobolevFeatures
    from sobgnn.nn.model import SSobGNN
    from sobgnn.operators.sobolev import SobolevOperators
    from sobgnn.tables.encoder import TableEncoder

__version__ = "0.1.0"

__all__ = [
    "Graph",
    "SSobGNN",
    "SobolevClassifier",
    "SobolevConv",
    "SobolevFeatures",
    "SobolevOperators",
    "TableEncoder",
    "graph_from_neighbors",
    "knn_graph",
    "label",
    "reweight",
    "sharded",
    "sobolev",
    "spectrum",
]

_HOME = {
    "Graph": "graphs.graph",
    "SSobGNN": "nn.model",
    "SobolevClassifier": "estimator.classifier",
    "SobolevConv": "nn.conv",
    "SobolevFeatures": "nn.features",
    "SobolevOperators": "operators.sobolev",
    "TableEncoder": "tables.encoder",
    "graph_from_neighbors": "graphs.knn",
    "knn_graph": "graphs.knn",
    "label": "app.labeling",
    "reweight": "graphs.reweight",
}


def __getattr__(name: str) -> _Any:
    if name in _HOME:
        value = getattr(_importlib.import_module(f"sobgnn.{_HOME[name]}"), name)
    else:
        try:
            value = _importlib.import_module(f"sobgnn.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"sobgnn.{name}":
                raise
            raise AttributeError(f"module 'sobgnn' has no attribute {name!r}") from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
