"""A graph to its normalised sparse Sobolev operators."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graph import Graph
from sobgnn.propagation import Stencil

_FLOAT32 = np.finfo(np.float32)
# Entries whose powers are summed at a time: a few arrays of this many float64 stay in a core's cache.
_ENTRIES_PER_BLOCK = 1 << 16


class SobolevOperators:
    r"""The normalised sparse Sobolev terms of a graph, on one shared pattern.

    .. math:: \hat{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{(\rho)} D_\rho^{-1/2}, \qquad \rho = 1, \dots, \alpha

    The power is entrywise, so every order keeps A's pattern. What is stored is A itself and α + 1 numbers per
    node; no order is ever written out. With :math:`m_i = \max(\epsilon, \max_j w_{ij})`,
    :math:`q_i = m_i^{-1/2}`, :math:`r_{ij} = w_{ij} q_i q_j \le 1` and
    :math:`t_\rho[i] = (\sum_j (w_{ij} / m_i)^\rho + (\epsilon / m_i)^\rho)^{-1/2}`,

    .. math:: \hat{A}_\rho[i, j] = t_\rho[i] \, r_{ij}^\rho \, t_\rho[j],

    in which every factor lies in [0, 1] for any α, ε and weights: nothing overflows, and only entries that are
    themselves below float32's range vanish.

    Args:
        graph: Symmetric, weighted, without self-loops.
        alpha: Number of orders, at least 1.
        epsilon: Weight of every self-loop, at least 0; with 0, isolated nodes get zero rows.
    """

    def __init__(self, graph: Graph, alpha: int = 3, epsilon: float = 1.0) -> None:
        check_alpha(alpha)
        check_epsilon(epsilon)
        if alpha > 1 and graph.num_edges and float(graph.weight.min()) == 1 == float(graph.weight.max()):
            warnings.warn(
                "All edge weights are 1, so every Hadamard power of the graph is the graph itself and alpha > 1 adds "
                "nothing. Give the edges weights, for example with sobgnn.reweight(graph).",
                stacklevel=2,
            )
        self.graph = graph
        self.alpha = int(alpha)
        self.epsilon = float(epsilon)
        self._scale: dict[torch.dtype, Tensor] = {}
        self.scale()

    def __repr__(self) -> str:
        return f"SobolevOperators({self.graph}, alpha={self.alpha}, epsilon={self.epsilon})"

    @property
    def num_nodes(self) -> int:
        """Number of nodes N."""
        return self.graph.num_nodes

    @property
    def nodes(self) -> Tensor | None:
        """The node of each row that propagation gives; ``None``: row i is node i."""
        return None

    @property
    def device(self) -> torch.device:
        """Where the graph and the scales live."""
        return self.graph.device

    @property
    def nbytes(self) -> int:
        """Bytes held on top of the graph's own."""
        return sum(s.numel() * s.element_size() for s in self._scale.values())

    def scale(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Columns q, t_1 … t_α [N, α+1], float32; float64 ones for float64 signals, made when first asked for."""
        key = torch.float64 if dtype == torch.float64 else torch.float32
        if key not in self._scale:
            csr = (self.graph.indptr.cpu().numpy(), self.graph.weight.cpu().numpy())
            values = node_scales(*csr, self.alpha, self.epsilon, np.float64 if key == torch.float64 else np.float32)
            self._scale[key] = torch.from_numpy(values).to(self.device)
        return self._scale[key]

    def stencil(self, dtype: torch.dtype = torch.float32) -> Stencil:
        """The operators as :mod:`sobgnn.propagation` takes them."""
        g, scale = self.graph, self.scale(dtype)
        csr = (g.indptr, g.indices, g.weight)
        return Stencil(*csr, *csr, scale, scale, clamp_epsilon(self.epsilon))

    def rows(self, index: Tensor) -> SobolevRows:
        """Rows ``index`` of every order: propagation to those nodes alone."""
        return SobolevRows(self, index)

    def receptive_field(self, index: Tensor, num_layers: int) -> list[SobolevRows]:
        """What each of ``num_layers`` layers has to compute so that the last one is right at ``index``.

        Entry l gives the rows of layer l+1 and reads those of the entry before it; the first reads features at its
        own ``columns``. With few labels this is a small part of a large graph, and exact.
        """
        if num_layers < 1:
            raise ValueError(f"`num_layers` must be at least 1, but got {num_layers}.")
        adjacency, rows = self.graph.to_scipy(), index.cpu().numpy()
        field = []
        for _ in range(num_layers):
            columns = np.union1d(adjacency[rows].indices, rows)
            field.append(SobolevRows(self, torch.from_numpy(rows), torch.from_numpy(columns)))
            rows = columns.astype(np.int64)
        return field[::-1]

    def propagate(self, H: Tensor) -> Tensor:
        """Every order applied to one signal in one pass: H [N, h] to [N, α, h], entry ρ-1 being Â_ρ H."""
        _check_signal(H, self)
        return propagation.expand(self.stencil(H.dtype), H)

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each order applied to a signal of its own: H [N, α, h] to [N, α, h]."""
        _check_signal(H, self)
        return propagation.each(self.stencil(H.dtype), H)

    def matrix(self, rho: int) -> sp.csr_array:
        """Â_ρ for looking, float64 CSR [N, N], the diagonal included where ε > 0.

        Entries below float32's range are exact zeros, as they are in propagation.
        """
        if not 1 <= rho <= self.alpha:
            raise ValueError(f"`rho` must be between 1 and alpha={self.alpha}, but got {rho}.")
        term = shift_diagonal(self.graph.to_scipy().astype(np.float64), clamp_epsilon(self.epsilon))
        rows, columns = np.repeat(np.arange(self.num_nodes), np.diff(term.indptr)), term.indices
        scale = self.scale(torch.float64).cpu().numpy()
        q, t = scale[:, 0], scale[:, rho]
        # Products of two scales first: they commute, so the matrix is symmetric to the last bit.
        term.data = (term.data * (q[rows] * q[columns])) ** rho * (t[rows] * t[columns])
        term.data[term.data < _FLOAT32.tiny] = 0.0
        return term

    def to(self, device: torch.device | str) -> SobolevOperators:
        """The same operators on another device; nothing is computed again."""
        moved = object.__new__(SobolevOperators)
        moved.graph, moved.alpha, moved.epsilon = self.graph.to(device), self.alpha, self.epsilon
        moved._scale = {dtype: scale.to(device) for dtype, scale in self._scale.items()}
        return moved


class SobolevRows:
    """Some rows of every order: propagation to R nodes, from all N or from C of them.

    In training the last layer is needed only where the loss reads it, and each layer before it only where the next
    one reads; this is what computes it there. The result is that of the whole operators, row by row.

    Args:
        operators: The operators of the whole graph.
        index: int64 [R], the rows, distinct, in the order they are wanted.
        columns: int64 [C], distinct, the nodes that signals are given at, in their order: all rows and all their
            neighbours must be among them. ``None``: all nodes.
    """

    def __init__(self, operators: SobolevOperators, index: Tensor, columns: Tensor | None = None) -> None:
        self.operators = operators
        self.alpha = operators.alpha
        self.index = self.nodes = index.to(operators.device)
        self.columns = None if columns is None else columns.to(operators.device)
        self.num_columns = operators.num_nodes if columns is None else columns.numel()
        if columns is None:
            self.own = self.index
        else:
            position = torch.full((operators.num_nodes,), -1, device=operators.device)
            position[self.columns] = torch.arange(self.num_columns, device=operators.device)
            self.own = position[self.index]
        self._stencils: dict[torch.dtype, Stencil] = {}

    def __repr__(self) -> str:
        return f"SobolevRows({self.index.numel()} rows from {self.num_columns} nodes of {self.operators})"

    @property
    def device(self) -> torch.device:
        """Where the pattern and the scales live."""
        return self.operators.device

    def stencil(self, dtype: torch.dtype = torch.float32) -> Stencil:
        """The rows as :mod:`sobgnn.propagation` takes them; made when first asked for."""
        key = torch.float64 if dtype == torch.float64 else torch.float32
        if key not in self._stencils:
            scale = self.operators.scale(dtype)
            inputs = scale if self.columns is None else scale[self.columns]
            known = next(iter(self._stencils.values()), None)
            csr = known[:6] if known else self._pattern()
            self._stencils[key] = Stencil(*csr, scale[self.index], inputs, 0.0)
        return self._stencils[key]

    def propagate(self, H: Tensor) -> Tensor:
        """H [C, h] to [R, α, h]."""
        _check_signal(H, self)
        return propagation.expand(self.stencil(H.dtype), H)

    def propagate_each(self, H: Tensor) -> Tensor:
        """H [C, α, h] to [R, α, h], each order on its own slice."""
        _check_signal(H, self)
        return propagation.each(self.stencil(H.dtype), H)

    def _pattern(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """CSR of the rows and of their transpose. Self-loops are entries like any other, of weight ε."""
        ops = self.operators
        rows = self.index.cpu().numpy()
        block = ops.graph.to_scipy()[rows]
        epsilon = clamp_epsilon(ops.epsilon)
        if epsilon > 0:
            loops = (np.full(len(rows), epsilon, np.float32), (np.arange(len(rows)), rows))
            block = (block + sp.csr_array(loops, shape=block.shape)).tocsr()
        if self.columns is not None:
            entries = block.nnz
            block = block[:, self.columns.cpu().numpy()].tocsr()
            if block.nnz != entries:
                raise ValueError(
                    f"`columns` must hold every row and neighbour of the rows, but {entries - block.nnz} entries lie "
                    "outside."
                )
        block.sort_indices()
        return (*_tensors(block, ops.graph), *_tensors(block.T.tocsr(), ops.graph))


def shift_diagonal(matrix: Any, epsilon: float) -> sp.csr_array:
    """M + εI as CSR with sorted indices."""
    n = matrix.shape[0]
    shifted = (matrix + epsilon * sp.eye_array(n, format="csr")).tocsr() if epsilon else matrix.tocsr(copy=True)
    shifted.sort_indices()
    return shifted


def check_alpha(alpha: int) -> int:
    """Return ``alpha`` if it is an integer of at least 1, else raise."""
    if isinstance(alpha, bool) or not isinstance(alpha, (int, np.integer)):
        raise TypeError(f"`alpha` must be an integer, but got {alpha!r}.")
    if alpha < 1:
        raise ValueError(f"`alpha` must be at least 1, but got {alpha}.")
    return int(alpha)


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` if it is finite and not negative, else raise."""
    if not (isinstance(epsilon, (int, float, np.integer, np.floating)) and math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError(f"`epsilon` must be finite and at least 0, but got {epsilon!r}.")
    return float(epsilon)


def clamp_epsilon(epsilon: float) -> float:
    """ε within float32's normal range (or 0): what lies outside could not be told apart from its bound."""
    return min(max(epsilon, float(_FLOAT32.tiny)), float(_FLOAT32.max) / 4) if epsilon > 0 else 0.0


def node_scales(
    indptr: npt.NDArray[Any],
    weight: npt.NDArray[Any],
    alpha: int,
    epsilon: float,
    dtype: type[np.floating[Any]] = np.float64,
) -> npt.NDArray[Any]:
    """Columns q, t_1 … t_α [N, α+1] of :class:`SobolevOperators` from CSR rows; 0 where a node has degree 0.

    A node's scales depend on its own row alone, so any part of a graph's rows can be done by itself. They are
    computed in float64 and rounded once, to ``dtype``.
    """
    n, epsilon = len(indptr) - 1, clamp_epsilon(epsilon)
    scale = np.zeros((n, alpha + 1), dtype)
    start = 0
    while start < n:  # blocks of whole rows
        begin = int(indptr[start])
        stop = int(np.searchsorted(indptr, begin + _ENTRIES_PER_BLOCK, side="right")) - 1
        stop = min(max(stop, start + 1), start + _ENTRIES_PER_BLOCK, n)
        end = indptr[stop]
        ptr, w = indptr[start : stop + 1] - begin, weight[begin:end].astype(np.float64)
        largest = np.maximum(epsilon, _segment(np.maximum, w, ptr))
        live = largest > 0
        q = np.zeros(stop - start)
        q[live] = _round_to_12_bits(1 / np.sqrt(largest[live]))
        base = w * np.repeat(q * q, np.diff(ptr))
        power, loop = base.copy(), epsilon * q * q
        scale[start:stop, 0] = q
        for rho in range(1, alpha + 1):
            degree = _segment(np.add, power, ptr) + loop**rho
            scale[start:stop, rho] = np.where(live, 1 / np.sqrt(np.where(live, degree, 1.0)), 0.0)
            if rho < alpha:
                power *= base
        start = stop
    return scale


def _segment(ufunc: np.ufunc, values: npt.NDArray[Any], ptr: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """``ufunc`` over values[ptr[i]:ptr[i+1]] for each i; 0 where that is empty."""
    out = np.zeros(len(ptr) - 1)
    full = np.flatnonzero(np.diff(ptr))
    if full.size:  # reduceat reads an empty segment as one element, so only the full ones are named
        out[full] = ufunc.reduceat(values, ptr[full])
    return out


def _round_to_12_bits(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Values with 12 significant bits, so that the product of two is exact in float32.

    The identity behind :class:`SobolevOperators` holds for any positive q, so rounding q costs nothing, while
    an error in r would grow ρ-fold in its power.
    """
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 4096) / 4096, exponent)


def _tensors(csr: Any, like: Graph) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.from_numpy(csr.indptr.astype(np.int64)).to(like.device),
        torch.from_numpy(csr.indices).to(like.device, like.indices.dtype),
        torch.from_numpy(csr.data).to(like.device, torch.float32),
    )


def _check_signal(H: Tensor, operators: SobolevOperators | SobolevRows) -> None:
    if H.device != operators.device:
        raise ValueError(
            f"The signal and the operators must be on one device, but got {H.device} and {operators.device}. "
            "Move one with .to()."
        )
    if not H.is_floating_point():
        raise TypeError(f"The signal must be floating point, but got {H.dtype}. Convert it with .float().")
    columns = operators.num_nodes if isinstance(operators, SobolevOperators) else operators.num_columns
    if H.ndim < 2 or H.shape[0] != columns:
        raise ValueError(f"The signal must have one row per node, but got shape {list(H.shape)} for {columns} nodes.")
