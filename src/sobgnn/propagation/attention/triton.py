"""Attention on CUDA, in Triton: one program for a row and a block of heads walks the row's edges in tiles.

Each lane of a tile keeps its own running maximum, sum and weighted values (an online softmax); the lanes are joined
once, after the last tile. Programs of one block of heads follow each other, so that what they read stays in the cache:
its bandwidth is what bounds them. A program is one warp, and the number of channels is known when it is compiled, so
that rows are read in wide loads.
"""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from sobgnn.propagation.attention.terms import ADDITIVE, SCALED_DOT, SLOPE, EdgePattern, Gradients, Outputs, Terms

# Edges whose rows are read at once, and heads × channels of a program: the fastest of those tried on an H200.
_SMALL, _LARGE = (4, 64), (8, 128)


@triton.jit
def _score(product, target, source, along, scale, KIND: tl.constexpr, SLOPE: tl.constexpr):
    """The score, its derivative by what the leaky ReLU or the scale reads, and the gate; all [E, B]."""
    gate = product
    if KIND == 0:
        inner = target + source + along
    elif KIND == 1:
        gate = tl.sigmoid(product)
        inner = (target + source) * gate
    else:
        inner = product + target * along
    if KIND == 2:
        score = inner * scale
        slope = scale
    else:
        slope = tl.where(inner > 0, 1.0, SLOPE)
        score = inner * slope
    return score, slope, gate


