from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sobgnn.graphs.knn import knn_graph
from sobgnn.paper.protocol import data as datafiles
from sobgnn.paper.protocol.data import Prepared


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
