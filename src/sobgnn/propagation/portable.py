"""The operators as one torch sparse CSR product per order: slow, short, and what the others are tested against."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from sobgnn.propagation.csr import SobolevCSR

_ENTRIES = 1 << 14  # number of entries whose rows are multiplied at once


def run(csr: SobolevCSR, x: Tensor, out: Tensor) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h]."""
    # Sums in at least float32; coefficients are made in float64, where a power of a float32 cannot underflow
    # before it is scaled, and rounded once.
    dtype = csr.column_scale.dtype
    rows = row_of_entries(csr.indptr)
    columns = csr.indices
    q_out, q_in = csr.row_scale[:, 0].double(), csr.column_scale[:, 0].double()
    base = csr.weight.double() * (q_out[rows] * q_in[columns])
    total = x.new_zeros(out.shape, dtype=dtype)
    for order in range(1, csr.column_scale.shape[1]):
        t_out, t_in = csr.row_scale[:, order].double(), csr.column_scale[:, order].double()
        values = flush(flush(base**order, dtype) * (t_out[rows] * t_in[columns]), dtype)
        features = (x if x.dim() == 2 else x[:, order - 1]).to(dtype).contiguous()
        product = _matmul(csr, values.to(dtype), features)
        if csr.epsilon != 0.0:
            loop = flush((csr.epsilon * (q_out * q_in)) ** order, dtype)
            diagonal = flush(loop * (t_out * t_in), dtype)
            product += diagonal.to(dtype).unsqueeze(1) * features
        if out.dim() == 2:
            total += product
        else:
            total[:, order - 1] = product
    out.copy_(total)


def gradients(csr: SobolevCSR, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x, the weights [E], row_scale [R, α], column_scale [C, α] from the output y [R, α, h] and its g."""
    dtype, alpha = csr.column_scale.dtype, g.shape[1]
    x, y, g = x.to(dtype), y.to(dtype), g.to(dtype)
    back = g.new_empty((csr.column_scale.shape[0], *g.shape[1:]))
    run(csr.transposed(), g, back)
    own = x if x.dim() == 3 else x.unsqueeze(1)
    to_column_scale = unscaled((back * own).sum(dim=2), csr.column_scale[:, 1:])
    to_row_scale = unscaled((g * y).sum(dim=2), csr.row_scale[:, 1:])
    rows = row_of_entries(csr.indptr)
    to_weight = g.new_empty(rows.shape)
    orders = torch.arange(1, alpha + 1, device=g.device, dtype=torch.float64)
    for start in range(0, rows.numel(), _ENTRIES):  # never all entries' features at once
        part = slice(start, start + _ENTRIES)
        i, j, w = rows[part], csr.indices[part].long(), csr.weight[part].double()
        outer, inner = csr.row_scale[i].double(), csr.column_scale[j].double()
        power = flush((w * (outer[:, 0] * inner[:, 0])).unsqueeze(1) ** orders, dtype)
        dots = (g[i] * own[j]).sum(dim=2)
        to_weight[part] = ((orders * power * outer[:, 1:] * inner[:, 1:] * dots).sum(dim=1) / w).to(dtype)
    return (back if x.dim() == 3 else back.sum(dim=1)), to_weight, to_row_scale, to_column_scale


def scales(indptr: Tensor, weight: Tensor, alpha: int, epsilon: float, by_rows: bool) -> Tensor:
    """Columns q, t_1 … t_α [N, α + 1] of the rows of a CSR, in the type of its weights; summed in float64."""
    w = weight.double()
    most = torch.segment_reduce(w, "max", offsets=indptr, initial=0.0) if w.numel() else w.new_zeros(indptr.numel() - 1)
    most = most.clamp_min(epsilon)
    live = most > 0
    mantissa, exponent = torch.frexp(torch.where(live, most, 1.0) ** (-1.0 if by_rows else -0.5))
    q = torch.ldexp(torch.round(mantissa * 4096), exponent - 12)
    factor = q if by_rows else q * q
    base = w * factor[row_of_entries(indptr)]
    columns = [q]
    for order in range(1, alpha + 1):
        degree = (epsilon * factor) ** order
        if w.numel():
            degree = degree + torch.segment_reduce(base**order, "sum", offsets=indptr, initial=0.0)
        columns.append(degree ** (-1.0 if by_rows else -0.5))
    return torch.where(live.unsqueeze(1), torch.stack(columns, 1), 0.0).to(weight.dtype)


def scales_backward(indptr: Tensor, weight: Tensor, scale: Tensor, grad: Tensor, by_rows: bool) -> Tensor:
    """The gradient of the weights [E] from that of :func:`scales`."""
    rows, w = row_of_entries(indptr), weight.double()
    q, t, g = scale[:, 0].double(), scale[:, 1:].double(), grad[:, 1:].double()
    shares = g * (-t * t if by_rows else -0.5 * t**3)
    base = w * (q if by_rows else q * q)[rows]
    total = torch.zeros_like(w)
    for order in range(scale.shape[1] - 1, 0, -1):  # Horner's rule
        total = (total + order * shares[rows, order - 1]) * base
    return (total / w).to(weight.dtype)


def unscaled(sums: Tensor, scale: Tensor) -> Tensor:
    """Divide sums by the scale they were computed with; 0 where the scale is 0."""
    return torch.where(scale > 0, sums / torch.where(scale > 0, scale, 1.0), 0.0)


def row_of_entries(indptr: Tensor) -> Tensor:
    """The row of each entry of a CSR, int64 [E]."""
    return torch.repeat_interleave(torch.arange(indptr.numel() - 1, device=indptr.device), indptr.diff())


def flush(power: Tensor, dtype: torch.dtype) -> Tensor:
    """Replace powers and entries that are denormal in ``dtype`` by exact zeros, as every backend does."""
    return torch.where(power < torch.finfo(dtype).tiny, 0.0, power)


def _matmul(csr: SobolevCSR, values: Tensor, features: Tensor) -> Tensor:
    shape = (csr.row_scale.shape[0], csr.column_scale.shape[0])
    if values.numel() == 0 or features.shape[1] == 0:
        return features.new_zeros(shape[0], features.shape[1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support is in beta|invariant checks)")
        matrix = torch.sparse_csr_tensor(
            csr.indptr.to(csr.indices.dtype), csr.indices, values, shape, check_invariants=False
        )
    # Under autocast the product would be of float16 or bfloat16, which sparse matrices do not have.
    with torch.autocast(features.device.type, enabled=False):
        return matrix @ features
