"""Attention in plain torch: short, slow, and what the compiled kernels are tested against."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.propagation.attention.terms import ADDITIVE, GATED, SLOPE, EdgePattern, Gradients, Outputs, Terms


def forward(edges: EdgePattern, kind: int, terms: Terms) -> Outputs:
    """Sums, mean weights and the logarithms of the softmax's sums."""
    rows, (_, heads, _) = len(edges.indptr) - 1, terms.value.shape
    targets, sources = _ends(edges)
    score = _scores(edges, kind, terms)[0]
    index = targets.unsqueeze(1).expand(-1, heads)
    highest = score.new_full((rows, heads), float("-inf")).scatter_reduce_(0, index, score, "amax")
    powers = (score - highest[targets]).exp_()
    total = score.new_zeros(rows, heads).index_add_(0, targets, powers)
    shares = powers / total[targets]
    out = _weighted(rows, targets, shares, terms.value, sources)
    moment = score.new_zeros(rows, heads).index_add_(0, targets, shares * _weight(edges, shares))
    return Outputs(out, moment, highest + total.log())


def backward(
    edges: EdgePattern, kind: int, terms: Terms, found: Outputs, to_out: Tensor, to_moment: Tensor
) -> Gradients:
    """Gradients of the terms from those of the sums and of the mean weights."""
    rows, (nodes, _, channels) = len(edges.indptr) - 1, terms.value.shape
    targets, sources = _ends(edges)
    score, inner, product = _scores(edges, kind, terms)
    weight = _weight(edges, score)
    shares = (score - found.log_sum[targets]).exp()
    mean = (to_out * found.out).sum(dim=2) + to_moment * found.moment
    to_share = _products(to_out, targets, terms.value, sources) + to_moment[targets] * weight
    to_score = shares * (to_share - mean[targets])
    to_value = _weighted(nodes, sources, shares, to_out, targets)

    def sums(size: int, index: Tensor, values: Tensor) -> Tensor:
        return values.new_zeros(size, values.shape[1]).index_add_(0, index, values)

    if kind not in (ADDITIVE, GATED):
        assert terms.key is not None
        assert terms.query is not None
        to_score = to_score / channels**0.5
        to_query = _weighted(rows, targets, to_score, terms.key, sources)
        to_key = _weighted(nodes, sources, to_score, terms.query, targets)
        return Gradients(to_query, to_key, sums(rows, targets, to_score * weight), None, None, to_value)
    to_inner = torch.where(inner > 0, to_score, SLOPE * to_score)
    if kind == ADDITIVE:
        ends = sums(rows, targets, to_inner), sums(nodes, sources, to_inner)
        return Gradients(None, None, *ends, (to_inner * weight).sum(dim=0), to_value)
    assert product is not None
    assert terms.query is not None
    assert terms.source is not None
    gate = product.sigmoid()
    to_product = to_inner * (terms.target[targets] + terms.source[sources]) * gate * (1 - gate)
    to_query = _weighted(rows, targets, to_product, terms.value, sources)
    to_value += _weighted(nodes, sources, to_product, terms.query, targets)
    to_sum = to_inner * gate
    return Gradients(to_query, None, sums(rows, targets, to_sum), sums(nodes, sources, to_sum), None, to_value)


def _scores(edges: EdgePattern, kind: int, terms: Terms) -> tuple[Tensor, Tensor, Tensor | None]:
    """The scores [E, H], what the leaky ReLU reads, and the products of queries and keys where there are any."""
    targets, sources = _ends(edges)
    query, key, target, source, edge, value = terms
    if kind == ADDITIVE:
        assert source is not None
        assert edge is not None
        inner = target[targets] + source[sources] + _weight(edges, target) * edge
        return F.leaky_relu(inner, SLOPE), inner, None
    assert query is not None
    product = _products(query, targets, value if key is None else key, sources)
    if kind == GATED:
        assert source is not None
        inner = (target[targets] + source[sources]) * product.sigmoid()
        return F.leaky_relu(inner, SLOPE), inner, product
    score = (product + target[targets] * _weight(edges, target)) / value.shape[2] ** 0.5
    return score, score, product


def _ends(edges: EdgePattern) -> tuple[Tensor, Tensor]:
    """Row and node of each edge, int64 [E]."""
    rows = torch.arange(len(edges.indptr) - 1, device=edges.indptr.device)
    return rows.repeat_interleave(edges.indptr.diff()), edges.sources.long()


def _weight(edges: EdgePattern, like: Tensor) -> Tensor:
    return edges.weight.to(like.dtype).unsqueeze(1)


def _products(a: Tensor, at: Tensor, b: Tensor, there: Tensor) -> Tensor:
    """a[at] · b[there] for each head, [E, H]; a head at a time, so that memory holds the ends of one."""
    parts = [(a[at, h] * b[there, h]).sum(dim=1) for h in range(a.shape[1])]
    return torch.stack(parts, dim=1)


def _weighted(size: int, index: Tensor, shares: Tensor, x: Tensor, at: Tensor) -> Tensor:
    """Sums over the edges of shares · x[at] at ``index``, [size, H, c]."""
    parts = [
        x.new_zeros(size, x.shape[2]).index_add_(0, index, shares[:, h : h + 1] * x[at, h]) for h in range(x.shape[1])
    ]
    return torch.stack(parts, dim=1)
