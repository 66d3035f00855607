from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sobgnn import Graph, knn_graph
from sobgnn.paper import data as datafiles
from sobgnn.paper.data import Prepared

N, F = 40, 6  # of the graph and the features


@pytest.fixture
def graph() -> Graph:
    X = torch.randn(N - 1, F, generator=torch.Generator().manual_seed(0))
    return Graph.from_edges(*knn_graph(X, k=4).edges(), num_nodes=N)  # the last node is isolated


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, F, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def toy() -> Prepared:
    """Three clouds of 50 points that overlap."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 50)
    X = (rng.normal(size=(150, 5)) + 1.2 * np.eye(3, 5)[y]).astype(np.float32)
    return Prepared("toy", X, y.astype(np.int64), knn_graph(X, k=8))


@pytest.fixture
def folder(toy: Prepared, tmp_path: Path) -> Path:
    """A folder of prepared data that has toy."""
    datafiles.save(toy, tmp_path / "data")
    return tmp_path / "data"
