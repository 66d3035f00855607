"""Blocks of the decoupled form against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.data import Data

import sobgnn
from sobgnn import SobolevFeatures, SobolevOperators
from tests.oracle import sobolev_operator


@pytest.mark.parametrize(("alpha", "hops", "epsilon"), [(3, 2, 1.0), (1, 3, 0.5), (2, 0, 1.0)])
def test_blocks_are_powers_of_each_orders_matrix_in_the_documented_order(graph30, alpha, hops, epsilon):
    x = np.random.default_rng(0).normal(size=(30, 5))
    features = SobolevFeatures(alpha, epsilon, hops)
    got = features(torch.from_numpy(x), graph30)
    expected = [x]
    for hop in range(1, hops + 1):
        for rho in range(1, alpha + 1):
            expected.append(np.linalg.matrix_power(sobolev_operator(graph30, rho, epsilon), hop) @ x)
    assert got.shape == (30, features.num_blocks, 5)
    np.testing.assert_allclose(got, np.stack(expected, axis=1), rtol=1e-6, atol=1e-8)


def test_every_form_of_the_graph_gives_the_same_blocks(graph30):
    x = torch.randn(30, 4)
    features = sobgnn.SobolevFeatures(alpha=2, hops=2)
    whole = features(x, graph30)
    edge_index, edge_weight = graph30.edges()
    torch.testing.assert_close(features(x, SobolevOperators(graph30, 2)), whole)
    torch.testing.assert_close(features(x, edge_index, edge_weight), whole)
    data = Data(x=x, edge_index=edge_index, edge_weight=edge_weight)
    torch.testing.assert_close(features(data).sobolev, whole)
    assert "sobolev" not in data  # the caller's data is left as it is
    torch.testing.assert_close(features(Data(x=x, edge_index=edge_index, edge_attr=edge_weight)).sobolev, whole)
    of_edges = Data(x=x, edge_index=edge_index, edge_attr=torch.rand(len(edge_weight), 2), edge_weight=edge_weight)
    torch.testing.assert_close(features(of_edges).sobolev, whole)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: SobolevFeatures(hops=-1), "hops"),
        (lambda g: SobolevFeatures(alpha=0), "alpha"),
        (lambda g: SobolevFeatures()(torch.randn(30, 2)), "need a graph"),
        (lambda g: SobolevFeatures()(torch.randn(29, 2), g), "29 for 30 nodes"),
        (lambda g: SobolevFeatures(alpha=2)(torch.randn(30, 2), SobolevOperators(g, 3)), "alpha=2"),
        (lambda g: SobolevFeatures()(torch.randn(30, 2), EdgeIndex(g.edges()[0], sparse_size=(31, 31))), "sparse_size"),
    ],
)
def test_what_does_not_fit_is_refused(graph30, make, message):
    with pytest.raises(ValueError, match=message):
        make(graph30)


def test_sparse_and_half_features_are_taken_and_missing_ones_named(graph30):
    x = torch.eye(30)[:, :4]
    want = SobolevFeatures()(x, graph30)
    torch.testing.assert_close(SobolevFeatures()(x.to_sparse(), graph30), want)
    torch.testing.assert_close(SobolevFeatures()(x.half(), graph30), want.half())
    with pytest.raises(ValueError, match=r"need data.x and data.edge_index"):
        SobolevFeatures()(Data(edge_index=torch.tensor([[0, 1], [1, 0]])))


def test_a_directed_graph_and_several_signals_are_refused_with_ways_out_that_there_are(graph30):
    with pytest.raises(ValueError, match=r'must be symmetric.*Graph\.from_edges symmetrize="union"'):
        SobolevFeatures(2)(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0.5, 0.2]))
    with pytest.raises(ValueError, match=r"must have shape \[N, F\], but got \[2, 30, 4\]. Call it for each signal"):
        SobolevFeatures(2)(torch.ones(2, 30, 4), graph30.edges()[0])
