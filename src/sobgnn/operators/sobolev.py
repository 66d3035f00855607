"""A graph to its normalized sparse Sobolev operators, all rows of them or some; the checks of α and ε."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.convert import check_graph
from sobgnn.graphs.edges import LARGEST_WEIGHT, SMALLEST_WEIGHT
from sobgnn.graphs.graph import Graph
from sobgnn.propagation import SobolevCSR, csr_tensors

_INSIDE = ("sobgnn", "torch", "torch_geometric")


class OperatorBase:
    """Every order of the sparse Sobolev operators, from C input rows to R output rows.

    Attributes:
        alpha: Number of orders.
        nodes: The node of each output row, int64 [R]; ``None``: row i is node i.
    """

    alpha: int
    nodes: Tensor | None = None

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators for signals of that type, as :mod:`sobgnn.propagation` takes them."""
        raise NotImplementedError

    def propagate(self, H: Tensor) -> Tensor:
        """Every order applied to one signal in one pass: H [C, h] to [R, α, h], entry ρ-1 being Â_ρ H."""
        return self._apply(propagation.propagate, H)

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each order applied to a signal of its own: H [C, α, h] to [R, α, h]."""
        return self._apply(propagation.propagate_each, H)

    def _apply(self, function: Callable[[SobolevCSR, Tensor], Tensor], H: Tensor) -> Tensor:
        dtype = getattr(H, "dtype", torch.float32)
        if dtype == torch.float16:  # which the kernels do not know: summed in float32
            return function(self.csr(), H.float()).half()
        return function(self.csr(dtype), H)


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
        key = real_type(dtype)
        indptr, weight, settings = self.graph.indptr, self.graph.weight, (self.alpha, clamp_epsilon(self.epsilon))
        if weight.requires_grad:  # what is made of them changes from step to step
            return propagation.scales(indptr, weight.to(key), *settings)
        if key not in self._scale:
            with torch.inference_mode(False):  # a training may use them later
                scale = propagation.scales(indptr.cpu(), weight.cpu().to(key), *settings)
                self._scale[key] = scale.to(self.device)
        return self._scale[key]

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators as :mod:`sobgnn.propagation` takes them."""
        g, scale = self.graph, self.scale(dtype)
        csr = (g.indptr, g.indices, g.weight.to(scale.dtype) if g.weight.requires_grad else g.weight)
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
        check_count("num_layers", num_layers, 1)
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
        term.data[term.data < SMALLEST_WEIGHT] = 0.0
        return term

    def to(self, device: torch.device | str) -> SobolevOperators:
        """The same operators on another device; nothing is computed again."""
        moved = object.__new__(SobolevOperators)
        moved.graph, moved.alpha, moved.epsilon = self.graph.to(device), self.alpha, self.epsilon
        moved._scale = {dtype: scale.to(device) for dtype, scale in self._scale.items()}
        return moved


