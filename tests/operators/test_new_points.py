"""New points against the definition: their own rows of a larger dense matrix, the old nodes' degrees unchanged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn import SobolevOperators
from sobgnn.operators.new_points import attach
from tests.oracle import adjacency


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_new_rows_have_their_own_degrees_and_the_old_ones_keep_theirs(graph30, epsilon):
    alpha = 3
    generator = np.random.default_rng(0)
    edges = sp.random_array((4, 30), density=0.2, random_state=generator, format="csr", dtype=np.float32)
    edges = sp.csr_array(sp.vstack([edges, sp.csr_array((1, 30), dtype=np.float32)]))  # the last has no edge
    nodes, own = generator.normal(size=(30, 6)), generator.normal(size=(5, 6))
    joined = attach(SobolevOperators(graph30, alpha, epsilon), edges)
    got = joined.propagate(torch.from_numpy(nodes).float(), torch.from_numpy(own).float())
    dense = edges.toarray().astype(np.float64)
    for rho in range(1, alpha + 1):
        old = (adjacency(graph30) ** rho).sum(axis=1) + epsilon**rho
        new = (dense**rho).sum(axis=1) + epsilon**rho
        live = np.where(new > 0, new, 1.0)
        rows = dense**rho / np.sqrt(live[:, None] * old[None, :])
        loop = np.where(new > 0, epsilon**rho / live, 0.0)
        np.testing.assert_allclose(got[:, rho - 1], rows @ nodes + loop[:, None] * own, atol=1e-5)


def test_the_average_of_neighbors_is_by_weight_and_zero_without_any(graph30):
    edges = sp.csr_array(([1.0, 3.0], ([0, 0], [4, 9])), shape=(2, 30), dtype=np.float32)
    nodes = torch.randn(30, 2)
    got = attach(SobolevOperators(graph30), edges).average(nodes)
    torch.testing.assert_close(got[0], 0.25 * nodes[4] + 0.75 * nodes[9])
    assert (got[1] == 0).all()


def test_points_without_any_edge_keep_their_loops(graph30):
    joined = attach(SobolevOperators(graph30, 2, 0.5), sp.csr_array((2, 30), dtype=np.float32))
    own = torch.randn(2, 4)
    with torch.no_grad():
        torch.testing.assert_close(joined.propagate(torch.randn(30, 4), own), own.unsqueeze(1).expand(2, 2, 4))
        assert (joined.average(torch.randn(30, 4)) == 0).all()
