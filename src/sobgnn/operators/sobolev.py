"""A graph to its normalized sparse Sobolev operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.convert import check_graph
from sobgnn.graphs.graph import Graph
from sobgnn.operators.base import OperatorBase, check_alpha, check_epsilon, clamp_epsilon, warn_unweighted
from sobgnn.operators.rows import SobolevRows, as_rows
from sobgnn.propagation import SobolevCSR

_SMALLEST = np.finfo(np.float32).tiny


class SobolevOperators(OperatorBase):
    r"""The normalized sparse Sobolev terms of a graph, on one shared pattern.

    .. math:: \hat{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{(\rho)} D_\rho^{-1/2}, \qquad \rho = 1, \dots, \alpha

    The power is entrywise, so every order keeps A's pattern. What is stored is A itself and α + 1 numbers per
    node; no order is ever written out. With :math:`m_i = \max(\epsilon, \max_j w_{ij})`,
    :math:`q_i = m_i^{-1/2}`, :math:`r_{ij} = w_{ij} q_i q_j \le 1` and
    :math:`t_\rho[i] = (\sum_j (w_{ij} / m_i)^\rho + (\epsilon / m_i)^\rho)^{-1/2}`,

    .. math:: \hat{A}_\rho[i, j] = t_\rho[i] \, r_{ij}^\rho \, t_\rho[j],

    in which every factor lies in [0, 1] for any α, ε and weights: nothing overflows, and only entries that are
    themselves below float32's range vanish.

    Args:
        graph: Symmetric, weighted, without self-loops. Where its weights require gradients, propagation gives them
            theirs; scales are then computed at every propagation.
        alpha: Number of orders, at least 1.
        epsilon: Weight of every self-loop, at least 0; with 0, isolated nodes get zero rows.

    Examples:
        >>> import torch
        >>> from sobgnn import Graph, SobolevOperators
        >>> pair = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), torch.tensor([0.5, 0.5]))
        >>> operators = SobolevOperators(pair, alpha=2, epsilon=1.0)
        >>> operators.propagate(torch.eye(2)).shape  # [N, α, h]
        torch.Size([2, 2, 2])
        >>> operators.matrix(2).toarray().round(4).tolist()  # 1 / 1.25 and 0.25 / 1.25
        [[0.8, 0.2], [0.2, 0.8]]
    """

    def __init__(self, graph: Graph, alpha: int = 3, epsilon: float = 1.0) -> None:
        self.graph, self.alpha, self.epsilon = check_graph(graph), check_alpha(alpha), check_epsilon(epsilon)
        if alpha > 1 and not torch.compiler.is_compiling() and graph.num_edges and bool((graph.weight == 1).all()):
            warn_unweighted(epsilon)
        self._scale: dict[torch.dtype, Tensor] = {}
        self.scale()

    def __repr__(self) -> str:
        return f"SobolevOperators({self.graph}, alpha={self.alpha}, epsilon={self.epsilon})"

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.graph.num_nodes

    @property
    def learned(self) -> bool:
        """Whether the graph's weights require gradients, so that what is made of them changes from step to step."""
        return self.graph.weight.requires_grad

    @property
    def device(self) -> torch.device:
        """Where the graph and the scales live."""
        return self.graph.device

    @property
    def nbytes(self) -> int:
        """Bytes held on top of the graph's own."""
        return sum(s.numel() * s.element_size() for s in self._scale.values())

    def scale(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Columns q, t_1 … t_α [N, α+1], float32; float64 ones for float64 signals, made when first asked for.

        Where nothing is learned they are computed on the CPU: the same numbers for every device.
        """
        key = torch.float64 if dtype == torch.float64 else torch.float32
        indptr, weight, settings = self.graph.indptr, self.graph.weight, (self.alpha, clamp_epsilon(self.epsilon))
        if self.learned:
            return propagation.scales(indptr, weight.to(key), *settings)
        if key not in self._scale:
            with torch.inference_mode(False):  # a training may use them later
                scale = propagation.scales(indptr.cpu(), weight.cpu().to(key), *settings)
                self._scale[key] = scale.to(self.device)
        return self._scale[key]

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators as :mod:`sobgnn.propagation` takes them."""
        g, scale = self.graph, self.scale(dtype)
        csr = (g.indptr, g.indices, g.weight.to(scale.dtype) if self.learned else g.weight)
        # The transpose serves the features' gradient, which is a constant to the weights.
        return SobolevCSR(*csr, *csr[:2], csr[2].detach(), scale, scale, clamp_epsilon(self.epsilon))

    def rows(self, index: Tensor) -> SobolevRows:
        """Rows ``index`` of every order, numbers or a mask of nodes: propagation to those nodes alone."""
        return SobolevRows(self, index)

    def receptive_field(self, index: Tensor, num_layers: int) -> list[SobolevRows]:
        """What each of ``num_layers`` layers has to compute so that the last one is right at ``index``.

        Entry l gives the rows of layer l+1 and reads those of the entry before it; the first reads features at its
        own ``columns``. With few labels this is a small part of a large graph, and exact.
        """
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, but got {num_layers}.")
        adjacency, rows = self.graph.to_scipy(copy=False), as_rows(index, self.num_nodes).cpu().numpy()
        field = []
        for _ in range(num_layers):
            columns = np.union1d(adjacency[rows].indices, rows)
            field.append(SobolevRows(self, torch.from_numpy(rows), torch.from_numpy(columns)))
            rows = columns.astype(np.int64)
        return field[::-1]

    def matrix(self, rho: int) -> sp.csr_array:
        """Â_ρ for looking, float64 CSR [N, N], the diagonal included where ε > 0.

        Entries below float32's range are exact zeros, as they are in propagation.
        """
        if isinstance(rho, bool) or not isinstance(rho, (int, np.integer)) or not 1 <= rho <= self.alpha:
            raise ValueError(f"`rho` must be an integer between 1 and alpha={self.alpha}, but got {rho!r}.")
        term = shift_diagonal(self.graph.to_scipy(copy=False).astype(np.float64), clamp_epsilon(self.epsilon))
        rows, columns = np.repeat(np.arange(self.num_nodes), np.diff(term.indptr)), term.indices
        scale = self.scale(torch.float64).detach().cpu().numpy()
        q, t = scale[:, 0], scale[:, rho]
        # Products of two scales first: they commute, so the matrix is symmetric to the last bit.
        term.data = (term.data * (q[rows] * q[columns])) ** rho * (t[rows] * t[columns])
        term.data[term.data < _SMALLEST] = 0.0
        return term

    def to(self, device: torch.device | str) -> SobolevOperators:
        """The same operators on another device; nothing is computed again."""
        moved = object.__new__(SobolevOperators)
        moved.graph, moved.alpha, moved.epsilon = self.graph.to(device), self.alpha, self.epsilon
        moved._scale = {dtype: scale.to(device) for dtype, scale in self._scale.items()}
        return moved


def shift_diagonal(matrix: Any, epsilon: float) -> sp.csr_array:
    """M + εI as CSR with sorted indices."""
    n = matrix.shape[0]
    shifted = (matrix + epsilon * sp.eye_array(n, format="csr")).tocsr() if epsilon else matrix.tocsr(copy=True)
    shifted.sort_indices()
    return shifted
