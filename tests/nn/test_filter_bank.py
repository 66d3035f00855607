"""The filters of a layer after propagation against their definition: alone, mapped, differentiated twice."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sobgnn.nn.dropout import drop_by_hash
from sobgnn.nn.filter_bank import filter_bank
from sobgnn.propagation import native

BRANCHES = 3


def bank(weight: Tensor, bias: Tensor, mu: Tensor, *inputs: Tensor, relu: bool = True) -> Tensor:
    return filter_bank(inputs, weight, bias, mu, relu=relu)


def definition(weight: Tensor, bias: Tensor, mu: Tensor, *inputs: Tensor, relu: bool = True) -> Tensor:
    filtered = [x @ w + b for x, w, b in zip(inputs, weight, bias, strict=True)]
    return sum(m * (h.relu() if relu else h) for h, m in zip(filtered, mu, strict=True))


def draw(rows=7, width=4, dtype=torch.float64, members=(), mapped=0):
    """Leaves: weight, bias, mu of each member, and inputs, of which the first ``mapped`` are each member's own."""
    generator = torch.Generator().manual_seed(rows + width)
    shapes = [(*members, BRANCHES, 5, width), (*members, BRANCHES, width), (*members, BRANCHES)]
    shapes += [(*(members if branch < mapped else ()), rows, 5) for branch in range(BRANCHES)]
    return [torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]


def assert_same_with_gradients(ours, theirs, leaves, **close):
    torch.testing.assert_close(ours, theirs, **close)
    grad = torch.randn(ours.shape, generator=torch.Generator().manual_seed(1), dtype=ours.dtype)
    found = (torch.autograd.grad(out, leaves, grad) for out in (ours, theirs))
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other, **close)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (7, 4), (33, 33), (1000, 70)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("backend", ["", "portable"])
def test_filters_and_their_gradients_are_those_of_the_definition(relu, rows, width, dtype, backend, monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", backend)
    leaves = draw(rows, width, dtype)
    tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == torch.float32 else {}
    assert_same_with_gradients(bank(*leaves, relu=relu), definition(*leaves, relu=relu), leaves, **tolerance)


@pytest.mark.parametrize("mapped", [0, 1, BRANCHES])
def test_mapping_over_members_is_a_loop_over_them(mapped):
    leaves = draw(members=(6,), mapped=mapped)
    places = (0,) * (3 + mapped) + (None,) * (BRANCHES - mapped)
    ours = vmap(bank, places)(*leaves)
    members = [[x[m] if place == 0 else x for x, place in zip(leaves, places, strict=True)] for m in range(6)]
    assert_same_with_gradients(ours, torch.stack([definition(*member) for member in members]), leaves)


def test_mapping_over_members_and_over_signals_is_a_loop_over_both():
    *parameters, first, second, third = draw(members=(3,))
    signs = torch.tensor([1.0, -2.0], dtype=torch.float64)

    def one(weight: Tensor, bias: Tensor, mu: Tensor, sign: Tensor) -> Tensor:
        return bank(weight, bias, mu, first, sign * second, sign * third)

    mapped = vmap(vmap(one, (None, None, None, 0)), (0, 0, 0, None))(*parameters, signs)
    outer = vmap(vmap(one, (0, 0, 0, None)), (None, None, None, 0))(*parameters, signs)
    loop = torch.stack([torch.stack([one(*(p[m] for p in parameters), sign) for sign in signs]) for m in range(3)])
    torch.testing.assert_close(mapped, loop)
    torch.testing.assert_close(outer, loop.transpose(0, 1))


@pytest.mark.parametrize("relu", [True, False])
def test_gradients_have_gradients(relu):
    leaves = draw()
    assert torch.autograd.gradgradcheck(lambda *given: bank(*given, relu=relu), leaves)
    loss = bank(*leaves, relu=relu).square().sum()
    once = torch.autograd.grad(loss, leaves, retain_graph=True)
    for plain, fused in zip(torch.autograd.grad(loss, leaves, create_graph=True), once, strict=True):
        torch.testing.assert_close(plain, fused)


@pytest.mark.skipif(not native.available(), reason="the compiled kernel is not installed")
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    weight, bias, _, x, *_ = (leaf.detach() for leaf in draw(1001, 33, torch.float32))
    keys, before, results = torch.arange(1001, dtype=torch.int32), torch.get_num_threads(), []
    start = x @ weight[0]
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            product, out = start.clone(), torch.ones(1001, 33)
            torch.ops.sobgnn.bias_relu_mix(product, bias[0], bias[1], out, True, False)
            found = torch.ops.sobgnn.bias_relu_mix_backward(product, out, bias[1], True)
            results.append([product, out, *found, drop_by_hash(product, keys, 0.5)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(first, second) for first, second in zip(results[0], other, strict=True))
