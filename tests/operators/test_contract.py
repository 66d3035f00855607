"""What every operator promises to layers, on every class of them, against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.func import vmap

from sobgnn import SobolevOperators
from sobgnn.operators import EdgeOperators, SobolevRows
from sobgnn.operators.new_points import attach
from tests.oracle import adjacency, random_graph, sobolev_operator

ALPHA, EPSILON = 3, 0.5
GRAPH = random_graph(seed=3, nodes=12, density=0.4)
SOME, FROM = torch.tensor([4, 0, 7]), torch.arange(11, -1, -1)


def whole(weight):
    return SobolevOperators(GRAPH.with_weight(weight), ALPHA, EPSILON)


def edges(weight, **options):
    return EdgeOperators(GRAPH.edges()[0].flip(0), weight, 12, ALPHA, EPSILON, dtype=torch.float64, **options)


def two_sets(weight):
    """The first six nodes are targets, and inputs 12 to 17; all twelve are sources."""
    column, row = GRAPH.edges()[0].flip(0)
    kept = row < 6
    return EdgeOperators(
        torch.stack([column, row])[:, kept], weight[kept], (12, 6), ALPHA, EPSILON, normalize="row", dtype=torch.float64
    )


def by_rows(matrix):
    return matrix / matrix.sum(axis=1, keepdims=True)


def symmetric():
    return np.stack([sobolev_operator(GRAPH, rho, EPSILON) for rho in range(1, ALPHA + 1)])


def averages():
    return np.stack([by_rows(adjacency(GRAPH) ** rho + EPSILON**rho * np.eye(12)) for rho in range(1, ALPHA + 1)])


def to_first_six():
    loops = np.eye(6)
    powers = [np.hstack([adjacency(GRAPH)[:6] ** rho, EPSILON**rho * loops]) for rho in range(1, ALPHA + 1)]
    return np.stack([by_rows(power) for power in powers])


# Operators of float64 weights [E], and the dense matrices [α, R, C] that they stand for.
OPERATORS = {
    "graph": (whole, symmetric),
    "rows": (lambda weight: whole(weight).rows(SOME), lambda: symmetric()[:, SOME]),
    "rows from columns": (
        lambda weight: SobolevRows(whole(weight), SOME, FROM),
        lambda: symmetric()[:, SOME][:, :, FROM],
    ),
    "edges": (edges, symmetric),
    "edges by rows": (lambda weight: edges(weight, normalize="row"), averages),
    "edges between two sets": (two_sets, to_first_six),
}
BOTH = pytest.mark.parametrize(("make", "dense"), OPERATORS.values(), ids=OPERATORS.keys())


def signal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def weights():
    return GRAPH.weight.double()


@BOTH
def test_rows_are_those_of_the_dense_matrices(make, dense):
    operators, matrices = make(weights()), torch.from_numpy(dense())
    x, each = signal(matrices.shape[2], 2), signal(matrices.shape[2], ALPHA, 2)
    torch.testing.assert_close(operators.propagate(x), torch.einsum("arc,ch->rah", matrices, x), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(
        operators.propagate_each(each), torch.einsum("arc,cah->rah", matrices, each), rtol=1e-6, atol=1e-8
    )


@BOTH
def test_gradients_of_features_are_those_of_the_transpose(make, dense):
    operators, matrices = make(weights()), torch.from_numpy(dense())
    x, each = signal(matrices.shape[2], 2).requires_grad_(), signal(matrices.shape[2], ALPHA, 2).requires_grad_()
    g = signal(matrices.shape[1], ALPHA, 2, seed=1)
    (to_x,) = torch.autograd.grad(operators.propagate(x), x, g)
    (to_each,) = torch.autograd.grad(operators.propagate_each(each), each, g)
    torch.testing.assert_close(to_x, torch.einsum("arc,rah->ch", matrices, g), rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(to_each, torch.einsum("arc,rah->cah", matrices, g), rtol=1e-6, atol=1e-8)


@BOTH
def test_gradients_of_weights_and_features_are_right_to_first_order_and_of_features_to_second(make, dense):
    columns = dense().shape[2]
    x, each = signal(columns, 2).requires_grad_(), signal(columns, ALPHA, 2).requires_grad_()
    weight = weights().requires_grad_()

    # Both directions of an edge move together: a graph has one weight for them.
    other = torch.argsort(GRAPH.edges()[0][1] * 12 + GRAPH.edges()[0][0])

    def run(weight, x, each):
        operators = make((weight + weight[other]) / 2)
        return operators.propagate(x), operators.propagate_each(each)

    fixed = make(weights())
    if isinstance(fixed, SobolevRows):  # which refuse weights that require gradients
        with pytest.raises(ValueError, match="Rows give a graph's weights no gradients"):
            run(weight, x, each)
        assert torch.autograd.gradcheck(fixed.propagate, x)
    else:
        assert torch.autograd.gradcheck(run, (weight, x, each))
    assert torch.autograd.gradgradcheck(fixed.propagate, x)
    assert torch.autograd.gradgradcheck(fixed.propagate_each, each)


@BOTH
def test_mapping_over_signals_and_their_gradients_is_a_loop(make, dense):
    operators, columns = make(weights()), dense().shape[2]
    for function, x in (
        (operators.propagate, signal(4, columns, 2)),
        (operators.propagate_each, signal(4, columns, ALPHA, 2)),
    ):
        torch.testing.assert_close(vmap(function)(x), torch.stack([function(one) for one in x]))
        gradient = torch.func.grad(lambda one, function=function: function(one).square().sum())
        torch.testing.assert_close(vmap(gradient)(x), torch.stack([gradient(one) for one in x]))


@pytest.mark.parametrize("count", [2, 40])  # of few edges and of more edges than nodes
def test_new_points_keep_the_contract(count):
    generator = np.random.default_rng(0)
    new = sp.random_array((count, 12), density=0.3, random_state=generator, format="csr", dtype=np.float32)
    joined = attach(SobolevOperators(GRAPH, ALPHA, EPSILON), new)
    own, nodes, each = signal(count, 2).float(), signal(12, 2).float(), signal(12, ALPHA, 2).float()
    for function, x in (
        (lambda x: joined.propagate(x, own), nodes),
        (lambda x: joined.propagate_each(x, own.unsqueeze(1).expand(-1, ALPHA, -1)), each),
        (joined.average, nodes),
        (joined.total, nodes),
    ):
        matrix = torch.autograd.functional.jacobian(function, x).flatten(-x.ndim)
        with torch.no_grad():
            basis = torch.eye(x.numel()).view(-1, *x.shape)
            columns = torch.stack([function(one) - function(torch.zeros_like(x)) for one in basis], dim=-1)
        torch.testing.assert_close(matrix, columns, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(vmap(function)(torch.stack([x, 2 * x])), torch.stack([function(x), function(2 * x)]))
    torch.testing.assert_close(joined.total(nodes), torch.from_numpy((new.toarray() > 0) @ nodes.numpy()))
