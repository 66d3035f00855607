"""Gradients of weights and scales, against autograd through the dense definition."""

from __future__ import annotations

import pytest
import torch

from sobgnn.propagation import SobolevCSR, native, propagate, propagate_each, propagate_sum, scales
from tests.propagation.propagation_cases import csr_of, random_graph

TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-10}


def pattern_of(graph, dtype=torch.float64, device="cpu", index=torch.int32):
    return (
        torch.from_numpy(graph.indptr).to(device, torch.int64),
        torch.from_numpy(graph.indices).to(device, index),
        torch.from_numpy(graph.data).to(device, dtype),
    )


def learned_csr(indptr, indices, weight, alpha, epsilon, *, by_rows=False, transposed=None):
    """The operators of a graph as a function of its weights."""
    scale = scales(indptr, weight, alpha, epsilon, by_rows=by_rows)
    back = transposed or (indptr, indices, weight.detach())
    other = torch.ones_like(scale).detach() if by_rows else scale
    return SobolevCSR(indptr, indices, weight, *back, scale, other, epsilon)


def dense_operators(indptr, indices, weight, alpha, epsilon, *, by_rows=False):
    """[α, N, N] as the definition has them, a function of the weights."""
    nodes = indptr.numel() - 1
    rows = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
    adjacency = torch.zeros(nodes, nodes, dtype=weight.dtype).index_put((rows, indices.long()), weight)
    adjacency = adjacency + epsilon * torch.eye(nodes, dtype=weight.dtype)
    found = []
    for rho in range(1, alpha + 1):
        power = adjacency**rho
        degree = power.sum(dim=1)
        linked = degree > 0
        inverse = torch.where(linked, torch.where(linked, degree, 1.0) ** (-1.0 if by_rows else -0.5), 0.0)
        found.append(inverse[:, None] * power * (1.0 if by_rows else inverse[None, :]))
    return torch.stack(found)


def features(*shape, dtype=torch.float64, device="cpu", seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


CASES = [
    (40, 6, 4, 32, 1.0, {}),
    (40, 6, 3, 7, 0.5, {"isolated": 3}),
    (40, 6, 2, 1, 0.0, {"isolated": 3}),
    (30, 4, 1, 33, 1.5, {}),
    (20, 4, 9, 5, 1e-3, {"low": -1.0}),
    (300, 3, 3, 16, 1.0, {"hub": True}),
    (3, 0, 2, 4, 1.0, {}),
]


@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize("orders", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("nodes", "degree", "alpha", "width", "epsilon", "options"), CASES)
def test_weight_gradients_are_those_of_the_dense_definition(
    device, dtype, orders, by_rows, nodes, degree, alpha, width, epsilon, options
):
    graph = random_graph(nodes, degree, **options)
    shape = (nodes, alpha, width) if orders else (nodes, width)
    x, g = features(*shape, dtype=dtype), features(nodes, alpha, width, dtype=dtype, seed=2)

    indptr, indices, exact = pattern_of(graph)
    exact.requires_grad_()
    given = x.double().requires_grad_()
    matrices = dense_operators(indptr, indices, exact, alpha, epsilon, by_rows=by_rows)
    out = torch.einsum("rij,jrh->irh" if orders else "rij,jh->irh", matrices, given)
    expected = torch.autograd.grad((out * g.double()).sum(), [exact, given])

    indptr, indices, weight = pattern_of(graph, dtype, device)
    weight.requires_grad_()
    mine = x.to(device).requires_grad_()
    csr = learned_csr(indptr, indices, weight, alpha, epsilon, by_rows=by_rows)
    operator = propagate_each if orders else propagate
    got = torch.autograd.grad((operator(csr, mine) * g.to(device)).sum(), [weight, mine])
    for actual, wanted in zip(got, expected, strict=True):
        size = float(wanted.abs().max()) if wanted.numel() else 1.0
        torch.testing.assert_close(
            actual.cpu().double(), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * (size + 1e-9)
        )


def test_tiny_and_huge_weights_give_finite_gradients(device):
    indptr, indices, weight = pattern_of(random_graph(30, 4, low=-30.0, high=6.0), torch.float32, device)
    weight.requires_grad_()
    out = propagate(learned_csr(indptr, indices, weight, 6, 1e-6), features(30, 8, dtype=torch.float32, device=device))
    (gradient,) = torch.autograd.grad(out.sum(), weight)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("level", ["plain", "avx2", "avx512"])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("shared", [True, False])
def test_threads_and_instruction_sets_agree(level, index, shared):
    if not native.available():
        pytest.skip("the compiled kernel is not installed")
    csr = csr_of(random_graph(700, 6, hub=True), 5, index=index)
    x = features(700, *(() if shared else (5,)), 40, dtype=torch.float32)
    y, g = (features(700, 5, 40, dtype=torch.float32, seed=seed) for seed in (2, 3))
    alone = native.gradients(csr, x, y, g, level=level)
    torch.set_num_threads(3)  # the fixture puts it back
    for mine, other in zip(native.gradients(csr, x, y, g, level=level), alone, strict=True):
        assert torch.equal(mine, other)
    for mine, best in zip(alone, native.gradients(csr, x, y, g), strict=True):
        torch.testing.assert_close(mine, best, rtol=1e-4, atol=1e-4)


def test_second_derivatives_of_weights_and_reduce_are_refused(device):
    indptr, indices, weight = pattern_of(random_graph(12, 4), device=device)
    weight.requires_grad_()
    csr = learned_csr(indptr, indices, weight, 2, 1.0)
    out = propagate(csr, features(12, 3, device=device))
    (first,) = torch.autograd.grad(out.square().sum(), weight, create_graph=True)
    torch.testing.assert_close(first, torch.autograd.grad(out.square().sum(), weight, retain_graph=True)[0])
    with pytest.raises(NotImplementedError, match="first order"):
        first.sum().backward()
    with pytest.raises(NotImplementedError, match="Use propagate_each and a sum"):
        propagate_sum(csr, features(12, 2, 3, device=device)).sum().backward()
