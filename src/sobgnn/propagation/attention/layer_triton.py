"""Kernels of a whole attention layer on CUDA, in Triton: what :mod:`~sobgnn.propagation.attention.layer` launches.

Rows that are gathered are copied to a compact array first, in float16 or float32 and padded to 16 bytes. A program is
one warp, which walks the edges of one row, or of a segment of one that has many, for a block of heads that is wide
enough to occupy its threads, so that sums over edges stay within a thread. Heads of 32 channels or more are walked as
two halves that share their scores: fewer threads then compute the same score. Places in the compact arrays are 32-bit
numbers.
"""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from sobgnn.propagation.attention.walks_triton import MERGED, own_edges, part_places

# Compiled once for all numbers of heads and members.
SIZES = ["total", "heads", "units", "length", "members", "most"]


@triton.jit
def rounded(x, dtype: tl.constexpr):
    """x in the type of the compact arrays; float16 has no room above 65504."""
    if dtype == tl.float16:
        x = tl.minimum(tl.maximum(x, -65504.0), 65504.0)
    return x.to(dtype)


@triton.jit
def member_columns(head, column, heads, units, c: tl.constexpr):
    """Where a head's columns stand in a row of all members' maps; a member has ``units`` blocks of c columns."""
    return ((head // heads) * units + head % heads)[:, None] * c + column[None, :]


@triton.jit(do_not_specialize=SIZES)
def prepare(
    maps, first, second, key, value, target, source, total, heads, units,
    KIND: tl.constexpr, c: tl.constexpr, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Compact copies of what is gathered, and what of the scores belongs to single nodes, but queries."""
    node = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * B + tl.arange(0, B)
    column = tl.arange(0, C)
    known = head < total
    inside = known[:, None] & (column < c)[None, :]
    stored = tl.broadcast_to(known[:, None], [B, C])
    row = maps + node * ((total // heads) * units * c)
    at = member_columns(head, column, heads, units, c)
    vector = head[:, None] * c + column[None, :]
    place = node * total * C + head[:, None] * C + column[None, :]
    dtype: tl.constexpr = value.dtype.element_ty
    if KIND == 2:
        shift = member_columns(head, column, heads, 3 * heads, c)
        size = heads * c
        k = tl.load(row + at, mask=inside, other=0.0) + tl.load(first + shift + size, mask=inside, other=0.0)
        v = tl.load(row + at + size, mask=inside, other=0.0)
        v += tl.load(first + shift + 2 * size, mask=inside, other=0.0)
        tl.store(key + place, rounded(k, dtype), mask=stored)
        tl.store(value + place, rounded(v, dtype), mask=stored)
    else:
        v = tl.load(row + at, mask=inside, other=0.0)
        to = tl.load(first + vector, mask=inside, other=0.0)
        of = tl.load(second + vector, mask=inside, other=0.0)
        tl.store(value + place, rounded(v, dtype), mask=stored)
        tl.store(target + node * total + head, tl.sum(v * to, axis=1), mask=known)
        tl.store(source + node * total + head, tl.sum(v * of, axis=1), mask=known)


@triton.jit(do_not_specialize=SIZES)
def prepare_queries(
    queries, first, second, query, target, total, heads, units,
    KIND: tl.constexpr, c: tl.constexpr, B: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Compact copies of the rows' queries, and what of the scores they give to an edge of weight 1."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * B + tl.arange(0, B)
    column = tl.arange(0, C)
    known = head < total
    inside = known[:, None] & (column < c)[None, :]
    at = row * ((total // heads) * units * c) + member_columns(head, column, heads, units, c)
    q = tl.load(queries + at, mask=inside, other=0.0)
    q += tl.load(first + member_columns(head, column, heads, 3 * heads, c), mask=inside, other=0.0)
    along = tl.load(second + head[:, None] * c + column[None, :], mask=inside, other=0.0)
    place = row * total * C + head[:, None] * C + column[None, :]
    stored = tl.broadcast_to(known[:, None], [B, C])
    tl.store(query + place, rounded(q, query.dtype.element_ty), mask=stored)
    tl.store(target + row * total + head, tl.sum(q * along, axis=1), mask=known)


@triton.jit
def score_of(product, target, source, along, scale, KIND: tl.constexpr, SLOPE: tl.constexpr):
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
def share_of(score, level, valid):
    """exp(score - level), 0 beyond the row's end."""
    return tl.where(valid, tl.exp(score - level), 0.0)


@triton.jit
def _finish(
    result, row, head, column, queries, edge, bias, row_hash, column_hash, threshold, factor, out, middle, total,
    heads, units, shift, KIND: tl.constexpr, c: tl.constexpr, HIDDEN: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """What follows the sum: the edges' part, and of a hidden layer skip, bias, ReLU and dropout."""
    known = head < total
    inside = known[:, None] & (column < c)[None, :]
    vector = head[:, None] * c + column[None, :]
    if KIND == 2:
        result += middle[:, None] * tl.load(edge + shift * c + vector, mask=inside, other=0.0)
    if HIDDEN:
        member = head // heads
        result += tl.load(bias + vector, mask=inside, other=0.0)
        if KIND == 2:
            skip = member_columns(head, column, heads, units, c) + heads * c
            result += tl.load(queries + row * ((total // heads) * units * c) + skip, mask=inside, other=0.0)
        result = tl.maximum(result, 0.0)
        if DROP:
            of_row = tl.load(row_hash + row * (total // heads) + member, mask=known, other=0)
            at = (head % heads)[:, None] * c + column[None, :]
            of_column = tl.load(column_hash + at, mask=inside, other=0)
            draw = (of_row[:, None] ^ of_column).to(tl.uint32, bitcast=True) * 0x7FEB352D
            draw = (draw ^ (draw >> 15)) * 0x846CA68B
            limit = tl.load(threshold + member, mask=known, other=0)
            grown = tl.load(factor + member, mask=known, other=0.0)
            kept = draw.to(tl.int32, bitcast=True) >= limit[:, None]
            result = tl.where(kept, result * grown[:, None], 0.0)
    tl.store(out + row * total * c + vector, result, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def forward(
    long, length, parts, indptr, other, weight, index, queries, query, key, value, target, source, edge, bias, row_hash,
    column_hash, threshold, factor, out, above, moment, log_sum, total, heads, units, members, most, scale,
    KIND: tl.constexpr, SLOPE: tl.constexpr, c: tl.constexpr, HIDDEN: tl.constexpr, DROP: tl.constexpr,
    PART: tl.constexpr, E: tl.constexpr, B: tl.constexpr, C: tl.constexpr, TWO: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """The layer's rows. A hidden layer's pass bias, ReLU and dropout; the last one's are the heads' own sums."""
    head = tl.program_id(1) * B + tl.arange(0, B)
    row, member, begin, end, head = own_edges(long, length, indptr, head, total, members, most, PART)
    shift = member * total  # of its heads, among those of all members
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    asked = row if KIND == 2 else tl.load(index + row)  # where its query and target stand
    P: tl.constexpr = 2 * C if TWO else C
    known = head < total
    here = row * total + head
    stored = tl.broadcast_to(known[:, None], [B, C])
    # Reads beyond the last head or edge are of others' rows, and count for nothing.
    read_head = tl.minimum(head, total - 1)
    tail = read_head[:, None] * P + column[None, :]
    stride = total * P
    t = tl.load(target + asked * total + read_head)[:, None]
    level = tl.full([B], -1e30, tl.float32)
    whole = tl.zeros([B], tl.float32)
    mean = tl.zeros([B], tl.float32)  # of weights; for additive scores the part on the leaky ReLU's steep side
    sums = tl.zeros([B, C], tl.float32)
    if TWO:
        sums2 = tl.zeros([B, C], tl.float32)
    if KIND == 0:
        slope_of_weight = tl.load(edge + shift + read_head)[:, None]
        steeps = tl.zeros([B, C], tl.float32)
        if TWO:
            steeps2 = tl.zeros([B, C], tl.float32)
    else:
        q = tl.load(query + asked * stride + tail).to(tl.float32)[:, None, :]
        if TWO:
            q2 = tl.load(query + asked * stride + tail + C).to(tl.float32)[:, None, :]
    if PART == 3:
        for segment in tl.range(begin, end, loop_unroll_factor=MERGED):
            vectors, numbers = part_places(parts, segment, read_head, column, total, P)
            height = tl.load(numbers)
            top = tl.maximum(level, height)
            kept, added = tl.exp(level - top), tl.exp(height - top)
            level = top
            whole = whole * kept + tl.load(numbers + 1) * added
            mean = mean * kept + tl.load(numbers + 2) * added
            sums = sums * kept[:, None] + tl.load(vectors) * added[:, None]
            if TWO:
                sums2 = sums2 * kept[:, None] + tl.load(vectors + C) * added[:, None]
            if KIND == 0:
                steeps = steeps * kept[:, None] + tl.load(vectors + P) * added[:, None]
                if TWO:
                    steeps2 = steeps2 * kept[:, None] + tl.load(vectors + P + C) * added[:, None]
    else:
        for start in tl.range(begin, end, E, loop_unroll_factor=UNROLL):
            e = start + lane
            read = (e < end)[None, :]
            j = tl.load(other + e, mask=e < end, other=0)
            w = tl.load(weight + e, mask=e < end, other=0.0)[None, :]
            place = (j * stride)[None, :, None] + tail[:, None, :]
            v = tl.load(value + place).to(tl.float32)
            if TWO:
                v2 = tl.load(value + place + C).to(tl.float32)
            if KIND == 2:
                k = tl.load(key + place).to(tl.float32)
                if TWO:
                    k2 = tl.load(key + place + C).to(tl.float32)
            else:
                u = tl.load(source + (j * total)[None, :] + read_head[:, None])
            if KIND == 0:
                score, slope, _ = score_of(u, t, u, w * slope_of_weight, scale, KIND, SLOPE)
            else:
                product = tl.sum(q * (k if KIND == 2 else v), axis=2)
                if TWO:
                    product += tl.sum(q2 * (k2 if KIND == 2 else v2), axis=2)
                score, slope, _ = score_of(product, t, product if KIND == 2 else u, w, scale, KIND, SLOPE)
            score = tl.where(read, score, -1e30)
            top = tl.maximum(level, tl.max(score, axis=1))
            kept = tl.exp(level - top)
            level = top
            power = share_of(score, top[:, None], read)
            whole = whole * kept + tl.sum(power, axis=1)
            sums = sums * kept[:, None] + tl.sum(power[:, :, None] * v, axis=1)
            if TWO:
                sums2 = sums2 * kept[:, None] + tl.sum(power[:, :, None] * v2, axis=1)
            if KIND == 0:
                power = tl.where(slope == 1.0, power, 0.0)
                mean = mean * kept + tl.sum(power, axis=1)
                steeps = steeps * kept[:, None] + tl.sum(power[:, :, None] * v, axis=1)
                if TWO:
                    steeps2 = steeps2 * kept[:, None] + tl.sum(power[:, :, None] * v2, axis=1)
            elif KIND == 2:
                mean = mean * kept + tl.sum(power * w, axis=1)
    if PART == 2:
        vectors, numbers = part_places(parts, tl.program_id(0), read_head, column, total, P)
        tl.store(numbers, level, mask=known)
        tl.store(numbers + 1, whole, mask=known)
        tl.store(numbers + 2, mean, mask=known)
        tl.store(vectors, sums, mask=stored)
        if TWO:
            tl.store(vectors + C, sums2, mask=stored)
        if KIND == 0:
            tl.store(vectors + P, steeps, mask=stored)
            if TWO:
                tl.store(vectors + P + C, steeps2, mask=stored)
        return
    share = tl.where(whole > 0, 1.0 / whole, 0.0)
    middle = mean * share
    result = sums * share[:, None]
    tl.store(log_sum + here, tl.where(whole > 0, level + tl.log(tl.where(whole > 0, whole, 1.0)), 0.0), mask=known)
    if TWO:
        result2 = sums2 * share[:, None]
    if KIND == 0:
        # The targets' gradient is 1 - SLOPE times the sum of this with the output's: no pass over edges for it.
        difference = steeps * share[:, None] - middle[:, None] * result
        tl.store(above + row * stride + tail, rounded(difference, above.dtype.element_ty), mask=stored)
        if TWO:
            difference = steeps2 * share[:, None] - middle[:, None] * result2
            tl.store(above + row * stride + tail + C, rounded(difference, above.dtype.element_ty), mask=stored)
    if KIND == 2:
        tl.store(moment + here, middle, mask=known)
    _finish(
        result, row, head, column, queries, edge, bias, row_hash, column_hash, threshold, factor, out, middle, total,
        heads, units, shift, KIND, c, HIDDEN, DROP,
    )  # fmt: skip
    if TWO:
        _finish(
            result2, row, head, column + C, queries, edge, bias, row_hash, column_hash, threshold, factor, out,
            middle, total, heads, units, shift, KIND, c, HIDDEN, DROP,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def weighted_sums(
    factor, x, out, length, total, T: tl.constexpr, STEPS: tl.constexpr, c: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Sums over a chunk of rows of factor [n, head] · x [n, head, :]; chunks are added up by the caller."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    column = tl.arange(0, P)
    lane = tl.arange(0, T)
    sums = tl.zeros([T, P], tl.float32)
    for step in range(STEPS):
        n = (chunk * STEPS + step) * T + lane
        valid = n < length
        f = tl.load(factor + n * total + head, mask=valid, other=0.0)
        place = (n * total + head)[:, None] * P + column[None, :]
        mask = valid[:, None] & (column < c)[None, :]
        sums += f[:, None] * tl.load(x + place, mask=mask, other=0.0).to(tl.float32)
    at = (chunk * total + head) * c + column
    tl.store(out + at, tl.sum(sums, axis=0), mask=column < c)
