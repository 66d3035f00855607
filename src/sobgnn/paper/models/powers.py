"""The higher-order operators that the sparse ones replace: true matrix powers, which become dense."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.graph import Graph
from sobgnn.propagation import Stencil, csr_tensors

# Maximum number of entries of one power: 12 bytes each, and as much again while they are computed.
_MOST_ENTRIES = 600_000_000


class MatrixPowers:
    r"""Normalized matrix powers of a graph, each with its own pattern; for comparison.

    .. math:: \tilde{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{\rho} D_\rho^{-1/2}, \qquad \rho = 1, \dots, \alpha

    Used in place of :class:`~sobgnn.SobolevOperators` in :class:`~sobgnn.SSobGNN`.

    Args:
        graph: Symmetric, weighted, without self-loops.
        alpha: Number of powers.
        epsilon: Weight of every self-loop.
        index: int64 [R], the rows to return; ``None`` for all.
    """

    nodes: Tensor | None

    def __init__(self, graph: Graph, alpha: int, epsilon: float, index: Tensor | None = None) -> None:
        self.alpha = alpha
        self.num_nodes = graph.num_nodes
        self.nodes = index
        base = (graph.to_scipy().astype(np.float64) + epsilon * sp.eye_array(graph.num_nodes)).tocsr()
        rows = None if index is None else index.cpu().numpy()
        self._stencils = []
        power = base
        for rho in range(1, alpha + 1):
            if rho > 1:
                power = power @ base
            if power.nnz > _MOST_ENTRIES:
                raise ValueError(f"Power {rho} has {power.nnz} entries, too many for memory. Lower `alpha`.")
            self._stencils.append(matrix_stencil(_normalized(power, rows), graph.device, square=rows is None))

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices, each counted once, without transposed copies."""
        return sum(
            t.numel() * t.element_size() for s in self._stencils for t in (s.indptr, s.indices, s.weight)
        )  # fmt: skip

    def propagate(self, H: Tensor) -> Tensor:
        """Every power applied to one signal: H [N, h] to [R, α, h]."""
        return torch.cat([propagation.expand(stencil, H) for stencil in self._stencils], dim=1)

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each power applied to its own signal: H [N, α, h] to [R, α, h]."""
        parts = [propagation.expand(stencil, H[:, i]) for i, stencil in enumerate(self._stencils)]
        return torch.cat(parts, dim=1)


def matrix_stencil(matrix: sp.csr_array, device: torch.device, *, square: bool) -> Stencil:
    """Any sparse matrix as the only order of a stencil; ``square``: it is its own transpose."""
    forward = csr_tensors(matrix, device)
    backward = forward if square else csr_tensors(matrix.T.tocsr(), device)
    left, right = (torch.ones(size, 2, device=device) for size in matrix.shape)
    return Stencil(*forward, *backward, left, right, 0.0)


def _normalized(power: sp.csr_array, rows: np.ndarray | None) -> sp.csr_array:
    degree = np.asarray(power.sum(axis=1)).ravel()
    scale = np.divide(1.0, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree))
    left = scale if rows is None else scale[rows]
    block = power if rows is None else power[rows]
    return (sp.diags_array(left) @ block @ sp.diags_array(scale)).tocsr()
