"""Gradients of weights and scales for CUDA, in Triton.

A program takes a few entries, wherever rows begin and end, and looks up the row of each: every entry's gradient is its
own, so that rows of any length need no splitting, no atomics and no order of their own.
"""

# Kernels are a language of their own: types mean other things in them.
# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

from __future__ import annotations

import contextlib

import torch
import triton
import triton.language as tl
from torch import Tensor

from sobgnn.propagation.csr import SobolevCSR
from sobgnn.propagation.portable import unscaled
from sobgnn.propagation.triton import power, run


@triton.jit
def _row_of(indptr, e, rows, steps):
    """The row of each entry: the last that starts at or before it."""
    low = e * 0
    high = low + rows
    for _ in range(steps):
        middle = (low + high) // 2
        before = tl.load(indptr + middle + 1, mask=low < high, other=0) <= e
        low = tl.where(before & (low < high), middle + 1, low)
        high = tl.where(before, high, middle)
    return tl.minimum(low, rows - 1)


@triton.jit
def _entry_gradient(
    indptr, indices, weight, row_scale, column_scale, x, g, out, rows, entries, steps, alpha, width,
    IN: tl.constexpr, E: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """out[e] = sum over the orders a of a (w q_i q_j)^a t_out[i,a] t_in[j,a] (g[i,a] . x[j]) / w."""
    e = tl.program_id(0).to(tl.int64) * E + tl.arange(0, E)
    valid = e < entries
    i = _row_of(indptr, tl.where(valid, e, 0), rows, steps)
    j = tl.load(indices + e, mask=valid, other=0).to(tl.int64)
    w = tl.load(weight + e, mask=valid, other=1.0).to(ACC)
    t_out = row_scale + i * (alpha + 1)
    t_in = column_scale + j * (alpha + 1)
    base = w * (tl.load(t_out) * tl.load(t_in))
    p = base * 0.0 + 1.0
    total = base * 0.0
    for a in range(alpha):
        p = power(p, base, TINY)
        dot = tl.zeros([E], ACC)
        from_x = x + j * width
        if IN:
            from_x = x + (j * alpha + a) * width
        from_g = g + (i * alpha + a) * width
        for start in range(0, width, H):
            columns = start + tl.arange(0, H)
            mask = valid[:, None] & (columns < width)[None, :]
            own = tl.load(from_g[:, None] + columns[None, :], mask=mask, other=0.0).to(ACC)
            other = tl.load(from_x[:, None] + columns[None, :], mask=mask, other=0.0).to(ACC)
            dot += tl.sum(own * other, 1)
        total += (a + 1) * p * tl.load(t_out + 1 + a) * tl.load(t_in + 1 + a) * dot
    tl.store(out + e, total / w, mask=valid)


@triton.jit
def _fold(
    z, x, total, dots, rows, alpha, width,
    IN: tl.constexpr, SUM: tl.constexpr, R: tl.constexpr, H: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """dots[i,a] = z[i,a] . x[i] (x[i,a] where x has orders), and where SUM total[i] = sum over the orders of z[i,a]."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    alive = row < rows
    for a in range(alpha):
        dot = tl.zeros([R], ACC)
        from_x = x + row * width
        if IN:
            from_x = x + (row * alpha + a) * width
        for start in range(0, width, H):
            columns = start + tl.arange(0, H)
            mask = alive[:, None] & (columns < width)[None, :]
            value = tl.load(z + ((row * alpha + a) * width)[:, None] + columns[None, :], mask=mask, other=0.0).to(ACC)
            other = tl.load(from_x[:, None] + columns[None, :], mask=mask, other=0.0).to(ACC)
            dot += tl.sum(value * other, 1)
        tl.store(dots + row * alpha + a, dot, mask=alive)
    if SUM:
        for start in range(0, width, H):
            columns = start + tl.arange(0, H)
            mask = alive[:, None] & (columns < width)[None, :]
            value = tl.zeros([R, H], ACC)
            for a in range(alpha):
                place = z + ((row * alpha + a) * width)[:, None] + columns[None, :]
                value += tl.load(place, mask=mask, other=0.0).to(ACC)
            tl.store(total + (row * width)[:, None] + columns[None, :], value, mask=mask)


@triton.jit
def _scale_gradient(
    indptr, weight, factor, shares, out, rows, entries, steps, alpha, E: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    """out[e] = sum over the orders a of shares[i,a] (w factor[i])^a / w."""
    e = tl.program_id(0).to(tl.int64) * E + tl.arange(0, E)
    valid = e < entries
    i = _row_of(indptr, tl.where(valid, e, 0), rows, steps)
    w = tl.load(weight + e, mask=valid, other=1.0).to(ACC)
    base = w * tl.load(factor + i)
    total = base * 0.0
    for a in range(alpha):
        total = (total + tl.load(shares + i * alpha + alpha - 1 - a)) * base
    tl.store(out + e, total / w, mask=valid)


def gradients(csr: SobolevCSR, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, the weights [E], row_scale [R, α] and column_scale [C, α] from the output y [R, α, h] and its g.

    What flows back to each input, one order at a time, is what x's gradient adds up and what the column's scale is
    multiplied by; so it is written out once, in the size of the output.
    """
    dtype, alpha, width = csr.column_scale.dtype, g.shape[1], g.shape[2]
    rows, inputs, entries = csr.row_scale.shape[0], csr.column_scale.shape[0], csr.indices.numel()
    indptr, indices, weight = (tensor.contiguous() for tensor in csr[:3])
    row_scale, column_scale = csr.row_scale.contiguous(), csr.column_scale.contiguous()
    x, y, g = x.contiguous(), y.contiguous(), g.contiguous()
    back = g.new_empty((inputs, alpha, width), dtype=dtype if x.dim() == 2 else g.dtype)
    run(csr.transposed(), g.to(back.dtype), back)
    to_weight = torch.zeros(entries, dtype=dtype, device=g.device)
    to_out, to_in = back.new_empty((rows, alpha), dtype=dtype), back.new_empty((inputs, alpha), dtype=dtype)
    total = torch.empty_like(x, dtype=dtype) if x.dim() == 2 else back
    columns = min(64, max(16, triton.next_power_of_2(width)))
    settings = {"H": columns, "ACC": tl.float64 if dtype == torch.float64 else tl.float32}
    with torch.cuda.device(g.device) if g.is_cuda else contextlib.nullcontext():
        if entries:
            _entry_gradient[(triton.cdiv(entries, 32),)](
                indptr, indices, weight, row_scale, column_scale, x, g, to_weight, rows, entries, rows.bit_length() + 1,
                alpha, width, IN=x.dim() == 3, E=32, TINY=torch.finfo(dtype).tiny, num_warps=4, **settings,
            )  # fmt: skip
        _fold[(triton.cdiv(rows, 8),)](g, y, g, to_out, rows, alpha, width, IN=True, SUM=False, R=8, **settings)
        _fold[(triton.cdiv(inputs, 8),)](
            back, x, total, to_in, inputs, alpha, width, IN=x.dim() == 3, SUM=x.dim() == 2, R=8, **settings
        )
    return total.to(x.dtype), to_weight, unscaled(to_out, row_scale[:, 1:]), unscaled(to_in, column_scale[:, 1:])


def scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    """The gradient of the weights [E] from that of the scales [N, α + 1]."""
    q, t = scale[:, 0], scale[:, 1:]
    alpha, rows, entries = t.shape[1], t.shape[0], weight.numel()
    orders = torch.arange(1, alpha + 1, device=t.device, dtype=t.dtype)
    shares = (grad[:, 1:] * orders * (-t * t if by_rows else -0.5 * t**3)).contiguous()
    factor = (q if by_rows else q * q).contiguous()
    out = torch.empty_like(weight, memory_format=torch.contiguous_format)
    with torch.cuda.device(weight.device) if weight.is_cuda else contextlib.nullcontext():
        if entries:
            _scale_gradient[(triton.cdiv(entries, 256),)](
                indptr.contiguous(), weight.contiguous(), factor, shares, out, rows, entries, rows.bit_length() + 1,
                alpha, E=256, ACC=tl.float64 if t.dtype == torch.float64 else tl.float32,
            )  # fmt: skip
    return out
