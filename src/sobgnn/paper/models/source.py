"""The models' inputs: features, a graph, and everything derived from them that never changes, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators
from sobgnn.propagation import SobolevCSR, csr_tensors

Kind = Literal["gcn", "adjacency", "cluster"]


@dataclass(frozen=True)
class Operator:
    """A fixed sparse matrix S [R, N] of a graph.

    Args:
        csr: The matrix, as the only order of a SobolevCSR.
        index: int64 [R], the rows that S has; ``None`` for all N.
        sign: 1 or -1, a factor of the matrix.
    """

    csr: SobolevCSR
    index: Tensor | None = None
    sign: int = 1

    def __call__(self, H: Tensor) -> Tensor:
        """S H, [R, h] of H [N, h]."""
        product = propagation.propagate(self.csr, H)[:, 0]
        return -product if self.sign < 0 else product

    def own(self, H: Tensor) -> Tensor:
        """H at the rows of S, [R, h]."""
        return H if self.index is None else H.index_select(0, self.index)


class Source:
    """Features and a graph, and what models derive from them without learning.

    Args:
        graph: The graph of N points.
        X: float32 [N, F], on the graph's device.

    Attributes:
        sobolev: (alpha, epsilon) -> the Sobolev operators; the last ones are kept.
    """

    def __init__(self, graph: Graph, X: Tensor) -> None:
        self.graph, self.X = graph, X
        self.sobolev: Callable[[int, float], SobolevOperators] = lru_cache(maxsize=1)(
            lambda alpha, epsilon: SobolevOperators(graph, alpha, epsilon)
        )
        self._kept: dict[Any, Any] = {}
        self._powers: dict[Kind, list[Tensor]] = {}

    def keep(self, make: Callable[..., Any], *arguments: Any) -> Any:
        """``make(self, *arguments)``, computed once; tensors among the arguments are told apart by identity."""
        key = (make, *arguments)
        if key not in self._kept:
            self._kept[key] = make(self, *arguments)
        return self._kept[key]

    def features(self) -> npt.NDArray[np.float32]:
        """The features as an array, for models that are not torch's."""
        return np.asarray(self.X.cpu().numpy())

    def operator(self, kind: Kind, index: Tensor | None = None) -> Operator:
        r"""A fixed matrix, or its rows ``index``.

        ``"gcn"``: :math:`D^{-1/2}(A + I)D^{-1/2}`; ``"adjacency"``: :math:`D^{-1/2} A D^{-1/2}`; ``"cluster"``:
        :math:`D^{-1}(A + I)` without edge weights, as ClusterGCN defines it.
        """
        operator: Operator = self.keep(_operator, kind, index)
        return operator

    def powers(self, kind: Kind, highest: int) -> list[Tensor]:
        """X, S X, …, S^highest X."""
        known = self._powers.setdefault(kind, [self.X])
        while len(known) <= highest:
            known.append(self.operator(kind)(known[-1]))
        return known[: highest + 1]


def _operator(source: Source, kind: Kind, index: Tensor | None) -> Operator:
    graph = source.graph
    if kind == "cluster":
        ones = sp.csr_array(graph.to_scipy().astype(bool) + sp.eye_array(graph.num_nodes, dtype=bool))
        matrix = sp.diags_array(1 / ones.sum(axis=1)) @ ones
        return Operator(matrix_csr(matrix, graph.device, index), index)
    operators = SobolevOperators(graph, 1, 1.0 if kind == "gcn" else 0.0)
    return Operator((operators if index is None else operators.rows(index)).csr(), index)


def matrix_csr(
    matrix: sp.csr_array, device: torch.device, index: Tensor | None = None, *, symmetric: bool = False
) -> SobolevCSR:
    """Any sparse matrix, or its rows ``index``, as the only order of a SobolevCSR."""
    block = (matrix if index is None else matrix[index.cpu().numpy()]).tocsr()
    forward = csr_tensors(block, device)
    backward = forward if symmetric and index is None else csr_tensors(block.T.tocsr(), device)
    left, right = (torch.ones(size, 2, device=device) for size in block.shape)
    return SobolevCSR(*forward, *backward, left, right, 0.0)
