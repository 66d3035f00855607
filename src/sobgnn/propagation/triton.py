"""The fused kernel for CUDA, in Triton.

One program (a warp) sums a few neighboring rows for one block of columns. It walks their entries in tiles [rows,
entries, columns]: each entry's coefficients are made once, by one thread, and handed to those that gather its columns;
a thread then sums its own entries, so that the loop holds no other exchange between threads.

Rows of any length are split without atomics and without asking the host how long they are. Entries are cut into
chunks of ``CHUNK`` at fixed places. A first kernel sums every chunk that lies within a single row into a buffer; a row
then adds those of its chunks, in order, to what it sums itself. A row that holds no whole chunk never
sees the buffer. The sums are in the same order on every run, so the bits are the same too.

The blocks of columns are the slow dimension of the grid: rows that run together gather from one slice of x, which
stays in the second-level cache where all of x would not.
"""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import contextlib
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from sobgnn.propagation.csr import SobolevCSR

CHUNK = 2048
GROUP = 6  # orders that are summed at once


@triton.jit
def power(p, base, TINY: tl.constexpr):
    """The next power, flushed to zero below the smallest normal number."""
    p = p * base
    return tl.where(p < TINY, 0.0, p)


@triton.jit
def _lead(base, first, TINY: tl.constexpr):
    """base^(first - 1): what the orders of earlier groups leave behind."""
    p = base * 0.0 + 1.0
    for _ in range(1, first):
        p = power(p, base, TINY)
    return p


@triton.jit
def _gather(x, offset, valid, columns, inside, ACC: tl.constexpr, EVEN: tl.constexpr):
    """[rows, entries, columns] of x."""
    pointers = x + offset[:, :, None] + columns[None, None, :]
    mask = valid[:, :, None]
    if not EVEN:
        mask = mask & inside[None, None, :]
    return tl.load(pointers, mask=mask, other=0.0).to(ACC)


@triton.jit
def _coefficient(p, base, t_in, t_out, valid, alive, TINY: tl.constexpr):
    """The next power, and the coefficient that it makes."""
    p = power(p, base, TINY)
    return p, p * tl.load(t_in, mask=valid, other=0.0) * tl.load(t_out, mask=alive, other=0.0)[:, None]


@triton.jit
def _order(
    acc, c, x_rows, x, offset, valid, columns, inside, width, a: tl.constexpr, IN: tl.constexpr, EVEN: tl.constexpr,
    ACC: tl.constexpr,
):  # fmt: skip
    """One more order of a tile, added to its sums."""
    if IN and a > 0:
        x_rows = _gather(x, offset + a * width, valid, columns, inside, ACC, EVEN)
    return acc + tl.sum(c[:, :, None] * x_rows, 1)


