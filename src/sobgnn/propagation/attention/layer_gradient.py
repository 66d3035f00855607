"""Kernels of the backward pass of a whole attention layer on CUDA, in Triton: over rows, then nodes; no atomics."""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import triton
import triton.language as tl

from sobgnn.propagation.attention.layer_triton import SIZES, member_columns, rounded, score_of, share_of
from sobgnn.propagation.attention.walks_triton import MERGED, own_edges, part_places


@triton.jit
def _row_gradient(
    row, head, column, queries, bias, factor, out, to_result, to_queries, total, heads, units,
    KIND: tl.constexpr, c: tl.constexpr, HIDDEN: tl.constexpr, PART: tl.constexpr,
):  # fmt: skip
    """The gradient of the sums, and the sums themselves."""
    known = head < total
    inside = known[:, None] & (column < c)[None, :]
    vector = head[:, None] * c + column[None, :]
    g = tl.load(to_result + row * total * c + vector, mask=inside, other=0.0)
    result = tl.load(out + row * total * c + vector, mask=inside, other=0.0)
    if HIDDEN:
        # A positive entry is one that neither ReLU nor dropout made 0.
        grown = tl.load(factor + head // heads, mask=known, other=1.0)[:, None]
        g = tl.where(result > 0, g * grown, 0.0)
        result = result / grown - tl.load(bias + vector, mask=inside, other=0.0)
        if KIND == 2:
            skip = row * ((total // heads) * units * c) + member_columns(head, column, heads, units, c) + heads * c
            result -= tl.load(queries + skip, mask=inside, other=0.0)
            if PART != 2:
                tl.store(to_queries + skip, g, mask=inside)
    return g, result


@triton.jit(do_not_specialize=SIZES)
def rows(
    long, length, parts, indptr, other, weight, index, queries, query, key, value, target, source, edge, bias, factor,
    out, above, log_sum, to_result, gradient, level, center, along, to_target, to_queries, total, heads, units, members,
    most, scale, KIND: tl.constexpr, SLOPE: tl.constexpr, c: tl.constexpr, HIDDEN: tl.constexpr, PART: tl.constexpr,
    E: tl.constexpr, B: tl.constexpr, C: tl.constexpr, TWO: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """What belongs to rows: gradients of targets, queries and skips, and what the pass over nodes gathers.

    A row's gradient is stored divided by its largest entry, to fit float16; ``level`` and ``center`` make up for it.
    """
    head = tl.program_id(1) * B + tl.arange(0, B)
    row, member, begin, end, head = own_edges(long, length, indptr, head, total, members, most, PART)
    shift = member * total
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    asked = row if KIND == 2 else tl.load(index + row)  # where its query and target stand
    known = head < total
    P: tl.constexpr = 2 * C if TWO else C
    stored = tl.broadcast_to(known[:, None], [B, C])
    read_head = tl.minimum(head, total - 1)
    tail = read_head[:, None] * P + column[None, :]
    stride = total * P
    here = row * total + head
    compact = row * stride + tail
    g, result = _row_gradient(
        row, head, column, queries, bias, factor, out, to_result, to_queries, total, heads, units, KIND, c, HIDDEN, PART
    )
    middle = tl.sum(g * result, axis=1)
    largest = tl.max(tl.abs(g), axis=1)
    if TWO:
        g2, result2 = _row_gradient(
            row, head, column + C, queries, bias, factor, out, to_result, to_queries, total, heads, units, KIND, c,
            HIDDEN, PART,
        )  # fmt: skip
        middle += tl.sum(g2 * result2, axis=1)
        largest = tl.maximum(largest, tl.max(tl.abs(g2), axis=1))
    size = tl.where(largest > 0, largest, 1.0)
    log_norm = tl.load(log_sum + here, mask=known, other=0.0)
    if PART != 2:
        tl.store(gradient + compact, rounded(g / size[:, None], gradient.dtype.element_ty), mask=stored)
        if TWO:
            tl.store(gradient + compact + C, rounded(g2 / size[:, None], gradient.dtype.element_ty), mask=stored)
        tl.store(level + here, log_norm - tl.log(size), mask=known)
        tl.store(center + here, middle / size, mask=known)
    if KIND == 0:
        to = tl.sum(g * tl.load(above + compact, mask=stored, other=0.0).to(tl.float32), axis=1)
        if TWO:
            to += tl.sum(g2 * tl.load(above + compact + C, mask=stored, other=0.0).to(tl.float32), axis=1)
        tl.store(to_target + asked * total + head, (1 - SLOPE) * to, mask=known)
    else:
        inside = known[:, None] & (column < c)[None, :]
        inside2 = known[:, None] & (column + C < c)[None, :]
        t = tl.load(target + asked * total + read_head)[:, None]
        own = asked * stride + tail
        q = tl.load(query + own).to(tl.float32)[:, None, :]
        targets = tl.zeros([B], tl.float32)
        sums = tl.zeros([B, C], tl.float32)
        if TWO:
            q2 = tl.load(query + own + C).to(tl.float32)[:, None, :]
            sums2 = tl.zeros([B, C], tl.float32)
        weighted = tl.zeros([B], tl.float32)
        vector = edge + (shift + head)[:, None] * c + column[None, :]
        if KIND == 2:
            weighted = tl.sum(g * tl.load(vector, mask=inside, other=0.0), axis=1)
            if TWO:
                weighted += tl.sum(g2 * tl.load(vector + C, mask=inside2, other=0.0), axis=1)
            if PART != 2:
                tl.store(along + here, weighted / size, mask=known)
        if PART == 3:
            for segment in tl.range(begin, end, loop_unroll_factor=MERGED):
                vectors, numbers = part_places(parts, segment, read_head, column, total, P)
                targets += tl.load(numbers)
                sums += tl.load(vectors)
                if TWO:
                    sums2 += tl.load(vectors + C)
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
                to_share = tl.sum(g[:, None, :] * v, axis=2)
                if TWO:
                    to_share += tl.sum(g2[:, None, :] * v2, axis=2)
                if KIND == 1:
                    product = tl.sum(q * v, axis=2)
                    if TWO:
                        product += tl.sum(q2 * v2, axis=2)
                    score, slope, gate = score_of(product, t, u, w, scale, KIND, SLOPE)
                    share = share_of(score, log_norm[:, None], read)
                    inner = share * (to_share - middle[:, None]) * slope * gate
                    targets += tl.sum(inner, axis=1)
                    inner *= (t + u) * (1 - gate)
                    sums += tl.sum(inner[:, :, None] * v, axis=1)
                    if TWO:
                        sums2 += tl.sum(inner[:, :, None] * v2, axis=1)
                else:
                    product = tl.sum(q * k, axis=2)
                    if TWO:
                        product += tl.sum(q2 * k2, axis=2)
                    score, slope, gate = score_of(product, t, product, w, scale, KIND, SLOPE)
                    share = share_of(score, log_norm[:, None], read)
                    inner = share * (to_share + weighted[:, None] * w - middle[:, None]) * slope
                    targets += tl.sum(inner * w, axis=1)
                    sums += tl.sum(inner[:, :, None] * k, axis=1)
                    if TWO:
                        sums2 += tl.sum(inner[:, :, None] * k2, axis=1)
        if PART == 2:
            vectors, numbers = part_places(parts, tl.program_id(0), read_head, column, total, P)
            tl.store(numbers, targets, mask=known)
            tl.store(vectors, sums, mask=stored)
            if TWO:
                tl.store(vectors + C, sums2, mask=stored)
            return
        tl.store(to_target + asked * total + head, targets, mask=known)
        at = asked * ((total // heads) * units * c) + member_columns(head, column, heads, units, c)
        to_query = sums
        if KIND == 2:
            to_query += targets[:, None] * tl.load(vector, mask=inside, other=0.0)
        tl.store(to_queries + at, to_query, mask=inside)
        if TWO:
            to_query = sums2
            if KIND == 2:
                to_query += targets[:, None] * tl.load(vector + C, mask=inside2, other=0.0)
            tl.store(to_queries + at + C, to_query, mask=inside2)


@triton.jit
def _store_value(
    to_value, at, vector, inside, of_source, of_target, first, second, to_maps, KIND: tl.constexpr
):  # fmt: skip
    """The gradient of values that are also what scores are made of."""
    to_value += of_source[:, None] * tl.load(second + vector, mask=inside, other=0.0)
    to_value += of_target[:, None] * tl.load(first + vector, mask=inside, other=0.0)
    if KIND == 1:
        to_value += tl.load(to_maps + at, mask=inside, other=0.0)
    tl.store(to_maps + at, to_value, mask=inside)


@triton.jit(do_not_specialize=SIZES)
def nodes(
    long, length, parts, indptr, other, weight, index, query, key, value, target, source, edge, first, second, gradient,
    level, center, along, to_target, to_maps, to_source, to_edge, total, heads, units, members, most, scale,
    KIND: tl.constexpr, SLOPE: tl.constexpr, c: tl.constexpr, SAME: tl.constexpr, PART: tl.constexpr, E: tl.constexpr,
    B: tl.constexpr, C: tl.constexpr, TWO: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """What belongs to nodes: gradients of sources, keys and values, and each node's part of the edge factor's."""
    head = tl.program_id(1) * B + tl.arange(0, B)
    node, member, begin, end, head = own_edges(long, length, indptr, head, total, members, most, PART)
    shift = member * total
    column = tl.arange(0, C)
    lane = tl.arange(0, E)
    known = head < total
    inside = known[:, None] & (column < c)[None, :]
    inside2 = known[:, None] & (column + C < c)[None, :]
    P: tl.constexpr = 2 * C if TWO else C
    read_head = tl.minimum(head, total - 1)
    tail = read_head[:, None] * P + column[None, :]
    stride = total * P
    here = node * total + head
    own = node * stride + tail
    v = tl.load(value + own).to(tl.float32)[:, None, :]
    values = tl.zeros([B, C], tl.float32)
    if TWO:
        v2 = tl.load(value + own + C).to(tl.float32)[:, None, :]
        values2 = tl.zeros([B, C], tl.float32)
    if KIND == 2:
        k = tl.load(key + own).to(tl.float32)[:, None, :]
        keys = tl.zeros([B, C], tl.float32)
        if TWO:
            k2 = tl.load(key + own + C).to(tl.float32)[:, None, :]
            keys2 = tl.zeros([B, C], tl.float32)
    else:
        u = tl.load(source + node * total + read_head)[:, None]
        sources = tl.zeros([B], tl.float32)
    if KIND == 0:
        slope_of_weight = tl.load(edge + shift + read_head)[:, None]
        edges = tl.zeros([B], tl.float32)
    if PART == 3:
        for segment in tl.range(begin, end, loop_unroll_factor=MERGED):
            vectors, numbers = part_places(parts, segment, read_head, column, total, P)
            values += tl.load(vectors)
            if TWO:
                values2 += tl.load(vectors + C)
            if KIND == 2:
                keys += tl.load(vectors + P)
                if TWO:
                    keys2 += tl.load(vectors + P + C)
            else:
                sources += tl.load(numbers)
            if KIND == 0:
                edges += tl.load(numbers + 1)
    else:
        for start in tl.range(begin, end, E, loop_unroll_factor=UNROLL):
            e = start + lane
            read = (e < end)[None, :]
            i = tl.load(other + e, mask=e < end, other=0)
            w = tl.load(weight + e, mask=e < end, other=0.0)[None, :]
            its = i if SAME else tl.load(index + i).to(tl.int32)
            place = (i * stride)[None, :, None] + tail[:, None, :]
            g = tl.load(gradient + place).to(tl.float32)
            if TWO:
                g2 = tl.load(gradient + place + C).to(tl.float32)
            if KIND != 0:
                place = (its * stride)[None, :, None] + tail[:, None, :]
                q = tl.load(query + place).to(tl.float32)
                if TWO:
                    q2 = tl.load(query + place + C).to(tl.float32)
            there = (i * total)[None, :] + read_head[:, None]
            t = tl.load(target + (its * total)[None, :] + read_head[:, None])
            height = tl.load(level + there)
            middle = tl.load(center + there)
            if KIND == 2:
                weighted = tl.load(along + there) * w
            to_share = tl.sum(g * v, axis=2)
            if TWO:
                to_share += tl.sum(g2 * v2, axis=2)
            if KIND == 0:
                score, slope, gate = score_of(t, t, u, w * slope_of_weight, scale, KIND, SLOPE)
            else:
                if KIND == 1:
                    product = tl.sum(q * v, axis=2)
                    if TWO:
                        product += tl.sum(q2 * v2, axis=2)
                    score, slope, gate = score_of(product, t, u, w, scale, KIND, SLOPE)
                else:
                    product = tl.sum(q * k, axis=2)
                    if TWO:
                        product += tl.sum(q2 * k2, axis=2)
                    score, slope, gate = score_of(product, t, product, w, scale, KIND, SLOPE)
                    to_share += weighted
            share = share_of(score, height, read)
            inner = share * (to_share - middle) * slope
            values += tl.sum(share[:, :, None] * g, axis=1)
            if TWO:
                values2 += tl.sum(share[:, :, None] * g2, axis=1)
            if KIND == 0:
                sources += tl.sum(inner, axis=1)
                edges += tl.sum(inner * w, axis=1)
            elif KIND == 1:
                inner *= gate
                sources += tl.sum(inner, axis=1)
                inner *= (t + u) * (1 - gate)
                values += tl.sum(inner[:, :, None] * q, axis=1)
                if TWO:
                    values2 += tl.sum(inner[:, :, None] * q2, axis=1)
            else:
                keys += tl.sum(inner[:, :, None] * q, axis=1)
                if TWO:
                    keys2 += tl.sum(inner[:, :, None] * q2, axis=1)
    if PART == 2:
        vectors, numbers = part_places(parts, tl.program_id(0), read_head, column, total, P)
        stored = tl.broadcast_to(known[:, None], [B, C])
        tl.store(vectors, values, mask=stored)
        if TWO:
            tl.store(vectors + C, values2, mask=stored)
        if KIND == 2:
            tl.store(vectors + P, keys, mask=stored)
            if TWO:
                tl.store(vectors + P + C, keys2, mask=stored)
        else:
            tl.store(numbers, sources, mask=known)
        if KIND == 0:
            tl.store(numbers + 1, edges, mask=known)
        return
    at = node * ((total // heads) * units * c) + member_columns(head, column, heads, units, c)
    if KIND == 2:
        size = heads * c
        tl.store(to_maps + at, keys, mask=inside)
        tl.store(to_maps + at + size, values, mask=inside)
        if TWO:
            tl.store(to_maps + at + C, keys2, mask=inside2)
            tl.store(to_maps + at + size + C, values2, mask=inside2)
    else:
        vector = (shift + head)[:, None] * c + column[None, :]
        of_target = tl.load(to_target + here, mask=known, other=0.0)
        tl.store(to_source + here, sources, mask=known)
        if KIND == 0:
            tl.store(to_edge + here, edges, mask=known)
        _store_value(values, at, vector, inside, sources, of_target, first, second, to_maps, KIND)
        if TWO:
            _store_value(values2, at + C, vector + C, inside2, sources, of_target, first, second, to_maps, KIND)
