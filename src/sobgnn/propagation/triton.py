"""The fused kernel for CUDA, in Triton.

One program (a warp) sums one row for one block of columns. It walks the row's entries in tiles: the tile's rows of x
are gathered as [entries, columns], each order multiplies them by its own coefficients, and the sum over a tile's
entries waits until the row is done, so that the loop holds no exchange between threads.

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

import torch
import triton
import triton.language as tl
from torch import Tensor

from sobgnn.propagation.stencil import Stencil

CHUNK = 2048
GROUP = 6  # orders that are summed at once


@triton.jit
def _order(p, base, t_pointer, valid, TINY: tl.constexpr):
    """The next power, flushed to zero below the smallest normal number, and its coefficient."""
    p = p * base
    p = tl.where(p < TINY, 0.0, p)
    return p, p * tl.load(t_pointer, mask=valid, other=0.0)


@triton.jit
def _gather(x_pointer, offset, valid, columns, inside, ACC: tl.constexpr):
    """[entries, columns] of x."""
    pointers = x_pointer + offset[:, None] + columns[None, :]
    return tl.load(pointers, mask=valid[:, None] & inside[None, :], other=0.0).to(ACC)


@triton.jit
def _lead(base, first, TINY: tl.constexpr):
    """base^(first - 1): what the orders of earlier groups leave behind."""
    p = base * 0.0 + 1.0
    for _ in range(1, first):
        p = p * base
        p = tl.where(p < TINY, 0.0, p)
    return p


@triton.jit
def _span(
    indices, weight, scale_out, scale_in, x, row, begin, count, head, skipped, columns, inside, first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, E: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr,
    TINY: tl.constexpr,
):  # fmt: skip
    """Sums over ``count`` entries of a row from ``begin`` on, jumping over ``skipped`` of them at ``head``.

    Six vectors of columns, of which the first A count; where the output has no orders, the first is the sum of all,
    each scaled by its t_out.
    """
    acc0 = tl.zeros([E, H], ACC)
    acc1 = tl.zeros([E, H], ACC)
    acc2 = tl.zeros([E, H], ACC)
    acc3 = tl.zeros([E, H], ACC)
    acc4 = tl.zeros([E, H], ACC)
    acc5 = tl.zeros([E, H], ACC)
    stride = width * alpha if IN else width
    scale_out += row * (alpha + 1)
    q = tl.load(scale_out)
    lane = tl.arange(0, E)
    step = tl.arange(0, E)
    place = begin + step
    place = tl.where(place < head, place, place + skipped)
    # The next tile's indices are under way while this one's rows are: a tile waits for memory once, not twice.
    next_j = tl.load(indices + place, mask=step < count, other=0)
    next_w = tl.load(weight + place, mask=step < count, other=0.0)
    for start in range(0, count, E):
        valid = start + lane < count
        j = next_j.to(tl.int64)
        w = next_w.to(ACC)
        step = start + E + lane
        place = begin + step
        place = tl.where(place < head, place, place + skipped)
        next_j = tl.load(indices + place, mask=step < count, other=0)
        next_w = tl.load(weight + place, mask=step < count, other=0.0)

        t = scale_in + j * (alpha + 1)
        base = w * (q * tl.load(t, mask=valid, other=0.0))
        p = _lead(base, first, TINY)
        t += first
        offset = j * stride
        if IN:
            offset += (first - 1) * width
        rows = _gather(x, offset, valid, columns, inside, ACC)
        p, c = _order(p, base, t, valid, TINY)
        if not OUT:
            c = c * tl.load(scale_out + first)
        acc0 += c[:, None] * rows
        if A > 1:
            if IN:
                rows = _gather(x, offset + width, valid, columns, inside, ACC)
            p, c = _order(p, base, t + 1, valid, TINY)
            if OUT:
                acc1 += c[:, None] * rows
            else:
                acc0 += (c * tl.load(scale_out + first + 1))[:, None] * rows
        if A > 2:
            if IN:
                rows = _gather(x, offset + 2 * width, valid, columns, inside, ACC)
            p, c = _order(p, base, t + 2, valid, TINY)
            if OUT:
                acc2 += c[:, None] * rows
            else:
                acc0 += (c * tl.load(scale_out + first + 2))[:, None] * rows
        if A > 3:
            if IN:
                rows = _gather(x, offset + 3 * width, valid, columns, inside, ACC)
            p, c = _order(p, base, t + 3, valid, TINY)
            if OUT:
                acc3 += c[:, None] * rows
            else:
                acc0 += (c * tl.load(scale_out + first + 3))[:, None] * rows
        if A > 4:
            if IN:
                rows = _gather(x, offset + 4 * width, valid, columns, inside, ACC)
            p, c = _order(p, base, t + 4, valid, TINY)
            if OUT:
                acc4 += c[:, None] * rows
            else:
                acc0 += (c * tl.load(scale_out + first + 4))[:, None] * rows
        if A > 5:
            if IN:
                rows = _gather(x, offset + 5 * width, valid, columns, inside, ACC)
            p, c = _order(p, base, t + 5, valid, TINY)
            if OUT:
                acc5 += c[:, None] * rows
            else:
                acc0 += (c * tl.load(scale_out + first + 5))[:, None] * rows
    return tl.sum(acc0, 0), tl.sum(acc1, 0), tl.sum(acc2, 0), tl.sum(acc3, 0), tl.sum(acc4, 0), tl.sum(acc5, 0)


@triton.jit
def _chunks(
    indptr, indices, weight, scale_out, scale_in, x, partial, rows, steps, first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, E: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr,
    TINY: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """partial[chunk]: the sums of each chunk that lies within one row; the others are left unset and unread."""
    chunk = tl.program_id(0).to(tl.int64)
    begin = chunk * CHUNK
    low = begin * 0
    high = low + rows
    for _ in range(steps):  # the last row that starts at or before the chunk
        middle = (low + high) // 2
        before = tl.load(indptr + middle + 1) <= begin
        low = tl.where(before & (low < high), middle + 1, low)
        high = tl.where(before, high, middle)
    if tl.load(indptr + low + 1) >= begin + CHUNK:
        columns = tl.program_id(1) * H + tl.arange(0, H)
        inside = columns < width
        s0, s1, s2, s3, s4, s5 = _span(
            indices, weight, scale_out, scale_in, x, low, begin, CHUNK, begin, 0, columns, inside, first, alpha, width,
            A, IN, OUT, E, H, ACC, TINY,
        )  # fmt: skip
        orders = A if OUT else 1
        slot = partial + chunk * orders * width + columns
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
def _finish(s, out, t_pointer, inside, SCALE: tl.constexpr, ADD: tl.constexpr):
    if SCALE:
        s = s * tl.load(t_pointer)
    if ADD:
        s += tl.load(out, mask=inside, other=0.0)
    tl.store(out, s.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _own(x, row, order, columns, inside, alpha, width, IN: tl.constexpr, ACC: tl.constexpr):
    """The row's own features, for the diagonal."""
    offset = row * width * alpha + order * width if IN else row * width
    return tl.load(x + offset + columns, mask=inside, other=0.0).to(ACC)