@triton.jit
def _span(
    indices, weight, row_scale, column_scale, x, row, alive, begin, count, head, skipped, columns, inside,
    first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, EVEN: tl.constexpr, E: tl.constexpr,
    R: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr, TINY: tl.constexpr, OFFSET: tl.constexpr,
):  # fmt: skip
    """Sums over ``count`` entries of each row from ``begin`` on, jumping over ``skipped`` of them at ``head``.

    Six arrays [rows, columns], of which the first A count; where the output has no orders, the first is the sum of all.
    """
    acc0 = tl.zeros([R, H], ACC)
    acc1 = tl.zeros([R, H], ACC)
    acc2 = tl.zeros([R, H], ACC)
    acc3 = tl.zeros([R, H], ACC)
    acc4 = tl.zeros([R, H], ACC)
    acc5 = tl.zeros([R, H], ACC)
    stride = width * alpha if IN else width
    t_out = row_scale + row * (alpha + 1)
    q = tl.load(t_out, mask=alive, other=0.0)[:, None]
    t_out += first
    lane = tl.arange(0, E)[None, :]
    step = lane
    place = begin[:, None] + step
    place = tl.where(place < head[:, None], place, place + skipped[:, None])
    next_valid = step < count[:, None]
    # The next tile's indices are under way while this one's rows are: a tile waits for memory once, not twice.
    next_j = tl.load(indices + place, mask=next_valid, other=0)
    next_w = tl.load(weight + place, mask=next_valid, other=0.0)
    for start in range(0, tl.max(count, 0), E):
        valid = next_valid
        j = next_j
        w = next_w.to(ACC)
        step = start + E + lane
        place = begin[:, None] + step
        place = tl.where(place < head[:, None], place, place + skipped[:, None])
        next_valid = step < count[:, None]
        next_j = tl.load(indices + place, mask=next_valid, other=0)
        next_w = tl.load(weight + place, mask=next_valid, other=0.0)

        # All coefficients before the first gather: handing them round is a barrier, which no load may cross.
        t_in = column_scale + j.to(tl.int64) * (alpha + 1)
        base = w * (q * tl.load(t_in, mask=valid, other=0.0))
        p = _lead(base, first, TINY)
        t_in += first
        p, c0 = _coefficient(p, base, t_in, t_out, valid, alive, TINY)
        if A > 1:
            p, c1 = _coefficient(p, base, t_in + 1, t_out + 1, valid, alive, TINY)
        if A > 2:
            p, c2 = _coefficient(p, base, t_in + 2, t_out + 2, valid, alive, TINY)
        if A > 3:
            p, c3 = _coefficient(p, base, t_in + 3, t_out + 3, valid, alive, TINY)
        if A > 4:
            p, c4 = _coefficient(p, base, t_in + 4, t_out + 4, valid, alive, TINY)
        if A > 5:
            p, c5 = _coefficient(p, base, t_in + 5, t_out + 5, valid, alive, TINY)
        offset = j.to(OFFSET) * stride
        if IN:
            offset += (first - 1) * width
        x_rows = _gather(x, offset, valid, columns, inside, ACC, EVEN)
        acc0 = _order(acc0, c0, x_rows, x, offset, valid, columns, inside, width, 0, IN, EVEN, ACC)
        if A > 1:
            if OUT:
                acc1 = _order(acc1, c1, x_rows, x, offset, valid, columns, inside, width, 1, IN, EVEN, ACC)
            else:
                acc0 = _order(acc0, c1, x_rows, x, offset, valid, columns, inside, width, 1, IN, EVEN, ACC)
        if A > 2:
            if OUT:
                acc2 = _order(acc2, c2, x_rows, x, offset, valid, columns, inside, width, 2, IN, EVEN, ACC)
            else:
                acc0 = _order(acc0, c2, x_rows, x, offset, valid, columns, inside, width, 2, IN, EVEN, ACC)
        if A > 3:
            if OUT:
                acc3 = _order(acc3, c3, x_rows, x, offset, valid, columns, inside, width, 3, IN, EVEN, ACC)
            else:
                acc0 = _order(acc0, c3, x_rows, x, offset, valid, columns, inside, width, 3, IN, EVEN, ACC)
        if A > 4:
            if OUT:
                acc4 = _order(acc4, c4, x_rows, x, offset, valid, columns, inside, width, 4, IN, EVEN, ACC)
            else:
                acc0 = _order(acc0, c4, x_rows, x, offset, valid, columns, inside, width, 4, IN, EVEN, ACC)
        if A > 5:
            if OUT:
                acc5 = _order(acc5, c5, x_rows, x, offset, valid, columns, inside, width, 5, IN, EVEN, ACC)
            else:
                acc0 = _order(acc0, c5, x_rows, x, offset, valid, columns, inside, width, 5, IN, EVEN, ACC)
    return acc0, acc1, acc2, acc3, acc4, acc5


