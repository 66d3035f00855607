import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sobgnn.nn.filter_bank import filter_bank


def bank(own: Tensor | None, filtered: Tensor, *parameters: Tensor, relu: bool) -> Tensor:
    return filter_bank(([] if own is None else [own]) + list(filtered.unbind(1)), *parameters, relu=relu)


def definition(own: Tensor | None, filtered: Tensor, weight: Tensor, bias: Tensor, mu: Tensor, relu: bool) -> Tensor:
    branches = ([] if own is None else [own]) + list(filtered.unbind(1))
    total = torch.zeros(len(filtered), weight.shape[2], dtype=filtered.dtype)
    for x, w, b, m in zip(branches, weight, bias, mu, strict=True):
        h = x @ w + b
        total = total + m * (h.relu() if relu else h)
    return total


def draw(members: tuple[int, ...], with_own: bool, shared: bool) -> tuple[list[Tensor | None], tuple[int | None, ...]]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    batch = () if shared else members
    branches = 3 + with_own
    own = normal(*batch, 7, 5) if with_own else None
    tensors = [own, normal(*batch, 7, 3, 5), normal(*members, branches, 5, 4), normal(*members, branches, 4)]
    tensors.append(normal(*members, branches))
    inputs = None if shared else 0
    return tensors, (inputs if with_own else None, inputs, 0, 0, 0)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("with_own", [True, False])
@pytest.mark.parametrize("backend", ["", "portable"])
def test_the_cascade_and_its_gradients_are_those_of_the_definition(
    relu: bool, with_own: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOBGNN_BACKEND", backend)
    tensors, _ = draw((), with_own, shared=True)
    result, expected = bank(*tensors, relu=relu), definition(*tensors, relu)
    torch.testing.assert_close(result, expected)
    leaves = [tensor for tensor in tensors if tensor is not None]
    grad = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=result.dtype)
    for ours, theirs in zip(
        torch.autograd.grad(result, leaves, grad), torch.autograd.grad(expected, leaves, grad), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("with_own", [True, False])
def test_mapping_over_members_is_a_loop_over_them(shared: bool, with_own: bool) -> None:
    tensors, dims = draw((6,), with_own, shared)
    mapped = vmap(lambda *given: bank(*given, relu=True), dims)(*tensors)
    alone = [
        definition(*(t if d is None or t is None else t[member] for t, d in zip(tensors, dims, strict=True)), True)
        for member in range(6)
    ]
    torch.testing.assert_close(mapped, torch.stack(alone))
    leaves = [tensor for tensor in tensors if tensor is not None]
    ours = torch.autograd.grad(mapped.square().sum(), leaves)
    theirs = torch.autograd.grad(torch.stack(alone).square().sum(), leaves)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("self_branch", [True, False])
def test_gradients_have_gradients(self_branch: bool, relu: bool) -> None:
    (own, *rest), _ = draw((), self_branch, shared=True)
    assert torch.autograd.gradgradcheck(lambda *leaves: bank(own, *leaves, relu=relu), rest)
    loss = bank(own, *rest, relu=relu).square().sum()
    once = torch.autograd.grad(loss, rest, retain_graph=True)
    for plain, fused in zip(torch.autograd.grad(loss, rest, create_graph=True), once, strict=True):
        torch.testing.assert_close(plain, fused)


@pytest.mark.parametrize("with_own", [True, False])
def test_mapping_over_members_and_over_signals_is_a_loop_over_both(with_own: bool) -> None:
    (own, filtered, *parameters), _ = draw((3,), with_own, shared=True)
    signals = torch.tensor([1.0, -2.0], dtype=torch.float64)

    def one(weight: Tensor, bias: Tensor, mu: Tensor, sign: Tensor) -> Tensor:
        return bank(None if own is None else sign * own, sign * filtered, weight, bias, mu, relu=True)

    inner = vmap(one, (None, None, None, 0))
    mapped = vmap(inner, (0, 0, 0, None))(*parameters, signals)
    outer = vmap(vmap(one, (0, 0, 0, None)), (None, None, None, 0))(*parameters, signals)
    loop = torch.stack([torch.stack([one(*(p[m] for p in parameters), sign) for sign in signals]) for m in range(3)])
    torch.testing.assert_close(mapped, loop)
    torch.testing.assert_close(outer, loop.transpose(0, 1))
