from __future__ import annotations

import pytest
import torch

from sobgnn.propagation import native
from sobgnn.propagation.trees import Nodes, tree_sums

# Two trees: a root with two leaves, and a root whose right child splits again.
NODES = Nodes(
    torch.tensor([0, -1, -1, 1, -1, 0, -1, -1], dtype=torch.int32),
    torch.tensor([0.5, 0, 0, 1.0, 0, 2.0, 0, 0], dtype=torch.float64),
    torch.tensor([1, 0, 1, 4, 2, 6, 3, 4], dtype=torch.int32),
    torch.tensor([2, 0, 0, 5, 0, 7, 0, 0], dtype=torch.int32),
    torch.tensor([[1.0, 0], [0, 1], [0.5, 0.5], [0.25, 0.75], [0.75, 0.25]]),
    torch.tensor([0, 3], dtype=torch.int32),
    torch.empty(0, dtype=torch.int32),
)
BACKENDS = [
    "portable",
    pytest.param("native", marks=pytest.mark.skipif(not native.available(), reason="not compiled")),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_leaves_are_added_up_over_the_trees(backend, monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", backend)
    x = torch.tensor([[0.5, 1.0], [0.6, 1.0], [2.0, 1.5], [2.5, 1.5]])  # thresholds go left
    expected = torch.tensor([[1.5, 0.5], [0.5, 1.5], [0.25, 1.75], [0.75, 1.25]], dtype=torch.float64)
    assert torch.equal(tree_sums(NODES, x, 2), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_boosted_tree_adds_to_its_target_alone(backend, monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", backend)
    value = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]], dtype=torch.float64)
    boosted = NODES._replace(value=value, target=torch.tensor([2, 2], dtype=torch.int32))
    x = torch.tensor([[0.5, 1.0], [2.5, 1.5]])
    assert tree_sums(boosted, x, 3).tolist() == [[0, 0, 4], [0, 0, 7]]


@pytest.mark.skipif(not native.available(), reason="not compiled")
def test_both_backends_and_any_number_of_threads_agree_on_many_rows(monkeypatch):
    x = 3 * torch.rand((1000, 2), generator=torch.Generator().manual_seed(0))
    before, found = torch.get_num_threads(), []
    for backend, threads in (("portable", 1), ("native", 1), ("native", 2)):
        monkeypatch.setenv("SOBGNN_BACKEND", backend)
        torch.set_num_threads(threads)
        found.append(tree_sums(NODES, x, 2))
    torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])
