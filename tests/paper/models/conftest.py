"""A small graph and features, for every model."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sobgnn import Graph, knn_graph

N, F = 40, 6


@pytest.fixture
def graph() -> Graph:
    X = torch.randn(N - 1, F, generator=torch.Generator().manual_seed(0))
    return Graph.from_edges(*knn_graph(X, k=4).edges(), num_nodes=N)  # the last node is isolated


@pytest.fixture
def x() -> Tensor:
    return torch.randn(N, F, generator=torch.Generator().manual_seed(1))
