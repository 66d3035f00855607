from __future__ import annotations

import os
import tempfile

import numpy as np
import pytest
import torch

from sobgnn.graphs.graph import Graph

try:  # A GPU machine without it can still run the CUDA tests that draw no examples.
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:
    pass
else:
    # The same examples on every machine, with no clock in the verdict.
    settings.register_profile(
        "sobgnn",
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=60,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("sobgnn")


# Tests never use models or vectors of this account, nor the network.
os.environ |= dict.fromkeys(("HF_HOME", "SOBGNN_CACHE"), tempfile.mkdtemp(prefix="sobgnn-tests-"))
os.environ |= {"HF_HUB_OFFLINE": "1"}


def pytest_configure(config: pytest.Config) -> None:
    # Where no compiler was found the suite tests the portable backend, which says so once.
    config.addinivalue_line("filterwarnings", "ignore:.*The portable backend serves:UserWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        skip = pytest.mark.skip(reason="no CUDA device")
        for item in items:
            if "cuda" in item.keywords:
                item.add_marker(skip)


@pytest.fixture
def path5() -> Graph:
    """0 - 1 - 2 - 3 - 4 with weights 0.5, 1, 2, 0.25."""
    from tests.oracle import graph_of  # here and below: it imports hypothesis

    weight = np.diag([0.5, 1.0, 2.0, 0.25], 1)
    return graph_of(weight + weight.T)


@pytest.fixture
def ring8() -> Graph:
    """Eight nodes in a circle, weights 1: the eigenvalues of its Laplacian are 2 - 2 cos(2πk/8)."""
    from tests.oracle import graph_of

    step = np.roll(np.eye(8), 1, axis=1)
    return graph_of(step + step.T)


@pytest.fixture
def islands() -> Graph:
    """A triangle 0-1-2, an edge 3-4 and the isolated node 5."""
    from tests.oracle import graph_of

    dense = np.zeros((6, 6))
    for i, j, w in [(0, 1, 0.5), (1, 2, 0.25), (0, 2, 1.0), (3, 4, 2.0)]:
        dense[i, j] = dense[j, i] = w
    return graph_of(dense)


@pytest.fixture
def graph30() -> Graph:
    """Thirty nodes, weights between 0.01 and 1, no structure."""
    from tests.oracle import random_graph

    return random_graph(seed=7, nodes=30, density=0.3)
