"""The operators as one torch sparse CSR product per order: slow, short, and what the others are tested against."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from sobgnn.propagation.stencil import Stencil


def run(stencil: Stencil, x: Tensor, out: Tensor) -> None:
    """Fill ``out`` from ``x``, each [n, h] or [n, α, h]."""
    # Sums in at least float32; coefficients are made in float64, where a power of a float32 cannot underflow
    # before it is scaled, and rounded once.
    dtype = stencil.scale_in.dtype
    counts = stencil.indptr.diff()
    rows = torch.repeat_interleave(torch.arange(counts.numel(), device=x.device), counts)
    columns = stencil.indices
    q_out, q_in = stencil.scale_out[:, 0].double(), stencil.scale_in[:, 0].double()
    base = stencil.weight.double() * (q_out[rows] * q_in[columns])
    total = x.new_zeros(out.shape, dtype=dtype)
    for order in range(1, stencil.scale_in.shape[1]):
        t_out, t_in = stencil.scale_out[:, order].double(), stencil.scale_in[:, order].double()
        values = flush(base**order, dtype) * (t_out[rows] * t_in[columns])
        features = (x if x.dim() == 2 else x[:, order - 1]).to(dtype).contiguous()
        product = _matmul(stencil, values.to(dtype), features)
        if stencil.epsilon != 0.0:
            diagonal = flush((stencil.epsilon * (q_out * q_in)) ** order, dtype) * (t_out * t_in)
            product += diagonal.to(dtype).unsqueeze(1) * features
        if out.dim() == 2:
            total += product
        else:
            total[:, order - 1] = product
    out.copy_(total)


def flush(power: Tensor, dtype: torch.dtype) -> Tensor:
    """Powers that are denormal in ``dtype`` as the exact zeros that they are everywhere."""
    return torch.where(power < torch.finfo(dtype).tiny, 0.0, power)


def _matmul(stencil: Stencil, values: Tensor, features: Tensor) -> Tensor:
    shape = (stencil.scale_out.shape[0], stencil.scale_in.shape[0])
    if values.numel() == 0 or features.shape[1] == 0:
        return features.new_zeros(shape[0], features.shape[1])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        matrix = torch.sparse_csr_tensor(
            stencil.indptr.to(stencil.indices.dtype), stencil.indices, values, shape, check_invariants=False
        )
    return matrix @ features
