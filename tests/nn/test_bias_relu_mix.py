"""Bias, ReLU and weighted sum in one pass, and dropout by a hash: the compiled forms against the definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sobgnn.nn.dropout import drop_by_hash
from sobgnn.nn.filter_bank import bias_relu_mix, bias_relu_mix_backward
from sobgnn.propagation import native

needs_kernel = pytest.mark.skipif(not native.available(), reason="the compiled kernel is not installed")


def draw(rows: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(rows + width)
    shapes = [(rows, width), (width,), (width,), (rows, width), (rows, width)]
    return [torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 3), (40, 16), (33, 33), (1000, 70)])
def test_combine_and_its_gradients_are_those_of_the_definition(rows, width, relu, dtype):
    product, bias, mu, out, grad = draw(rows, width, dtype)
    leaves = [t.clone().requires_grad_() for t in (product, bias, mu)]
    active = (leaves[0] + leaves[1]).relu() if relu else leaves[0] + leaves[1]
    expected = out + leaves[2] * active
    wanted = torch.autograd.grad(expected, leaves, grad)
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}

    only, total = torch.full_like(out, torch.nan), out.clone()
    bias_relu_mix(product.clone(), bias, mu, only, relu, True)
    bias_relu_mix(product, bias, mu, total, relu, False)
    torch.testing.assert_close(product, active.detach(), **close)
    torch.testing.assert_close(only, (leaves[2] * active).detach(), **close)
    torch.testing.assert_close(total, expected.detach(), **close)
    for got, want in zip(bias_relu_mix_backward(product, grad, mu, relu), wanted, strict=True):
        torch.testing.assert_close(got, want, **close)


@needs_kernel
def test_the_number_of_threads_does_not_change_a_bit():
    product, bias, mu, out, grad = draw(1001, 33, torch.float32)
    keys = torch.arange(1001, dtype=torch.int32)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            activation, total = product.clone(), out.clone()
            bias_relu_mix(activation, bias, mu, total, True, False)
            gradients = bias_relu_mix_backward(activation, grad, mu, True)
            results.append([activation, total, *gradients, drop_by_hash(product, keys, 0.5)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(first, second) for first, second in zip(results[0], other, strict=True))
