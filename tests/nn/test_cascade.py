import pytest
import torch
from torch import Tensor
from torch.func import vmap

from sobgnn.nn.cascade import cascade


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
    result, expected = cascade(*tensors, relu=relu), definition(*tensors, relu)
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
    mapped = vmap(lambda *given: cascade(*given, relu=True), dims)(*tensors)
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


def test_only_one_of_the_inputs_may_differ_from_member_to_member() -> None:
    tensors, _ = draw((), True, shared=True)
    filtered = torch.stack([tensors[1], 2 * tensors[1]])
    mapped = vmap(lambda f: cascade(tensors[0], f, *tensors[2:], relu=True))(filtered)
    torch.testing.assert_close(mapped[1], definition(tensors[0], filtered[1], *tensors[2:], True))


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    def run() -> list[Tensor]:
        generator = torch.Generator().manual_seed(3)
        x = torch.randn(1001, 2, 9, generator=generator)
        weight = torch.randn(2, 9, 33, generator=generator).requires_grad_()
        bias = torch.randn(2, 33, generator=generator).requires_grad_()
        mu = torch.randn(2, generator=generator).requires_grad_()
        out = cascade(None, x, weight, bias, mu, relu=True)
        return [out, *torch.autograd.grad(out.square().sum(), (bias, mu))]

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = run()
        torch.set_num_threads(2)
        two = run()
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(one[1:], two[1:], strict=True))


def test_no_rows_give_no_rows() -> None:
    out = cascade(None, torch.empty(0, 2, 3), torch.ones(2, 3, 4), torch.ones(2, 4), torch.ones(2), relu=True)
    assert out.shape == (0, 4)
