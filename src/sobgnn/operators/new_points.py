"""New points on a trained graph: attached to their neighbors, which stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.operators.sobolev import SobolevOperators, clamp_epsilon
from sobgnn.propagation import SobolevCSR, csr_tensors, propagate_into
from sobgnn.propagation.ops import check


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
        return propagate_into(csr, x, x.new_empty((rows, columns - 1, x.shape[-1])))


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
    forward, backward = csr_tensors(edges, device), csr_tensors(edges.T.tocsr(), device)
    # The scales of the new points are those they would have in a graph of these edges alone.
    scale = propagation.scales(forward[0], forward[2].double(), alpha, epsilon)
    base = epsilon * scale[:, :1] ** 2
    loop = base ** torch.arange(1, alpha + 1, device=device) * scale[:, 1:] ** 2
    csr = SobolevCSR(*forward, *backward, scale.float(), column_scale, 0.0)
    # Shares, not weights: the sum of a row of very small weights has no reciprocal in float32.
    rows = torch.repeat_interleave(csr.indptr.diff())
    total = scale.new_zeros(edges.shape[0]).index_add_(0, rows, csr.weight.double())
    share = 1 / torch.where(total > 0, total, 1.0)
    walk = csr._replace(
        weight=(csr.weight.double() * share[rows]).float(),
        t_weight=(csr.t_weight.double() * share[csr.t_indices.long()]).float(),
        row_scale=csr.weight.new_ones((edges.shape[0], 2)),
        column_scale=csr.weight.new_ones((edges.shape[1], 2)),
    )
    return Attachment(csr, loop.float(), walk, used)
