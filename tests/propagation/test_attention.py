"""One pass of attention: the definition, its gradients, many members, the same bits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from sobgnn.propagation.attention import EdgePattern, additive, gated, scaled_dot

KINDS = ["additive", "gated", "scaled dot"]
NODES = 24


def dense_weights(rows: list[int] | None = None) -> Tensor:
    """Weights of a random graph, NaN where there is no edge; node 5 has no edges at all and node 0 has all others."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.rand(NODES, NODES, generator=generator, dtype=torch.float64)
    missing = torch.rand(NODES, NODES, generator=generator) < 0.7
    missing[0], missing[:, 0], missing[5], missing[:, 5] = False, False, True, True
    missing.fill_diagonal_(True)
    weight[missing] = float("nan")
    return weight if rows is None else weight[rows]


def pattern_of(weight: Tensor, device: str = "cpu") -> EdgePattern:
    parts = []
    for matrix in (weight, weight.T):
        present = ~matrix.isnan()
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), present.sum(dim=1).cumsum(0)])
        parts += [indptr, present.nonzero()[:, 1].int(), matrix[present].float()]
    return EdgePattern(*(part.contiguous().to(device) for part in parts))


def terms_of(kind: str, rows: int, heads: int, channels: int, seed: int = 0, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)

    query, value = draw(rows, heads, channels), draw(NODES, heads, channels)
    target, source = draw(rows, heads), draw(NODES, heads)
    if kind == "additive":
        return [target, source, draw(heads), value]
    if kind == "gated":
        return [query, target, source, value]
    return [query, draw(NODES, heads, channels), target, value]


def fused(kind: str, edges: EdgePattern, terms: list[Tensor]) -> tuple[Tensor, ...]:
    if kind == "additive":
        return (additive(edges, *terms),)
    return (gated(edges, *terms),) if kind == "gated" else scaled_dot(edges, *terms)


def defined(kind: str, weight: Tensor, terms: list[Tensor]) -> tuple[Tensor, ...]:
    """The equations, over all pairs of a row and a node."""
    w = weight.float().double().nan_to_num().unsqueeze(2)  # the pattern's weights are float32
    if kind == "additive":
        target, source, edge, value = terms
        score = torch.nn.functional.leaky_relu(target[:, None] + source[None] + w * edge, 0.2)
    elif kind == "gated":
        query, target, source, value = terms
        gate = torch.einsum("ihc,jhc->ijh", query, value).sigmoid()
        score = torch.nn.functional.leaky_relu((target[:, None] + source[None]) * gate, 0.2)
    else:
        query, key, target, value = terms
        score = (torch.einsum("ihc,jhc->ijh", query, key) + w * target[:, None]) / value.shape[2] ** 0.5
    present = ~weight.isnan().unsqueeze(2)
    score = score.masked_fill(~present, float("-inf"))
    power = (score - score.detach().amax(dim=1, keepdim=True).nan_to_num(neginf=0.0)).exp()
    share = power / power.sum(dim=1, keepdim=True).clamp_min(1e-300)
    sums = torch.einsum("ijh,jhc->ihc", share, value)
    return (sums, (share * w).sum(dim=1)) if kind == "scaled dot" else (sums,)


