"""What the propagation operators read: one sparse pattern, its transpose, and a few scales per node."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Stencil(NamedTuple):
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
        scale_out: [R, α + 1], columns q, t_1, …, t_α; float32, or float64 where the features are float64. q has 12
            significant bits, so that a product of two is exact and an entry has the same value from either side.
        scale_in: [C, α + 1], likewise.
        epsilon: Weight of the self-loops; 0.0 unless R = C (a rectangular pattern carries its own as entries).
    """

    indptr: Tensor
    indices: Tensor
    weight: Tensor
    t_indptr: Tensor
    t_indices: Tensor
    t_weight: Tensor
    scale_out: Tensor
    scale_in: Tensor
    epsilon: float


def csr_tensors(
    csr: Any,
    device: torch.device | str,
    index_dtype: torch.dtype = torch.int32,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """``indptr``, ``indices`` and ``weight`` of a scipy CSR matrix, as a :class:`Stencil` takes them."""
    return (
        torch.from_numpy(csr.indptr.astype(np.int64)).to(device),
        torch.from_numpy(csr.indices).to(device, index_dtype),
        torch.from_numpy(csr.data).to(device, dtype),
    )


def transpose(stencil: Stencil) -> Stencil:
    """The stencil of the transposed matrices; copies nothing."""
    return Stencil(
        stencil.t_indptr,
        stencil.t_indices,
        stencil.t_weight,
        stencil.indptr,
        stencil.indices,
        stencil.weight,
        stencil.scale_in,
        stencil.scale_out,
        stencil.epsilon,
    )


def check(stencil: Stencil, x: Tensor, *, orders: bool) -> None:
    """Raise on sizes, types or devices that do not fit; ``orders`` says whether x has a dimension of orders."""
    check_stencil(stencil)
    columns = stencil.t_indptr.numel() - 1
    alpha = stencil.scale_in.shape[1] - 1
    expected = f"[{columns}, {alpha}, h]" if orders else f"[{columns}, h]"
    leading = (columns, alpha) if orders else (columns,)
    if x.dim() != len(leading) + 1 or tuple(x.shape[:-1]) != leading:
        raise ValueError(
            f"The features must have the shape {expected} of the stencil's inputs, but got {list(x.shape)}."
        )
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise TypeError(f"The features must be float32, float64 or bfloat16, but got {x.dtype}. Convert them.")
    needed = torch.float64 if x.dtype == torch.float64 else torch.float32
    if stencil.scale_in.dtype != needed:
        raise TypeError(
            f"Features of {x.dtype} need scales of {needed}, but the stencil has {stencil.scale_in.dtype}. "
            "Convert the features or the scales."
        )
    if x.device != stencil.weight.device:
        raise ValueError(
            f"The features and the stencil must be on one device, but got {x.device} and "
            f"{stencil.weight.device}. Move one with .to()."
        )


def check_stencil(stencil: Stencil) -> None:
    """Raise on a stencil whose own sizes, types or devices contradict each other."""
    indptr, indices, weight, t_indptr, t_indices, t_weight, scale_out, scale_in, epsilon = stencil
    rows, columns = indptr.numel() - 1, t_indptr.numel() - 1
    if rows < 0 or columns < 0 or indptr.dim() != 1 or t_indptr.dim() != 1:
        raise ValueError(
            f"`indptr` and `t_indptr` must have the shapes [R + 1] and [C + 1], but got {list(indptr.shape)} and "
            f"{list(t_indptr.shape)}."
        )
    edges = (indices.numel(), weight.numel(), t_indices.numel(), t_weight.numel())
    if any(number != edges[0] for number in edges):  # not a set: sizes may be symbols
        raise ValueError(
            "`indices`, `weight`, `t_indices` and `t_weight` must have one length, the number of entries, but got "
            f"{edges}."
        )
    if scale_out.dim() != 2 or scale_in.dim() != 2 or scale_in.shape[1] < 2:
        raise ValueError(
            "`scale_out` and `scale_in` must have the shapes [R, alpha + 1] and [C, alpha + 1] with alpha at least 1, "
            f"but got {list(scale_out.shape)} and {list(scale_in.shape)}."
        )
    if scale_out.shape[0] != rows or scale_in.shape[0] != columns or scale_out.shape[1] != scale_in.shape[1]:
        raise ValueError(
            f"`scale_out` and `scale_in` must have {rows} and {columns} rows and the same columns q, t_1, ..., "
            f"t_alpha, but got {list(scale_out.shape)} and {list(scale_in.shape)}."
        )
    if indptr.dtype != torch.int64 or t_indptr.dtype != torch.int64:
        raise TypeError(f"`indptr` and `t_indptr` must be int64, but got {indptr.dtype} and {t_indptr.dtype}.")
    if indices.dtype not in (torch.int32, torch.int64) or t_indices.dtype not in (torch.int32, torch.int64):
        raise TypeError(
            f"`indices` and `t_indices` must be int32 or int64, but got {indices.dtype} and {t_indices.dtype}."
        )
    double = scale_in.dtype == weight.dtype == torch.float64
    if t_weight.dtype != weight.dtype or not (double or weight.dtype == torch.float32):
        raise TypeError(
            "`weight` and `t_weight` must be float32, or float64 where the scales are, but got "
            f"{weight.dtype} and {t_weight.dtype}."
        )
    if scale_out.dtype != scale_in.dtype or scale_in.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            "`scale_out` and `scale_in` must both be float32 or both float64, but got "
            f"{scale_out.dtype} and {scale_in.dtype}."
        )
    devices = {tensor.device for tensor in stencil[:-1]}
    if len(devices) != 1:
        names = ", ".join(sorted(str(device) for device in devices))
        raise ValueError(f"A stencil's tensors must be on one device, but got {names}. Move them with .to().")
    if epsilon != 0.0 and rows != columns:
        raise ValueError(
            f"`epsilon` must be 0.0 where rows and columns differ, but got {epsilon} for {rows} by {columns}. "
            "Give the self-loops as entries of the pattern."
        )
