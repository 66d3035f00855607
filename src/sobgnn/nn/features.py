"""The decoupled form: orders and hops of the features once, then any network without a graph."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.operators import SobolevOperators, check_alpha, check_epsilon
from sobgnn.operators.edges import as_operators
from sobgnn.operators.sobolev import check_count


class SobolevFeatures:
    r"""Features propagated by every order, hop by hop: what SIGN has for one operator, for all :math:`\hat{A}_\rho`.

    .. math:: X, \quad \hat{A}_1 X, \dots, \hat{A}_\alpha X, \quad \hat{A}_1^2 X, \dots, \hat{A}_\alpha^2 X, \quad \dots

    Blocks come in this order: X, then for each hop h = 1 … ``hops`` and within it for each order ρ = 1 … ``alpha``
    :math:`\hat{A}_\rho^h X` (a power of the matrix). No order is mixed with another.

    Called with ``(x, graph)`` it gives the blocks; called with PyG's ``Data`` (or a batch) it is a transform, which
    adds them as ``data.sobolev``.

    Args:
        alpha: Number of orders, at least 1.
        epsilon: Weight of self-loops, at least 0.
        hops: Number of hops, at least 0.

    Shapes:
        x [N, F] and a graph of N nodes (a :class:`~sobgnn.Graph`, :class:`~sobgnn.SobolevOperators` with this α, or
        PyG's ``edge_index``); gives [N, 1 + hops · α, F].
    """

    def __init__(self, alpha: int = 3, epsilon: float = 1.0, hops: int = 2) -> None:
        self.alpha = check_alpha(alpha)
        self.epsilon = check_epsilon(epsilon)
        self.hops = check_count("hops", hops, 0)

    @property
    def num_blocks(self) -> int:
        """Number of blocks: X and one for each hop and order."""
        return 1 + self.hops * self.alpha

    def __call__(self, x: Any, graph: Any = None, edge_weight: Tensor | None = None) -> Any:
        """Blocks [N, 1 + hops · α, F]; or, of PyG's ``Data``, a copy with them as ``sobolev``."""
        if not isinstance(x, Tensor) and hasattr(x, "edge_index"):
            if getattr(x, "x", None) is None or x.edge_index is None:
                raise ValueError("The features need data.x and data.edge_index, but one of them is missing.")
            data = x.__copy__()
            data.sobolev = self(data.x, data.edge_index, _weights(data))
            return data
        x = torch.as_tensor(x.toarray() if sp.issparse(x) else x)
        if graph is None:
            raise ValueError("The features need a graph. Pass SobolevFeatures()(x, graph), or PyG's Data.")
        if x.layout != torch.strided:
            x = x.to_dense()
        if x.ndim != 2:
            raise ValueError(f"x must have shape [N, F], but got {list(x.shape)}. Call it for each signal.")
        x = x if x.is_floating_point() else x.float()
        if x.dtype == torch.float16:  # which the kernels do not know: summed in float32
            return self(x.float(), graph, edge_weight).half()
        operators = as_operators(graph, edge_weight, len(x), x.dtype, alpha=self.alpha, epsilon=self.epsilon)
        if isinstance(operators, SobolevOperators) and operators.num_nodes != x.shape[0]:
            raise ValueError(f"x must have one row per node, but got {x.shape[0]} for {operators.num_nodes} nodes.")
        blocks = [x.unsqueeze(1)]
        for hop in range(self.hops):
            blocks.append(operators.propagate(x) if hop == 0 else operators.propagate_each(blocks[-1]))
        return torch.cat(blocks, dim=1)

    def forward(self, data: Any) -> Any:
        """PyG's name for a transform."""
        return self(data)

    def __repr__(self) -> str:
        return f"SobolevFeatures(alpha={self.alpha}, epsilon={self.epsilon}, hops={self.hops})"


def _weights(data: Any) -> Tensor | None:
    """The edges' weights: ``edge_weight``, or a number for each edge as ``edge_attr``, or ``None``."""
    weight = getattr(data, "edge_weight", None)
    attribute = getattr(data, "edge_attr", None)
    if weight is None and isinstance(attribute, Tensor) and attribute.ndim == 1:
        weight = attribute
    return weight
