"""New points on a trained graph: attached to their neighbours, which stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.operators import SobolevOperators, clamp_epsilon, node_scales
from sobgnn.propagation import Stencil
from sobgnn.smoothing import random_walk


@dataclass(frozen=True)
class Attachment:
    r"""M new points joined to N nodes of a graph whose scales do not change.

    A new point i has its own degrees, from its own edges and self-loop, so

    .. math:: \hat{A}_\rho[i, j] = t_\rho[i] \, (w_{ij} q_i q_j)^\rho \, t_\rho[j]

    as in :class:`~sobgnn.SobolevOperators`, with q and t of node j as they were in training.

    Attributes:
        stencil: The M x N pattern.
        loop: Â_ρ[i, i], [M, α].
        walk: w_ij / Σ_j w_ij, M x N, as an operator of one order; zero rows for points without edges.
    """

    stencil: Stencil
    loop: Tensor
    walk: Stencil

    def propagate(self, nodes: Tensor, own: Tensor) -> Tensor:
        """Every order: node rows [N, h] and the new points' own [M, h] to [M, α, h]."""
        return propagation.expand(self.stencil, nodes) + self.loop.unsqueeze(2) * own.unsqueeze(1)

    def average(self, nodes: Tensor) -> Tensor:
        """The neighbours' mean of node rows [N, h], by weight: [M, h]; zeros for points without edges."""
        return propagation.expand(self.walk, nodes)[:, 0]


def attach(operators: SobolevOperators, edges: sp.csr_array) -> Attachment:
    """Join new points to a graph by ``edges``, CSR [M, N] of positive float32 weights."""
    edges.sort_indices()
    device, epsilon, alpha = operators.device, clamp_epsilon(operators.epsilon), operators.alpha
    # The scales of the new points are those they would have in a graph of these edges alone.
    scale = node_scales(edges.indptr, edges.data, alpha, epsilon)
    base = epsilon * scale[:, 0] ** 2
    loop = np.stack([base**rho * scale[:, rho] ** 2 for rho in range(1, alpha + 1)], axis=1)
    forward, backward = _tensors(edges, device), _tensors(edges.T.tocsr(), device)
    stencil = Stencil(*forward, *backward, torch.from_numpy(scale).float().to(device), operators.scale(), 0.0)
    return Attachment(stencil, torch.from_numpy(loop).float().to(device), random_walk(*forward, backward))


def _tensors(csr: sp.csr_array, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.from_numpy(csr.indptr.astype(np.int64)).to(device),
        torch.from_numpy(csr.indices.astype(np.int32)).to(device),
        torch.from_numpy(csr.data.astype(np.float32)).to(device),
    )
