"""What torch asks of an operator: gradients, vmap, compilation; and errors before any kernel runs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from sobgnn.propagation import backend, propagate, propagate_each, propagate_sum
from tests.propagation.propagation_cases import csr_of, random_graph, rows_of

OPERATORS = [(propagate, False), (propagate_sum, True), (propagate_each, True)]


def square_and_rows(dtype=torch.float32, device="cpu", alpha=3):
    graph = random_graph(14, 4, isolated=1)
    return [
        csr_of(graph, alpha, 0.5, dtype, device=device),
        rows_of(graph, np.array([2, 9, 13]), alpha, 0.5, dtype, device=device),
    ]


def features(csr, orders, width=3, *, dtype=torch.float32, seed=0, batch=()):
    columns, alpha = csr.column_scale.shape[0], csr.column_scale.shape[1] - 1
    shape = (*batch, columns, alpha, width) if orders else (*batch, columns, width)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=generator).to(csr.weight.device)


@pytest.mark.parametrize(("operator", "orders"), OPERATORS)
@pytest.mark.parametrize("which", [0, 1])
def test_gradients_of_first_and_second_order_are_right(device, operator, orders, which):
    csr = square_and_rows(torch.float64, device)[which]
    x = features(csr, orders, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: operator(csr, x), x, nondet_tol=0.0)
    assert torch.autograd.gradgradcheck(lambda x: operator(csr, x).square(), x)


@pytest.mark.parametrize("name", ["propagate", "propagate_sum", "propagate_each", "scales"])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("which", [0, 1])
def test_opcheck_passes(device, name, learned, which):
    csr = square_and_rows(device=device)[which]
    if learned and name != "propagate_sum":  # which has no gradients of weights
        csr = csr._replace(weight=csr.weight.clone().requires_grad_(), row_scale=csr.row_scale.clone().requires_grad_())
    given = (*csr, features(csr, name != "propagate").requires_grad_())
    if name == "scales":
        given = (csr.indptr, csr.weight, 3, 0.5, False)
    torch.library.opcheck(getattr(torch.ops.sobgnn, name).default, given)


@pytest.mark.parametrize(("operator", "orders"), OPERATORS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_vmap_equals_a_loop_wherever_the_batch_is(device, operator, orders, dim):
    for csr in square_and_rows(device=device):
        stacked = features(csr, orders, batch=(5,))
        looped = torch.stack([operator(csr, x) for x in stacked])
        mapped = torch.vmap(lambda x, s=csr: operator(s, x), in_dims=dim)(stacked.movedim(0, dim))
        torch.testing.assert_close(mapped, looped, rtol=1e-6, atol=1e-6)


def test_vmap_over_the_csr_is_refused(device):
    csr = square_and_rows(device=device)[0]
    weights = csr.weight.expand(2, -1)
    x = features(csr, False)
    with pytest.raises(ValueError, match="the CSR is batched"):
        torch.vmap(lambda w: torch.ops.sobgnn.propagate(*csr._replace(weight=w), x))(weights)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weight", Tensor.double),
        ("t_weight", lambda t: t[:-1]),
        ("indices", Tensor.short),
        ("indptr", Tensor.int),
        ("row_scale", lambda t: t[:, :-1]),
        ("row_scale", lambda t: t[1:]),
        ("column_scale", Tensor.double),
    ],
)
def test_a_csr_that_contradicts_itself_is_refused_in_one_line(name, change):
    csr = square_and_rows()[0]
    with pytest.raises(ValueError, match=f"`{name}` does not fit|`t_weight` does not fit") as caught:
        propagate(csr._replace(**{name: change(getattr(csr, name))}), features(csr, False))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="one device"):
        propagate(csr._replace(weight=csr.weight.to("meta")), features(csr, False))


def test_the_environment_chooses_the_backend(monkeypatch):
    x = torch.zeros(1)
    monkeypatch.delenv("SOBGNN_BACKEND", raising=False)
    assert backend() == backend(x)
    assert backend(x) in ("native", "portable")
    monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    assert backend(x) == "portable"
    monkeypatch.setenv("SOBGNN_BACKEND", "fast")
    with pytest.raises(ValueError, match="native, portable or triton, but got 'fast'"):
        backend(x)
    monkeypatch.setenv("SOBGNN_BACKEND", "triton")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match="serves CUDA tensors"):
        backend(x)
    monkeypatch.setenv("SOBGNN_BACKEND", "native")
    with pytest.raises(ValueError, match="serves CPU tensors"):
        backend(torch.zeros(1, device="meta"))
