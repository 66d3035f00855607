"""New points on a trained graph: attached to their neighbors, which stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.operators.base import clamp_epsilon
from sobgnn.operators.sobolev import SobolevOperators
from sobgnn.propagation import SobolevCSR, backends, csr_tensors
from sobgnn.propagation.csr import check


@dataclass(frozen=True)
class Attachment:
    r"""M new points joined to N nodes of a graph whose scales do not change.

    A new point i has its own degrees, from its own edges and self-loop, so

    .. math:: \hat{A}_\rho[i, j] = t_\rho[i] \, (w_{ij} q_i q_j)^\rho \, t_\rho[j]

    as in :class:`~sobgnn.SobolevOperators`, with q and t of node j as they were in training.

    Attributes:
        csr: The M x U pattern, its columns the U nodes that some edge goes to.
        loop: Â_ρ[i, i], [M, α].
        walk: w_ij / Σ_j w_ij, M x U, as an operator of one order; zero rows for points without edges.
        used: int64 [U], those nodes; ``None``: all N in their order. So a few points on a large graph cost what they
            read, and not what the graph holds.
    """

    csr: SobolevCSR
    loop: Tensor
    walk: SobolevCSR
    used: Tensor | None = None

    def propagate(self, nodes: Tensor, own: Tensor) -> Tensor:
        """Every order: node rows [N, h] and the new points' own [M, h] to [M, α, h]."""
        return self._run(self.csr, nodes) + self.loop.unsqueeze(2) * own.unsqueeze(1)

    def propagate_each(self, nodes: Tensor, own: Tensor) -> Tensor:
        """Each order of its own signal: node rows [N, α, h] and the new points' own [M, α, h] to [M, α, h]."""
        return self._run(self.csr, nodes) + self.loop.unsqueeze(2) * own

    def average(self, nodes: Tensor) -> Tensor:
        """The neighbors' mean of node rows [N, h], by weight: [M, h]; zeros for points without edges."""
        return self._run(self.walk, nodes)[:, 0]

    @property
    def degree(self) -> Tensor:
        """Number of edges of each new point, int64 [M]."""
        return self.walk.indptr.diff()

    def total(self, nodes: Tensor) -> Tensor:
        """The neighbors' sum of node rows [N, h], edges counted alike: [M, h]."""
        ones = torch.ones_like(self.walk.weight)
        return self._run(self.walk._replace(weight=ones, t_weight=ones), nodes)[:, 0]

    def _run(self, csr: SobolevCSR, nodes: Tensor) -> Tensor:
        """Every order of node rows [N, h], or each order of its own [N, α, h]: [M, α, h]."""
        x = nodes if self.used is None else nodes.index_select(0, self.used)
        orders = nodes.ndim == 3
        if torch.is_grad_enabled():
            return propagation.propagate_each(csr, x) if orders else propagation.propagate(csr, x)
        # Without the overhead of a torch operator, which is more than the work of a single point.
        check(csr, x, orders=orders)
        rows, columns = csr.row_scale.shape
        return backends.run(csr, x, x.new_empty((rows, columns - 1, x.shape[-1])))


def attach(operators: SobolevOperators, edges: sp.csr_array) -> Attachment:
    """Join new points to a graph by ``edges``, CSR [M, N] of positive float32 weights."""
    edges.sort_indices()
    device, epsilon, alpha = operators.device, clamp_epsilon(operators.epsilon), operators.alpha
    column_scale, used = operators.scale(), None
    if edges.nnz < edges.shape[1]:
        chosen, place = np.unique(edges.indices, return_inverse=True)  # sorted, so rows keep their order
        used = torch.from_numpy(chosen.astype(np.int64)).to(device)
        column_scale = column_scale.index_select(0, used)
        place = place.astype(np.int32)
        edges = sp.csr_array((edges.data, place, edges.indptr), shape=(edges.shape[0], len(chosen)))
    # The scales of the new points are those they would have in a graph of these edges alone.
    forward, backward = csr_tensors(edges, device), _transposed(edges, device)
    scale = propagation.scales(forward[0], forward[2].double(), alpha, epsilon)
    base = epsilon * scale[:, :1] ** 2
    loop = base ** torch.arange(1, alpha + 1, device=device) * scale[:, 1:] ** 2
    csr = SobolevCSR(*forward, *backward, scale.float(), column_scale, 0.0)
    return Attachment(csr, loop.float(), random_walk(*forward, backward), used)


def _transposed(edges: sp.csr_array, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`csr_tensors` of the transpose, without the overhead of another matrix."""
    rows = np.repeat(np.arange(edges.shape[0], dtype=np.int32), np.diff(edges.indptr))
    order = np.argsort(edges.indices, kind="stable")
    indptr = np.zeros(edges.shape[1] + 1, np.int64)
    np.cumsum(np.bincount(edges.indices, minlength=edges.shape[1]), out=indptr[1:])
    parts = (indptr, rows[order], edges.data[order].astype(np.float32))
    return tuple(torch.from_numpy(part).to(device) for part in parts)  # type: ignore[return-value]


def random_walk(
    indptr: Tensor, indices: Tensor, weight: Tensor, transposed: tuple[Tensor, Tensor, Tensor]
) -> SobolevCSR:
    """D^{-1} A of a CSR matrix [M, N] and its transpose's CSR, as an operator of one order; zero rows stay zero."""
    rows = torch.repeat_interleave(indptr.diff())
    total = torch.zeros(indptr.numel() - 1, dtype=torch.float64, device=weight.device)
    total.index_add_(0, rows, weight.double())
    live = total > 0
    # Shares, not weights: the sum of a row of very small weights has no reciprocal in float32.
    inverse = torch.where(live, 1 / torch.where(live, total, 1.0), 0.0)
    shares = (weight.double() * inverse[rows]).float()
    t_indptr, t_indices, t_weight = transposed
    t_shares = (t_weight.double() * inverse[t_indices.long()]).float()
    ones = weight.new_ones
    scales = ones((len(total), 2)), ones((t_indptr.numel() - 1, 2))
    return SobolevCSR(indptr, indices, shares, t_indptr, t_indices, t_shares, *scales, 0.0)
