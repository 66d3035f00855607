"""Some rows of the operators of a graph: what a loss reads, and what that needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn.operators.base import OperatorBase, clamp_epsilon
from sobgnn.propagation import SobolevCSR, csr_tensors

if TYPE_CHECKING:
    from sobgnn.operators.sobolev import SobolevOperators


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


class SobolevRows(OperatorBase):
    """Some rows of every order: propagation to R nodes, from all N or from C of them.

    In training the last layer is needed only where the loss reads it, and each layer before it only where the next
    one reads; this is what computes it there. The result is that of the whole operators, row by row.

    Args:
        operators: The operators of the whole graph.
        index: int64 [R], the rows, distinct, in the order they are wanted; or a mask, bool [N].
        columns: int64 [C], distinct, the nodes that signals are given at, in their order: all rows and all their
            neighbors must be among them. ``None``: all nodes.
    """

    def __init__(self, operators: SobolevOperators, index: Tensor, columns: Tensor | None = None) -> None:
        if operators.graph.weight.requires_grad:
            raise ValueError("Rows give a graph's weights no gradients. Use the operators of the whole graph.")
        self.operators = operators
        self.alpha = operators.alpha
        self.index = self.nodes = as_rows(index, operators.num_nodes).to(operators.device)
        self.columns = None if columns is None else columns.to(operators.device)
        self.num_columns = operators.num_nodes if columns is None else columns.numel()
        if columns is None:
            self.own = self.index
        else:
            position = torch.full((operators.num_nodes,), -1, device=operators.device)
            position[self.columns] = torch.arange(self.num_columns, device=operators.device)
            self.own = position[self.index]
        self._csrs: dict[torch.dtype, SobolevCSR] = {}

    def __repr__(self) -> str:
        return f"SobolevRows({self.index.numel()} rows from {self.num_columns} nodes of {self.operators})"

    @property
    def device(self) -> torch.device:
        """Where the pattern and the scales live."""
        return self.operators.device

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The rows as :mod:`sobgnn.propagation` takes them; made when first asked for."""
        key = torch.float64 if dtype == torch.float64 else torch.float32
        if key not in self._csrs:
            with torch.inference_mode(False):  # a training may use it later
                scale = self.operators.scale(dtype)
                inputs = scale if self.columns is None else scale[self.columns]
                known = next(iter(self._csrs.values()), None)
                csr = known[:6] if known else self._pattern()
                self._csrs[key] = SobolevCSR(*csr, scale[self.index], inputs, 0.0)
        return self._csrs[key]

    def _pattern(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """CSR of the rows and of their transpose. Self-loops are entries like any other, of weight ε."""
        ops = self.operators
        rows = self.index.cpu().numpy()
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
        return (
            *csr_tensors(block, ops.device, ops.graph.indices.dtype),
            *csr_tensors(block.T.tocsr(), ops.device, ops.graph.indices.dtype),
        )