@triton.jit
def _chunks(
    indptr, indices, weight, row_scale, column_scale, x, partial, rows, steps, first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, EVEN: tl.constexpr, E: tl.constexpr,
    H: tl.constexpr, ACC: tl.constexpr, TINY: tl.constexpr, OFFSET: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """partial[chunk]: the sums of each chunk that lies within one row; the others are left unset and unread."""
    chunk = tl.program_id(0).to(tl.int64) + tl.arange(0, 1)
    begin = chunk * CHUNK
    low = begin * 0
    high = low + rows
    for _ in range(steps):  # the last row that starts at or before the chunk
        middle = (low + high) // 2
        before = tl.load(indptr + middle + 1) <= begin
        low = tl.where(before & (low < high), middle + 1, low)
        high = tl.where(before, high, middle)
    whole = tl.load(indptr + low + 1) >= begin + CHUNK
    if tl.max(whole.to(tl.int32), 0) == 1:
        columns = tl.program_id(1) * H + tl.arange(0, H)
        inside = columns < width
        s0, s1, s2, s3, s4, s5 = _span(
            indices, weight, row_scale, column_scale, x, low, whole, begin, (begin * 0 + CHUNK).to(tl.int32), begin,
            begin * 0, columns, inside, first, alpha, width, A, IN, OUT, EVEN, E, 1, H, ACC, TINY, OFFSET,
        )  # fmt: skip
        orders = A if OUT else 1
        slot = partial + (chunk * orders * width)[:, None] + columns[None, :]
        inside = inside[None, :]
        tl.store(slot, s0, mask=inside)
        if OUT:
            if A > 1:
                tl.store(slot + width, s1, mask=inside)
            if A > 2:
                tl.store(slot + 2 * width, s2, mask=inside)
            if A > 3:
                tl.store(slot + 3 * width, s3, mask=inside)
            if A > 4:
                tl.store(slot + 4 * width, s4, mask=inside)
            if A > 5:
                tl.store(slot + 5 * width, s5, mask=inside)


@triton.jit
def _finish(s, out, mask, ADD: tl.constexpr):
    if ADD:
        s += tl.load(out, mask=mask, other=0.0)
    tl.store(out, s.to(out.dtype.element_ty), mask=mask, eviction_policy="evict_first")


@triton.jit
def _rows(
    indptr, indices, weight, row_scale, column_scale, x, partial, out, epsilon, rows, first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, LOOP: tl.constexpr, ADD: tl.constexpr, EVEN: tl.constexpr,
    E: tl.constexpr, R: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr, TINY: tl.constexpr, OFFSET: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    alive = row < rows
    begin = tl.load(indptr + row, mask=alive, other=0)
    end = tl.load(indptr + row + 1, mask=alive, other=0)
    head = (begin + CHUNK - 1) // CHUNK * CHUNK
    skipped = tl.maximum(end - head, 0) // CHUNK * CHUNK
    columns = tl.program_id(1) * H + tl.arange(0, H)
    inside = columns < width
    s0, s1, s2, s3, s4, s5 = _span(
        indices, weight, row_scale, column_scale, x, row, alive, begin, (end - begin - skipped).to(tl.int32), head,
        skipped, columns, inside, first, alpha, width, A, IN, OUT, EVEN, E, R, H, ACC, TINY, OFFSET,
    )  # fmt: skip
    orders = A if OUT else 1
    mask = alive[:, None] & inside[None, :]
    for chunk in range(tl.max(skipped, 0) // CHUNK):
        slot = partial + ((head // CHUNK + chunk) * orders * width)[:, None] + columns[None, :]
        has = mask & (chunk * CHUNK < skipped)[:, None]
        s0 += tl.load(slot, mask=has, other=0.0)
        if OUT:
            if A > 1:
                s1 += tl.load(slot + width, mask=has, other=0.0)
            if A > 2:
                s2 += tl.load(slot + 2 * width, mask=has, other=0.0)
            if A > 3:
                s3 += tl.load(slot + 3 * width, mask=has, other=0.0)
            if A > 4:
                s4 += tl.load(slot + 4 * width, mask=has, other=0.0)
            if A > 5:
                s5 += tl.load(slot + 5 * width, mask=has, other=0.0)
    if LOOP:
        t_out = row_scale + row * (alpha + 1)
        t_in = column_scale + row * (alpha + 1)
        q = tl.load(t_out, mask=alive, other=0.0) * tl.load(t_in, mask=alive, other=0.0)
        base = tl.load(epsilon) * q
        p = _lead(base, first, TINY)
        own_row = x + (row * width)[:, None] + columns[None, :]
        if IN:
            own_row = x + ((row * alpha + first - 1) * width)[:, None] + columns[None, :]
        own = tl.load(own_row, mask=mask, other=0.0).to(ACC)
        for a in tl.static_range(A):
            p = power(p, base, TINY)
            t = tl.load(t_in + first + a, mask=alive, other=0.0) * tl.load(t_out + first + a, mask=alive, other=0.0)
            if IN and a > 0:
                own = tl.load(own_row + a * width, mask=mask, other=0.0).to(ACC)
            term = (p * t)[:, None] * own
            if a == 0 or not OUT:
                s0 += term
            elif a == 1:
                s1 += term
            elif a == 2:
                s2 += term
            elif a == 3:
                s3 += term
            elif a == 4:
                s4 += term
            else:
                s5 += term
    if OUT:
        out += ((row * alpha + first - 1) * width)[:, None] + columns[None, :]
    else:
        out += (row * width)[:, None] + columns[None, :]
    _finish(s0, out, mask, ADD)
    if OUT:
        if A > 1:
            _finish(s1, out + width, mask, ADD)
        if A > 2:
            _finish(s2, out + 2 * width, mask, ADD)
        if A > 3:
            _finish(s3, out + 3 * width, mask, ADD)
        if A > 4:
            _finish(s4, out + 4 * width, mask, ADD)
        if A > 5:
            _finish(s5, out + 5 * width, mask, ADD)


class Tile(NamedTuple):
    """What one program sums at a time: so many entries of so many rows, in so many columns."""

    entries: int
    rows: int
    columns: int


def tile(width: int, orders: int, orders_in: bool, dtype: torch.dtype) -> Tile:
    """The launch configuration of a shape.

    A thread loads 16 bytes at a time, and there are as many entries in a tile as threads: each makes the coefficients
    of one. A row is gathered by 256 bytes, which memory serves best, or by 128, where fewer leave registers for
    more programs (several column blocks), or where six orders' gathers or float64 would not fit them.
    """
    size = dtype.itemsize
    large = size < 8 and (orders <= 4 if orders_in else width <= 64)
    columns = min((256 if large else 128) // size, 64, max(16 // size, triton.next_power_of_2(width)))
    lanes = columns * size // 16
    return Tile(max(4, lanes), 32 // lanes, columns)


def run(csr: SobolevCSR, x: Tensor, out: Tensor) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h]; bfloat16 is summed in float32."""
    dtype = csr.column_scale.dtype
    alpha, width, rows = csr.column_scale.shape[1] - 1, x.shape[-1], csr.row_scale.shape[0]
    orders_in, orders_out = x.dim() == 3, out.dim() == 3
    if not orders_out and alpha > GROUP and out.dtype != dtype:
        # Groups of orders add up in the output, which must not round in between.
        total = torch.empty_like(out, dtype=dtype)
        run(csr, x, total)
        out.copy_(total)
        return
    pattern = [tensor.contiguous() for tensor in csr[:3]]
    scales = [csr.row_scale.contiguous(), csr.column_scale.contiguous()]
    x = x.contiguous()
    # As a tensor: a float argument would be rounded to float32.
    epsilon = torch.full((1,), csr.epsilon, dtype=dtype, device=x.device)
    entries, rows_at_once, columns = tile(width, min(alpha, GROUP), orders_in, x.dtype)
    column_blocks = triton.cdiv(width, columns)
    chunks = csr.indices.numel() // CHUNK
    settings = {
        "IN": orders_in,
        "OUT": orders_out,
        "EVEN": width % columns == 0,
        "H": columns,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "TINY": torch.finfo(dtype).tiny,
        "OFFSET": tl.int32 if x.numel() < 1 << 31 else tl.int64,
        "CHUNK": CHUNK,
        "num_warps": 1,
    }
    for first in range(1, alpha + 1, GROUP):
        orders = min(GROUP, alpha + 1 - first)
        partial = x.new_empty(chunks, orders if orders_out else 1, width, dtype=dtype)
        with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
            if chunks:
                _chunks[(chunks, column_blocks)](
                    *pattern, *scales, x, partial, rows, rows.bit_length() + 1, first, alpha, width,
                    A=orders, E=entries * rows_at_once, **settings,
                )  # fmt: skip
            _rows[(triton.cdiv(rows, rows_at_once), column_blocks)](
                *pattern, *scales, x, partial, out, epsilon, rows, first, alpha, width,
                A=orders, E=entries, R=rows_at_once, LOOP=csr.epsilon != 0.0,
                ADD=first > 1 and not orders_out, **settings,
            )  # fmt: skip
