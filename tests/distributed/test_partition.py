import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn import Graph
from sobgnn.distributed import Partition, locality_order


def ring(n: int) -> Graph:
    i = np.arange(n)
    edges = np.stack([np.r_[i, (i + 1) % n], np.r_[(i + 1) % n, i]])
    return Graph.from_edges(edges, np.linspace(0.1, 1, n)[np.r_[i, i]].astype(np.float32))


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_every_node_is_held_by_exactly_one_rank(ranks: int) -> None:
    partition = Partition.of(ring(20), ranks)
    held = np.concatenate([partition.nodes(rank) for rank in range(ranks)])
    assert sorted(held) == list(range(20))


def test_ranks_get_equal_shares_of_the_edges_and_not_of_the_nodes() -> None:
    dense = np.triu(np.ones((20, 20)), 1)
    dense[10:, :] = dense[:, 10:] = 0
    graph = Graph.from_scipy(sp.csr_array(dense), symmetrize="union")
    partition = Partition.of(graph, 2, order=np.arange(20))
    assert len(partition.nodes(0)) < 10


def test_a_hub_does_not_leave_a_rank_empty() -> None:
    star = np.stack([np.zeros(9, int), np.arange(1, 10)])
    partition = Partition.of(Graph.from_edges(star, symmetrize="union"), 5)
    assert all(len(partition.nodes(rank)) > 0 for rank in range(5))


def test_the_locality_order_brings_a_shuffled_ring_back_together() -> None:
    shuffled = ring(50).permute(np.random.default_rng(0).permutation(50))
    order = locality_order(shuffled)
    place = np.argsort(order)
    rows = np.repeat(np.arange(50), 2)
    assert np.abs(place[rows] - place[shuffled.indices.numpy()]).max() <= 2


def test_more_ranks_than_nodes_are_refused() -> None:
    with pytest.raises(ValueError, match="between 1 and the number of nodes 5, but got 6"):
        Partition.of(ring(5), 6)
