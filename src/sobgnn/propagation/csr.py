"""What the propagation operators read: one sparse pattern, its transpose, and a few scales per node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class SobolevCSR(NamedTuple):
    r"""One pattern of R rows (outputs) and C columns (inputs) that stands for α matrices.

    .. math:: S_\rho[i,j] = t^{out}_{i\rho} \; (w_{ij} q_i q_j)^\rho \; t^{in}_{j\rho}, \qquad \rho = 1, \dots, \alpha

    and, where R = C, the diagonal :math:`t^{out}_{i\rho} (\epsilon q_i^2)^\rho t^{in}_{i\rho}` on top of it.
    The scales keep every base :math:`w_{ij} q_i q_j` at about 1 or below, so that no power overflows.

    All tensors live on one device. The pattern is trusted: sizes and types are checked at each call, but an
    index outside [0, C), an ``indptr`` that does not end at E or a row whose indices do not ascend is undefined
    behavior, as reading E indices to check them would cost as much as the work itself.

    Attributes:
        indptr: [R + 1] int64. CSR, rows are outputs.
        indices: [E] int32 or int64.
        weight: [E] float32; or float64, where the scales are.
        t_indptr: [C + 1] int64. CSR of the transpose; the same three tensors for a symmetric graph.
        t_indices: [E] int32 or int64.
        t_weight: [E], of the same type.
        row_scale: [R, α + 1], columns q, t_1, …, t_α; float32, or float64 where the features are float64. q has 12
            significant bits, so that a product of two is exact and an entry has the same value from either side.
        column_scale: [C, α + 1], likewise.
        epsilon: Weight of the self-loops; 0.0 unless R = C (a rectangular pattern carries its own as entries).
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor
    t_indptr: Tensor
    t_indices: Tensor
    t_weight: Tensor
    row_scale: Tensor
    column_scale: Tensor
    epsilon: float


def csr_tensors(
    csr: Any,
    device: torch.device | str,
    index_dtype: torch.dtype = torch.int32,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """``indptr``, ``indices`` and ``weight`` of a scipy CSR matrix, as a :class:`SobolevCSR` takes them."""
    return (
        torch.from_numpy(csr.indptr.astype(np.int64)).to(device),
        torch.from_numpy(csr.indices).to(device, index_dtype),
        torch.from_numpy(csr.data).to(device, dtype),
    )


def transpose(csr: SobolevCSR) -> SobolevCSR:
    """The CSR of the transposed matrices; copies nothing."""
    return SobolevCSR(
        csr.t_indptr,
        csr.t_indices,
        csr.t_weight,
        csr.indptr,
        csr.indices,
        csr.weight,
        csr.column_scale,
        csr.row_scale,
        csr.epsilon,
    )


def check(csr: SobolevCSR, x: Tensor, *, orders: bool) -> None:
    """Raise on sizes, types or devices that do not fit; ``orders`` says whether x has a dimension of orders."""
    rows, columns, entries = csr.indptr.numel() - 1, csr.t_indptr.numel() - 1, csr.indices.numel()
    alpha = csr.column_scale.shape[-1] - 1
    if not isinstance(x, Tensor):
        raise TypeError(f"The signal must be a torch tensor, but got {type(x).__name__}. Use torch.as_tensor.")
    if x.layout != torch.strided:
        raise TypeError(f"The signal must be dense, but got {x.layout}. Convert it with .to_dense().")
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise TypeError(
            f"The signal must be float32, float64 or bfloat16, but got {x.dtype}. Convert it with .float()."
        )
    leading = (columns, alpha) if orders else (columns,)
    if x.ndim != len(leading) + 1 or tuple(x.shape[:-1]) != leading:
        expected = f"[{columns}, {alpha}, h]" if orders else f"[{columns}, h]"
        raise ValueError(
            f"The signal must have one row per node, {expected}, but got shape {list(x.shape)} for {columns} nodes."
        )
    index, real = (torch.int32, torch.int64), torch.float64 if x.dtype == torch.float64 else torch.float32
    weights = (torch.float32, real) if csr.weight.dtype == csr.t_weight.dtype else ()
    wanted = (
        ((rows + 1,), (torch.int64,)),
        ((entries,), index),
        ((entries,), weights),
        ((columns + 1,), (torch.int64,)),
        ((entries,), index),
        ((entries,), weights),
        ((rows, alpha + 1), (real,)),
        ((columns, alpha + 1), (real,)),
    )
    tensors: tuple[Tensor, ...] = csr[:8]
    for name, tensor, (shape, kinds) in zip(csr._fields, tensors, wanted, strict=False):
        if tensor.device != x.device:
            raise ValueError(
                f"The signal and the operators must be on one device, but got {x.device} and {tensor.device}. Move one "
                "with .to()."
            )
        if tuple(tensor.shape) != shape or tensor.dtype not in kinds:
            raise ValueError(
                f"`{name}` does not fit a signal of {x.dtype} and the other tensors: it must have shape {list(shape)} "
                f"and one of the types {kinds}, but has {list(tensor.shape)} and {tensor.dtype}."
            )
    if alpha < 1:
        raise ValueError("`column_scale` must have the columns q, t_1, ..., t_alpha with alpha at least 1.")
    if csr.epsilon != 0.0 and rows != columns:
        raise ValueError(
            f"`epsilon` must be 0.0 where rows and columns differ, but got {csr.epsilon} for {rows} by {columns}. "
            "Give the self-loops as entries of the pattern."
        )
