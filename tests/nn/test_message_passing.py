"""The layer as one of PyG's modules."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch_geometric.nn import MessagePassing

from sobgnn import SobolevConv

HOOKS = [name for name in dir(MessagePassing) if name.startswith("register_") and name not in dir(torch.nn.Module)]


@pytest.mark.parametrize("name", ["propagate", "edge_updater", *HOOKS])
def test_what_needs_messages_is_refused_with_the_reason(name):
    with pytest.raises(NotImplementedError, match=r"forms no messages, so it has no propagate.*to_hetero"):
        getattr(SobolevConv(3, 4), name)(lambda *_: None)


LIGHT = """
import sys
import sobgnn
assert "torch" not in sys.modules and "numpy" not in sys.modules
from sobgnn import SobolevClassifier, SobolevOperators, knn_graph
print(*{"torch_geometric", "torch._dynamo", "torch._inductor", "optuna", "polars"} & set(sys.modules))
"""


def test_the_estimator_waits_for_neither_pyg_nor_torchs_compiler():
    done = subprocess.run([sys.executable, "-c", LIGHT], check=True, capture_output=True, text=True, timeout=240)
    assert not done.stdout.split()
