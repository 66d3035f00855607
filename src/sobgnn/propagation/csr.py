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

    def transposed(self) -> SobolevCSR:
        """The CSR of the transposed matrices; copies nothing."""
        return SobolevCSR(*self[3:6], *self[:3], self.column_scale, self.row_scale, self.epsilon)


def csr_tensors(
    csr: Any, device: torch.device | str, index_dtype: torch.dtype = torch.int32
) -> tuple[Tensor, Tensor, Tensor]:
    """``indptr``, ``indices`` and ``weight`` of a scipy CSR matrix, as a :class:`SobolevCSR` takes them."""
    return (
        torch.from_numpy(csr.indptr.astype(np.int64)).to(device),
        torch.from_numpy(csr.indices).to(device, index_dtype),
        torch.from_numpy(csr.data).to(device, torch.float32),
    )