@triton.jit
def _forward(
    indptr, other, weight, query, key, target, source, edge, value, out, moment, log_sum, heads, scale,
    channels: tl.constexpr, KIND: tl.constexpr, SLOPE: tl.constexpr, E: tl.constexpr, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    known = head < heads
    inside = known[:, None] & (column < channels)[None, :]
    here = row * heads + head
    own = here[:, None] * channels + column[None, :]
    t = tl.load(target + here, mask=known, other=0.0)[None, :]
    if KIND == 0:
        factor = tl.load(edge + head, mask=known, other=0.0)[None, :]
    else:
        q = tl.load(query + own, mask=inside, other=0.0)[None, :, :]
    highest = tl.full([E, B], float("-inf"), tl.float32)
    total = tl.zeros([E, B], tl.float32)
    mean = tl.zeros([E, B], tl.float32)
    sums = tl.zeros([E, B, C], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        valid = e < end
        j = tl.load(other + e, mask=valid, other=0).to(tl.int64)
        w = tl.load(weight + e, mask=valid, other=0.0)[:, None]
        there = j[:, None] * heads + head[None, :]
        read = valid[:, None] & known[None, :]
        place = there[:, :, None] * channels + column[None, None, :]
        wide = valid[:, None, None] & inside[None, :, :]
        v = tl.load(value + place, mask=wide, other=0.0)
        if KIND == 0:
            u = tl.load(source + there, mask=read, other=0.0)
            score, _, _ = _score(u, t, u, w * factor, scale, KIND, SLOPE)
        elif KIND == 1:
            u = tl.load(source + there, mask=read, other=0.0)
            score, _, _ = _score(tl.sum(q * v, axis=2), t, u, w, scale, KIND, SLOPE)
        else:
            k = tl.load(key + place, mask=wide, other=0.0)
            product = tl.sum(q * k, axis=2)
            score, _, _ = _score(product, t, product, w, scale, KIND, SLOPE)
        score = tl.where(valid[:, None], score, float("-inf"))
        top = tl.maximum(highest, score)
        level = tl.where(top == float("-inf"), 0.0, top)
        kept = tl.exp(highest - level)
        power = tl.exp(score - level)
        highest = top
        total = total * kept + power
        mean = mean * kept + power * w
        sums = sums * kept[:, :, None] + power[:, :, None] * v
    top = tl.max(highest, axis=0)
    level = tl.where(top == float("-inf"), 0.0, top)
    kept = tl.exp(highest - level[None, :])
    whole = tl.sum(total * kept, axis=0)
    share = tl.where(whole > 0, 1.0 / whole, 0.0)
    result = tl.sum(sums * kept[:, :, None], axis=0) * share[:, None]
    tl.store(out + own, result, mask=inside)
    tl.store(moment + here, tl.sum(mean * kept, axis=0) * share, mask=known)
    tl.store(log_sum + here, level + tl.log(whole), mask=known)


@triton.jit
def _rows(
    indptr, other, weight, query, key, target, source, edge, value, out, moment, log_sum, to_out, to_moment,
    average, to_query, to_target, to_edge, heads, scale,
    channels: tl.constexpr, KIND: tl.constexpr, SLOPE: tl.constexpr, E: tl.constexpr, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """What belongs to rows: gradients of queries and targets, each row's part of the edge factor's; and the average
    derivative of the row's shares, which the columns read."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    known = head < heads
    inside = known[:, None] & (column < channels)[None, :]
    here = row * heads + head
    own = here[:, None] * channels + column[None, :]
    t = tl.load(target + here, mask=known, other=0.0)[None, :]
    level = tl.load(log_sum + here, mask=known, other=0.0)[None, :]
    gradient = tl.load(to_out + own, mask=inside, other=0.0)
    along = tl.load(to_moment + here, mask=known, other=0.0)
    center = tl.sum(gradient * tl.load(out + own, mask=inside, other=0.0), axis=1)
    center += along * tl.load(moment + here, mask=known, other=0.0)
    tl.store(average + here, center, mask=known)
    if KIND == 0:
        factor = tl.load(edge + head, mask=known, other=0.0)[None, :]
        edges = tl.zeros([E, B], tl.float32)
    else:
        q = tl.load(query + own, mask=inside, other=0.0)[None, :, :]
        queries = tl.zeros([E, B, C], tl.float32)
    targets = tl.zeros([E, B], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        valid = e < end
        j = tl.load(other + e, mask=valid, other=0).to(tl.int64)
        w = tl.load(weight + e, mask=valid, other=0.0)[:, None]
        there = j[:, None] * heads + head[None, :]
        read = valid[:, None] & known[None, :]
        place = there[:, :, None] * channels + column[None, None, :]
        wide = valid[:, None, None] & inside[None, :, :]
        v = tl.load(value + place, mask=wide, other=0.0)
        if KIND == 0:
            u = tl.load(source + there, mask=read, other=0.0)
            score, slope, gate = _score(u, t, u, w * factor, scale, KIND, SLOPE)
        elif KIND == 1:
            u = tl.load(source + there, mask=read, other=0.0)
            score, slope, gate = _score(tl.sum(q * v, axis=2), t, u, w, scale, KIND, SLOPE)
        else:
            k = tl.load(key + place, mask=wide, other=0.0)
            product = tl.sum(q * k, axis=2)
            score, slope, gate = _score(product, t, product, w, scale, KIND, SLOPE)
        share = tl.where(read, tl.exp(score - level), 0.0)
        to_share = tl.sum(gradient[None, :, :] * v, axis=2) + along[None, :] * w
        inner = share * (to_share - center[None, :]) * slope
        if KIND == 0:
            targets += inner
            edges += inner * w
        elif KIND == 1:
            targets += inner * gate
            queries += (inner * (t + u) * gate * (1 - gate))[:, :, None] * v
        else:
            targets += inner * w
            queries += inner[:, :, None] * k
    tl.store(to_target + here, tl.sum(targets, axis=0), mask=known)
    if KIND == 0:
        tl.store(to_edge + here, tl.sum(edges, axis=0), mask=known)
    else:
        tl.store(to_query + own, tl.sum(queries, axis=0), mask=inside)


@triton.jit
def _nodes(
    indptr, other, weight, query, key, target, source, edge, value, log_sum, to_out, to_moment, average,
    to_key, to_source, to_value, heads, scale,
    channels: tl.constexpr, KIND: tl.constexpr, SLOPE: tl.constexpr, E: tl.constexpr, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """What belongs to columns: gradients of keys, sources and values."""
    node = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1).to(tl.int64) * B + tl.arange(0, B)
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    begin = tl.load(indptr + node)
    end = tl.load(indptr + node + 1)
    known = head < heads
    inside = known[:, None] & (column < channels)[None, :]
    here = node * heads + head
    own = here[:, None] * channels + column[None, :]
    v = tl.load(value + own, mask=inside, other=0.0)[None, :, :]
    if KIND == 0:
        factor = tl.load(edge + head, mask=known, other=0.0)[None, :]
    if KIND == 2:
        k = tl.load(key + own, mask=inside, other=0.0)[None, :, :]
        keys = tl.zeros([E, B, C], tl.float32)
    else:
        u = tl.load(source + here, mask=known, other=0.0)[None, :]
        sources = tl.zeros([E, B], tl.float32)
    values = tl.zeros([E, B, C], tl.float32)
    for start in range(begin, end, E):
        e = start + lane
        valid = e < end
        i = tl.load(other + e, mask=valid, other=0).to(tl.int64)
        w = tl.load(weight + e, mask=valid, other=0.0)[:, None]
        there = i[:, None] * heads + head[None, :]
        read = valid[:, None] & known[None, :]
        place = there[:, :, None] * channels + column[None, None, :]
        wide = valid[:, None, None] & inside[None, :, :]
        gradient = tl.load(to_out + place, mask=wide, other=0.0)
        t = tl.load(target + there, mask=read, other=0.0)
        level = tl.load(log_sum + there, mask=read, other=0.0)
        center = tl.load(average + there, mask=read, other=0.0)
        along = tl.load(to_moment + there, mask=read, other=0.0)
        if KIND == 0:
            score, slope, gate = _score(t, t, u, w * factor, scale, KIND, SLOPE)
        else:
            q = tl.load(query + place, mask=wide, other=0.0)
            if KIND == 1:
                score, slope, gate = _score(tl.sum(q * v, axis=2), t, u, w, scale, KIND, SLOPE)
            else:
                product = tl.sum(q * k, axis=2)
                score, slope, gate = _score(product, t, product, w, scale, KIND, SLOPE)
        share = tl.where(read, tl.exp(score - level), 0.0)
        to_share = tl.sum(gradient * v, axis=2) + along * w
        inner = share * (to_share - center) * slope
        values += share[:, :, None] * gradient
        if KIND == 0:
            sources += inner
        elif KIND == 1:
            sources += inner * gate
            values += (inner * (t + u) * gate * (1 - gate))[:, :, None] * q
        else:
            keys += inner[:, :, None] * q
    tl.store(to_value + own, tl.sum(values, axis=0), mask=inside)
    if KIND == 2:
        tl.store(to_key + own, tl.sum(keys, axis=0), mask=inside)
    else:
        tl.store(to_source + here, tl.sum(sources, axis=0), mask=known)


def forward(edges: EdgePattern, kind: int, terms: Terms) -> Outputs:
    """Sums, mean weights and the logarithms of the softmax's sums."""
    found = Outputs.empty(edges, terms)
    rows, heads, channels = found.out.shape
    if found.out.numel():
        grid, options = _launch(rows, heads, channels, kind, _SMALL if kind == SCALED_DOT else _LARGE)
        _forward[grid](*edges[:3], *_given(terms), *found, heads, channels**-0.5, **options)
    return found


def backward(
    edges: EdgePattern, kind: int, terms: Terms, found: Outputs, to_out: Tensor, to_moment: Tensor
) -> Gradients:
    """Gradients of the terms from those of the sums and of the mean weights."""
    rows, (nodes, heads, channels) = len(found.out), terms.value.shape
    size, tile = (heads, channels**-0.5), _LARGE if kind == ADDITIVE else _SMALL
    to = Gradients.empty(terms)
    average = torch.empty_like(found.moment)
    if found.out.numel():
        grid, options = _launch(rows, heads, channels, kind, tile)
        gradients = [average if value is None else value for value in (to.query, to.target, to.edge)]
        _rows[grid](*edges[:3], *_given(terms), *found, to_out, to_moment, average, *gradients, *size, **options)
    if to.value.numel():
        grid, options = _launch(nodes, heads, channels, kind, tile)
        saved = (found.log_sum, to_out, to_moment, average)
        gradients = [average if value is None else value for value in (to.key, to.source, to.value)]
        _nodes[grid](*edges[3:], *_given(terms), *saved, *gradients, *size, **options)
    return to.summed()


def _given(terms: Terms) -> list[Tensor]:
    """The terms, with a stand-in that is never read where a kind has none."""
    return [terms.value if term is None else term for term in terms]


def _launch(
    rows: int, heads: int, channels: int, kind: int, tile: tuple[int, int]
) -> tuple[tuple[int, int], dict[str, int | float]]:
    """The grid and a program's tile: heads and channels to powers of two."""
    lanes, width = tile
    columns: int = triton.next_power_of_2(channels)
    block: int = max(1, min(triton.next_power_of_2(heads), width // columns))
    options = {"channels": channels, "KIND": kind, "SLOPE": SLOPE, "E": lanes, "B": block, "C": columns}
    return (rows, triton.cdiv(heads, block)), {**options, "num_warps": 1 if columns <= width else 4}