class SobolevRows(OperatorBase):
    """Some rows of every order: propagation to R nodes, from all N or from C of them.

    In training the last layer is needed only where the loss reads it, and each layer before it only where the next
    one reads; this is what computes it there. The result is that of the whole operators, row by row.

    Attributes:
        own: Where each row's own node stands among the nodes that signals are given at, int64 [R].

    Args:
        operators: The operators of the whole graph.
        index: int64 [R], the rows, distinct, in the order they are wanted; or a mask, bool [N].
        columns: int64 [C], distinct, the nodes that signals are given at, in their order: all rows and all their
            neighbors must be among them. ``None``: all nodes.
    """

    def __init__(self, operators: SobolevOperators, index: Tensor, columns: Tensor | None = None) -> None:
        if operators.graph.weight.requires_grad:
            raise ValueError("Rows give a graph's weights no gradients. Use the operators of the whole graph.")
        self.operators, self.alpha = operators, operators.alpha
        self.nodes: Tensor = as_rows(index, operators.num_nodes).to(operators.device)
        self.own, self.columns = self.nodes, None
        if columns is not None:
            self.columns = columns.to(operators.device)
            position = torch.full((operators.num_nodes,), -1, device=operators.device)
            position[self.columns] = torch.arange(len(columns), device=operators.device)
            self.own = position[self.nodes]
        self._csrs: dict[torch.dtype, SobolevCSR] = {}

    def __repr__(self) -> str:
        columns = self.operators.num_nodes if self.columns is None else len(self.columns)
        return f"SobolevRows({len(self.nodes)} rows from {columns} nodes of {self.operators})"

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The rows as :mod:`sobgnn.propagation` takes them; made when first asked for."""
        key = real_type(dtype)
        if key not in self._csrs:
            with torch.inference_mode(False):  # a training may use it later
                scale = self.operators.scale(dtype)
                inputs = scale if self.columns is None else scale[self.columns]
                self._csrs[key] = SobolevCSR._make((*self._pattern, scale[self.nodes], inputs, 0.0))
        return self._csrs[key]

    @cached_property
    def _pattern(self) -> tuple[Tensor, ...]:
        """CSR of the rows and of their transpose. Self-loops are entries like any other, of weight ε."""
        ops, rows = self.operators, self.nodes.cpu().numpy()
        block = ops.graph.to_scipy(copy=False)[rows]
        if ops.epsilon > 0:
            loops = (np.full(len(rows), clamp_epsilon(ops.epsilon), block.dtype), (np.arange(len(rows)), rows))
            block = (block + sp.csr_array(loops, shape=block.shape)).tocsr()
        if self.columns is not None:
            entries = block.nnz
            block = block[:, self.columns.cpu().numpy()].tocsr()
            if block.nnz != entries:
                raise ValueError(
                    f"`columns` must hold every row and neighbor of the rows, but {entries - block.nnz} entries lie "
                    "outside."
                )
        block.sort_indices()
        kind = ops.graph.indices.dtype
        return *csr_tensors(block, ops.device, kind), *csr_tensors(block.T.tocsr(), ops.device, kind)


def as_rows(index: Tensor, nodes: int) -> Tensor:
    """The numbers of some of N nodes, int64 [R], from these or from a mask, bool [N]; raises where they are neither."""
    if not isinstance(index, Tensor) or index.ndim != 1 or index.is_floating_point():
        raise TypeError("Rows must be a tensor of node numbers [R], or a mask of nodes [N].")
    if index.dtype == torch.bool:
        if len(index) != nodes:
            raise ValueError(f"A mask of rows must have one entry per node, but got {len(index)} for {nodes} nodes.")
        return index.nonzero().flatten()
    index = index.long()
    if len(index) and not (int(index.min()) >= 0 and int(index.max()) < nodes):
        raise ValueError(f"Rows must lie in [0, {nodes}), but got {int(index.min())} to {int(index.max())}.")
    return index


def shift_diagonal(matrix: Any, epsilon: float) -> sp.csr_array:
    """M + εI as CSR with sorted indices."""
    n = matrix.shape[0]
    shifted = (matrix + epsilon * sp.eye_array(n, format="csr")).tocsr() if epsilon else matrix.tocsr(copy=True)
    shifted.sort_indices()
    return shifted


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The type of scales for signals of some type: float64 for float64, else float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def check_count(name: str, value: int, least: int) -> int:
    """Return ``value`` if it is an integer of at least ``least``, else raise."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"`{name}` must be an integer, but got {value!r}.")
    if value < least:
        raise ValueError(f"`{name}` must be at least {least}, but got {value}.")
    return int(value)


def check_alpha(alpha: int) -> int:
    """Return ``alpha`` if it is an integer of at least 1, else raise."""
    return check_count("alpha", alpha, 1)


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` if it is finite and not negative, else raise."""
    if not (isinstance(epsilon, (int, float, np.integer, np.floating)) and math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"`epsilon` must be finite and at least 0, but got {epsilon!r}.")
    return float(epsilon)


def clamp_epsilon(epsilon: float) -> float:
    """ε within the range of weights (or 0): what lies outside could not be told apart from its bound."""
    return min(max(epsilon, SMALLEST_WEIGHT), LARGEST_WEIGHT) if epsilon > 0 else 0.0


def warn_unweighted(epsilon: float | Tensor) -> None:
    """Warn, at the first line outside of sobgnn, torch and PyG, that weights of 1 have no other powers."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    what = "alpha > 1 adds nothing"
    if isinstance(epsilon, Tensor) or epsilon not in (0, 1):
        what = "its orders differ by their self-loops alone"
    warnings.warn(
        f"All edge weights are 1, so every Hadamard power of the graph is the graph itself and {what}. Give the edges "
        "weights, for example with sobgnn.reweight(graph).",
        stacklevel=level,
    )