@pytest.mark.parametrize("rows", [None, [7, 5, 0, 20]], ids=["all rows", "some rows"])
@pytest.mark.parametrize(("heads", "channels"), [(1, 1), (3, 5), (2, 40), (9, 16)])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_and_gradients_are_those_of_the_definition(
    device: str, kind: str, heads: int, channels: int, rows: list[int] | None
) -> None:
    weight = dense_weights(rows)
    # The CUDA kernels compute in float32, the others in either.
    precise = device == "cpu"
    terms = [term.requires_grad_() for term in terms_of(kind, len(weight), heads, channels)]
    given = [t.detach().to(device, torch.float64 if precise else torch.float32).requires_grad_() for t in terms]
    want = defined(kind, weight, terms)
    got = fused(kind, pattern_of(weight, device), given)
    tolerance: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9} if precise else {"rtol": 1e-4, "atol": 1e-4}
    probes = [torch.randn(part.shape, dtype=torch.float64) for part in want]
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours.double().cpu(), theirs, **tolerance)
    sum((part * probe).sum() for part, probe in zip(want, probes, strict=True)).backward()  # type: ignore[union-attr]
    sum((part * probe.to(part)).sum() for part, probe in zip(got, probes, strict=True)).backward()  # type: ignore[union-attr]
    for ours, theirs in zip(given, terms, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(ours.grad.double().cpu(), theirs.grad, **tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_pass_gradcheck(device: str, kind: str) -> None:
    if device == "cuda":
        pytest.skip("the CUDA kernels compute in float32")
    weight = dense_weights([7, 5, 0, 20])
    edges = pattern_of(weight)
    terms = tuple(term.requires_grad_() for term in terms_of(kind, 4, 2, 3))
    assert torch.autograd.gradcheck(lambda *given: fused(kind, edges, list(given)), terms)


@pytest.mark.parametrize("kind", KINDS)
def test_mapped_members_are_those_computed_one_by_one(device: str, kind: str) -> None:
    weight = dense_weights()
    edges = pattern_of(weight, device)
    members = [[t.float().to(device) for t in terms_of(kind, NODES, 2, 5, seed)] for seed in range(3)]
    # The last term is shared by all members.
    stacked = [torch.stack(values) for values in zip(*members, strict=True)]
    shared = stacked[-1][0]
    dims = (*[0] * (len(stacked) - 1), None)
    got = torch.vmap(lambda *given: fused(kind, edges, list(given)), in_dims=dims)(*stacked[:-1], shared)
    for s, own in enumerate(members):
        for ours, theirs in zip(got, fused(kind, edges, [*own[:-1], shared]), strict=True):
            torch.testing.assert_close(ours[s], theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_bits_come_out_every_time_and_on_any_number_of_threads(device: str, kind: str) -> None:
    weight = dense_weights()
    edges = pattern_of(weight, device)

    def run() -> list[Tensor]:
        given = [t.float().to(device).requires_grad_() for t in terms_of(kind, NODES, 3, 8)]
        parts = fused(kind, edges, given)
        sum(part.square().sum() for part in parts).backward()  # type: ignore[union-attr]
        return [*(part.detach() for part in parts), *(t.grad for t in given if t.grad is not None)]

    first = run()
    torch.set_num_threads(3)
    for again in (run(), run()):
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_the_size_of_the_edges_is_kept_for_the_backward_pass(device: str, kind: str) -> None:
    weight = torch.rand(NODES, NODES, dtype=torch.float64)  # every pair an edge
    edges = pattern_of(weight, device)
    heads, channels = 6, 2
    given = [t.float().to(device).requires_grad_() for t in terms_of(kind, NODES, heads, channels)]
    kept: list[int] = []

    def keep(value: Tensor) -> Tensor:
        kept.append(value.numel())
        return value

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        fused(kind, edges, given)
    # The pattern itself has one number for each edge; scores would have one for each edge and head.
    assert kept
    assert max(kept) <= NODES * NODES < NODES * NODES * heads


@pytest.mark.parametrize("kind", KINDS)
def test_large_scores_neither_overflow_nor_vanish(device: str, kind: str) -> None:
    weight = dense_weights()
    terms = terms_of(kind, NODES, 2, 4, scale=100.0)
    given = [t.float().to(device).requires_grad_() for t in terms]
    parts = fused(kind, pattern_of(weight, device), given)
    for ours, theirs in zip(parts, defined(kind, weight, terms), strict=True):
        torch.testing.assert_close(ours.double().cpu(), theirs, rtol=1e-2, atol=1e-1)
    sum(part.sum() for part in parts).backward()  # type: ignore[union-attr]
    assert all(t.grad is not None and t.grad.isfinite().all() for t in given)


def test_a_row_without_edges_is_zero_and_so_are_its_gradients(device: str) -> None:
    given = [t.float().to(device).requires_grad_() for t in terms_of("scaled dot", NODES, 2, 4)]
    sums, mean_weight = scaled_dot(pattern_of(dense_weights(), device), *given)
    assert not sums[5].any()
    assert not mean_weight[5].any()
    (sums.sum() + mean_weight.sum()).backward()
    assert all(t.grad is not None and not t.grad[5].any() for t in given)


@pytest.mark.parametrize("kind", KINDS)
def test_the_operator_keeps_torchs_contract(device: str, kind: str) -> None:
    edges = pattern_of(dense_weights(), device)
    given = [t.float().to(device).requires_grad_() for t in terms_of(kind, NODES, 2, 4)]
    if kind == "additive":
        terms: list[Tensor | None] = [None, None, *given]
    elif kind == "gated":
        terms = [given[0], None, given[1], given[2], None, given[3]]
    else:
        terms = [given[0], given[1], given[2], None, None, given[3]]
    torch.library.opcheck(torch.ops.sobgnn.attend.default, (*edges, KINDS.index(kind), *terms))


def test_wrong_shapes_and_types_are_named() -> None:
    edges = pattern_of(dense_weights())
    target, source, edge, value = (t.float() for t in terms_of("additive", NODES, 2, 3))
    with pytest.raises(ValueError, match=r"`target` must have shape \[24, 2\], but got \[24, 1\]"):
        additive(edges, target[:, :1], source, edge, value)
    with pytest.raises(ValueError, match=r"`value` must have shape \[24, heads, channels\], but got \[23, 2, 3\]"):
        additive(edges, target, source, edge, value[1:])
    with pytest.raises(TypeError, match=r"`source` is torch\.float64 and `value` is torch\.float32"):
        additive(edges, target, source.double(), edge, value)
    with pytest.raises(TypeError, match="float32 or float64"):
        additive(edges, *(t.half() for t in (target, source, edge, value)))