@triton.jit
def _rows(
    indptr, indices, weight, scale_out, scale_in, x, partial, out, epsilon, first, alpha, width,
    A: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr, LOOP: tl.constexpr, ADD: tl.constexpr, E: tl.constexpr,
    H: tl.constexpr, ACC: tl.constexpr, TINY: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    begin = tl.load(indptr + row)
    end = tl.load(indptr + row + 1)
    head = (begin + CHUNK - 1) // CHUNK * CHUNK
    skipped = tl.maximum(end - head, 0) // CHUNK * CHUNK
    columns = tl.program_id(1) * H + tl.arange(0, H)
    inside = columns < width
    s0, s1, s2, s3, s4, s5 = _span(
        indices, weight, scale_out, scale_in, x, row, begin, (end - begin - skipped).to(tl.int32), head, skipped,
        columns, inside, first, alpha, width, A, IN, OUT, E, H, ACC, TINY,
    )  # fmt: skip
    orders = A if OUT else 1
    for chunk in range(head // CHUNK, (head + skipped) // CHUNK):
        slot = partial + chunk * orders * width + columns
        s0 += tl.load(slot, mask=inside, other=0.0)
        if OUT:
            if A > 1:
                s1 += tl.load(slot + width, mask=inside, other=0.0)
            if A > 2:
                s2 += tl.load(slot + 2 * width, mask=inside, other=0.0)
            if A > 3:
                s3 += tl.load(slot + 3 * width, mask=inside, other=0.0)
            if A > 4:
                s4 += tl.load(slot + 4 * width, mask=inside, other=0.0)
            if A > 5:
                s5 += tl.load(slot + 5 * width, mask=inside, other=0.0)
    t_out = scale_out + row * (alpha + 1)
    if LOOP:
        t_in = scale_in + row * (alpha + 1)
        base = tl.load(epsilon) * (tl.load(t_out) * tl.load(t_in))
        p = _lead(base, first, TINY)
        for a in tl.static_range(A):
            p = p * base
            p = tl.where(p < TINY, 0.0, p)
            c = p * tl.load(t_in + first + a)
            if not OUT:
                c = c * tl.load(t_out + first + a)
            own = c * _own(x, row, first - 1 + a, columns, inside, alpha, width, IN, ACC)
            if a == 0 or not OUT:
                s0 += own
            elif a == 1:
                s1 += own
            elif a == 2:
                s2 += own
            elif a == 3:
                s3 += own
            elif a == 4:
                s4 += own
            else:
                s5 += own
    t_out += first
    if OUT:
        out += row * alpha * width + (first - 1) * width + columns
        _finish(s0, out, t_out, inside, True, ADD)
        if A > 1:
            _finish(s1, out + width, t_out + 1, inside, True, ADD)
        if A > 2:
            _finish(s2, out + 2 * width, t_out + 2, inside, True, ADD)
        if A > 3:
            _finish(s3, out + 3 * width, t_out + 3, inside, True, ADD)
        if A > 4:
            _finish(s4, out + 4 * width, t_out + 4, inside, True, ADD)
        if A > 5:
            _finish(s5, out + 5 * width, t_out + 5, inside, True, ADD)
    else:
        _finish(s0, out + row * width + columns, t_out, inside, False, ADD)


def blocks(width: int, orders: int, dtype: torch.dtype) -> tuple[int, int]:
    """Entries and columns of a tile: up to 16 values of each order for a thread's registers, fewer of float64."""
    columns = 128 if width > 64 else max(16, triton.next_power_of_2(width))
    if width > 128 and -(-width // 128) * 128 > 1.15 * width:
        columns = 64
    budget = 512 if orders <= 4 else 256
    if dtype == torch.float64:
        budget //= 2
    return max(1, budget // columns), columns


def run(stencil: Stencil, x: Tensor, out: Tensor) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h]; bfloat16 is summed in float32."""
    dtype = stencil.scale_in.dtype
    alpha, width, rows = stencil.scale_in.shape[1] - 1, x.shape[-1], stencil.scale_out.shape[0]
    orders_in, orders_out = x.dim() == 3, out.dim() == 3
    if not orders_out and alpha > GROUP and out.dtype != dtype:
        # Groups of orders add up in the output, which must not round in between.
        total = torch.empty_like(out, dtype=dtype)
        run(stencil, x, total)
        out.copy_(total)
        return
    pattern = [tensor.contiguous() for tensor in stencil[:3]]
    scales = [stencil.scale_out.contiguous(), stencil.scale_in.contiguous()]
    x = x.contiguous()
    chunks = stencil.indices.numel() // CHUNK
    # As a tensor: a float argument would be rounded to float32.
    epsilon = torch.full((1,), stencil.epsilon, dtype=dtype, device=x.device)
    settings = {
        "IN": orders_in,
        "OUT": orders_out,
        "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
        "TINY": torch.finfo(dtype).tiny,
        "CHUNK": CHUNK,
    }
    for first in range(1, alpha + 1, GROUP):
        orders = min(GROUP, alpha + 1 - first)
        entries, columns = blocks(width, orders, dtype)
        column_blocks = triton.cdiv(width, columns)
        tile = {**settings, "A": orders, "E": entries, "H": columns, "num_warps": 1}
        partial = x.new_empty(chunks, orders if orders_out else 1, width, dtype=dtype)
        with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
            if chunks:
                _chunks[(chunks, column_blocks)](
                    *pattern, *scales, x, partial, rows, rows.bit_length() + 1, first, alpha, width, **tile
                )
            _rows[(rows, column_blocks)](
                *pattern, *scales, x, partial, out, epsilon, first, alpha, width,
                LOOP=stencil.epsilon != 0.0, ADD=first > 1 and not orders_out, **tile,
            )  # fmt: skip
