"""One contract for every backend, against dense matrices from the definition."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from sobgnn.propagation import backend, propagate, propagate_each, propagate_sum
from tests.propagation.propagation_cases import csr_of, dense, random_graph, rows_of

TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-13}


def features(*shape, dtype=torch.float32, device="cpu", seed=1):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(device, dtype)


def close(actual, expected, scale=1.0):
    tolerance = TOLERANCE[actual.dtype] * scale
    torch.testing.assert_close(actual.double().cpu(), expected, rtol=10 * tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("nodes", "degree", "alpha", "width", "epsilon", "options"),
    [
        (60, 8, 4, 32, 1.0, {}),
        (60, 8, 3, 7, 0.5, {"isolated": 5}),
        (60, 8, 2, 1, 0.0, {"isolated": 5}),
        (50, 4, 1, 33, 1.5, {}),
        (40, 4, 5, 16, 1.0, {"low": -30.0, "high": 6.0}),
        (40, 4, 6, 100, 0.0, {"low": -30.0, "high": 6.0, "isolated": 1}),
        (30, 4, 9, 5, 1e-6, {}),
        (20, 4, 64, 3, 2.0, {"low": -6.0, "high": 3.0}),
        (700, 3, 3, 17, 1.0, {"hub": True}),
        (3, 0, 3, 4, 1.0, {}),
        (1, 0, 2, 2, 0.5, {}),
        (77, 11, 10, 129, 0.02, {"low": -9.0, "high": 2.0}),
    ],
)
def test_each_operator_is_its_definition(device, dtype, nodes, degree, alpha, width, epsilon, options):
    graph = random_graph(nodes, degree, **options)
    matrices = dense(graph, alpha, epsilon)
    index = torch.int64 if alpha % 2 else torch.int32
    csr = csr_of(graph, alpha, epsilon, dtype, index, device)
    x = features(nodes, width, dtype=dtype, device=device)
    g = features(nodes, alpha, width, dtype=dtype, device=device)
    close(propagate(csr, x), torch.einsum("rij,jh->irh", matrices, x.double().cpu()), 3)
    close(propagate_sum(csr, g), torch.einsum("rij,jrh->ih", matrices, g.double().cpu()), 3 * alpha)
    close(propagate_each(csr, g), torch.einsum("rij,jrh->irh", matrices, g.double().cpu()), 3)


def test_empty_sizes_give_empty_or_zero_results(device):
    graph = random_graph(12, 3)
    csr = csr_of(graph, 3, device=device)
    assert propagate(csr, features(12, 0, device=device)).shape == (12, 3, 0)
    assert propagate_sum(csr, features(12, 3, 0, device=device)).shape == (12, 0)
    nothing = rows_of(graph, np.array([], int), 3, device=device)
    assert propagate(nothing, features(12, 5, device=device)).shape == (0, 3, 5)
    assert propagate_each(nothing, features(12, 3, 5, device=device)).shape == (0, 3, 5)
    back = propagate_sum(nothing.transposed(), features(0, 3, 5, device=device))
    assert back.shape == (12, 5)
    assert not back.any()


def test_layout_of_the_features_does_not_matter(device):
    csr = csr_of(random_graph(40, 5), 3, device=device)
    x, g = features(40, 11, device=device), features(40, 3, 11, device=device)
    strided = features(22, 80, device=device)[::2, ::2].t()
    torch.testing.assert_close(propagate(csr, x.t().contiguous().t()), propagate(csr, x), rtol=0, atol=0)
    torch.testing.assert_close(propagate(csr, strided), propagate(csr, strided.contiguous()), rtol=0, atol=0)
    flipped = g.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    torch.testing.assert_close(propagate_sum(csr, flipped), propagate_sum(csr, g), rtol=0, atol=0)
    torch.testing.assert_close(propagate_each(csr, flipped), propagate_each(csr, g), rtol=0, atol=0)
    spread = torch.ones(1, 1, device=device).expand(40, 11)
    torch.testing.assert_close(propagate(csr, spread), propagate(csr, spread.contiguous()), rtol=0, atol=0)


def test_bfloat16_features_are_summed_in_float32(device):
    csr = csr_of(random_graph(400, 6, hub=True), 3, device=device)
    x = features(400, 24, dtype=torch.bfloat16, device=device)
    g = features(400, 3, 24, dtype=torch.bfloat16, device=device)
    for operator, argument in ((propagate, x), (propagate_sum, g), (propagate_each, g)):
        result = operator(csr, argument)
        assert result.dtype == torch.bfloat16
        torch.testing.assert_close(result.float(), operator(csr, argument.float()), rtol=1 / 128, atol=1e-6)


@pytest.mark.parametrize("power", [1.5e-38, 1.1e-38])
def test_entries_that_scales_make_vanish_are_zero_and_not_denormal(device, power):
    if backend(torch.empty(0, device=device)) == "triton":
        pytest.skip("Triton flushes powers, not their products with scales: denormals cost a GPU nothing")
    weight = power ** (1 / 3)  # to the third power about the least normal float
    graph = sp.csr_array(np.array([[0, 1, weight], [1, 0, 0], [weight, 0, 0]], np.float32))
    expanded = propagate(csr_of(graph, 3, 1.0, device=device), torch.eye(3, device=device))
    assert expanded[0, 2, 2] == expanded[2, 2, 0] == 0


def test_the_same_bits_come_out_every_time(device):
    csr = csr_of(random_graph(900, 6, hub=True), 4, device=device)
    x, g = features(900, 19, device=device), features(900, 4, 19, device=device)
    for operator, argument in ((propagate, x), (propagate_sum, g), (propagate_each, g)):
        first = operator(csr, argument)
        assert all(torch.equal(first, operator(csr, argument)) for _ in range(3))
