r"""Sums, products and softmax over the edges of a fixed graph, for attention: nothing of size edges × channels is kept.

With edges e = (i, j), heads h and channels c,

.. math::
    \mathrm{dot}(a, b)_{he} = \sum_c a_{ihc} b_{jhc}, \qquad
    \mathrm{gather}(p, x)_{ihc} = \sum_{e = (i, j)} p_{he} x_{jhc}, \qquad
    \mathrm{spread}(p, g)_{jhc} = \sum_{e = (i, j)} p_{he} g_{ihc} .

Each one's derivatives are the others. Members that are mapped over become further heads, so that one launch serves all
of them; sums run in the order of the edges, and give the same bits every time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.graph import Graph


@dataclass(frozen=True)
class Edges:
    """The edges into R of N nodes, sorted by target; int32 unless said otherwise.

    Attributes:
        indptr: [R + 1] int64.
        sources: [E], where each edge comes from.
        targets: [E] int64, which of the R rows it goes to.
        t_indptr: [N + 1] int64: the same edges sorted by source.
        t_targets: [E], the row each goes to.
        t_edge: [E], its number in the first order.
        weight: float32 [E]; self-loops have the mean weight of their node's edges, as in PyG.
        index: int64 [R], the nodes of the rows; ``None`` for all N.
    """

    indptr: Tensor
    sources: Tensor
    targets: Tensor
    t_indptr: Tensor
    t_targets: Tensor
    t_edge: Tensor
    weight: Tensor
    index: Tensor | None

    def own(self, H: Tensor) -> Tensor:
        """H at the rows."""
        return H if self.index is None else H.index_select(0, self.index)


def edges_of(graph: Graph, index: Tensor | None = None, *, loops: bool) -> Edges:
    """The edges into some nodes or all, with or without self-loops."""
    n, device = graph.num_nodes, graph.device
    matrix = graph.to_scipy().astype(np.float64)
    if loops:
        degree = np.diff(matrix.indptr)
        mean = np.asarray(matrix.sum(axis=1)).ravel() / np.maximum(degree, 1)
        # Shifted while they are added: an isolated node's loop has weight 0 and must stay an entry.
        matrix.data += 1
        matrix = (matrix + sp.diags_array(mean + 1)).tocsr()
        matrix.data -= 1
    if index is not None:
        matrix = matrix[index.cpu().numpy()]
    matrix.sort_indices()
    number = sp.csr_array((np.arange(1, matrix.nnz + 1), matrix.indices, matrix.indptr), shape=matrix.shape)
    transposed = number.T.tocsr()

    def tensor(values: Any, dtype: Any) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, dtype=dtype)).to(device)

    targets = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    assert transposed.shape[0] == n
    return Edges(
        tensor(matrix.indptr, np.int64),
        tensor(matrix.indices, np.int32),
        tensor(targets, np.int64),
        tensor(transposed.indptr, np.int64),
        tensor(transposed.indices, np.int32),
        tensor(transposed.data - 1, np.int32),
        tensor(matrix.data, np.float32),
        index,
    )


def dot(edges: Edges, a: Tensor, b: Tensor) -> Tensor:
    """a [R, H, c] and b [N, H, c] to [H, E]."""
    product: Tensor = _Dot.apply(edges, a, b)  # type: ignore[no-untyped-call]
    return product


def gather(edges: Edges, p: Tensor, x: Tensor) -> Tensor:
    """p [H, E] and x [N, H, c] to [R, H, c]."""
    total: Tensor = _Gather.apply(edges, p, x)  # type: ignore[no-untyped-call]
    return total


def spread(edges: Edges, p: Tensor, g: Tensor) -> Tensor:
    """p [H, E] and g [R, H, c] to [N, H, c]."""
    total: Tensor = _Spread.apply(edges, p, g)  # type: ignore[no-untyped-call]
    return total


def softmax(edges: Edges, scores: Tensor) -> Tensor:
    """Over the edges into each row: [H, E] to [H, E]."""
    shares: Tensor = _Softmax.apply(edges, scores)  # type: ignore[no-untyped-call]
    return shares


def _fold(value: Tensor, dim: int | None, size: int, at: int) -> Tensor:
    """Members as further heads: the mapped dimension is put before the heads, at ``at``, and joined with them."""
    value = value.movedim(dim, at) if dim is not None else value.unsqueeze(at).expand(*_at(value.shape, at, size))
    return value.flatten(at, at + 1)


def _at(shape: torch.Size, at: int, size: int) -> tuple[int, ...]:
    return (*shape[:at], size, *shape[at:])


def _unfold(value: Tensor, size: int, at: int) -> Tensor:
    return value.reshape(*value.shape[:at], size, value.shape[at] // size, *value.shape[at + 1 :])


class _Bilinear(torch.autograd.Function):
    """Of two tensors over the edges; its derivatives need both."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Edges, Tensor, Tensor], output: Tensor) -> None:
        ctx.edges = inputs[0]
        ctx.save_for_backward(*inputs[1:])


class _Dot(_Bilinear):
    @staticmethod
    def forward(edges: Edges, a: Tensor, b: Tensor) -> Tensor:
        result: Tensor = _kernels(a).dot(edges, a.contiguous(), b.contiguous())
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        to_a = gather(ctx.edges, grad, b) if ctx.needs_input_grad[1] else None
        to_b = spread(ctx.edges, grad, a) if ctx.needs_input_grad[2] else None
        return None, to_a, to_b

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, int | None, int | None], edges: Edges, a: Tensor, b: Tensor) -> Any:
        size = info.batch_size
        product = dot(edges, _fold(a, in_dims[1], size, 1), _fold(b, in_dims[2], size, 1))
        return _unfold(product, size, 0), 0


class _Gather(_Bilinear):
    @staticmethod
    def forward(edges: Edges, p: Tensor, x: Tensor) -> Tensor:
        result: Tensor = _kernels(x).gather(edges, p.contiguous(), x.contiguous())
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        p, x = ctx.saved_tensors
        to_p = dot(ctx.edges, grad, x) if ctx.needs_input_grad[1] else None
        to_x = spread(ctx.edges, p, grad) if ctx.needs_input_grad[2] else None
        return None, to_p, to_x

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, int | None, int | None], edges: Edges, p: Tensor, x: Tensor) -> Any:
        size = info.batch_size
        total = gather(edges, _fold(p, in_dims[1], size, 0), _fold(x, in_dims[2], size, 1))
        return _unfold(total, size, 1), 1


class _Spread(_Bilinear):
    @staticmethod
    def forward(edges: Edges, p: Tensor, g: Tensor) -> Tensor:
        result: Tensor = _kernels(g).spread(edges, p.contiguous(), g.contiguous())
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        p, g = ctx.saved_tensors
        to_p = dot(ctx.edges, g, grad) if ctx.needs_input_grad[1] else None
        to_g = gather(ctx.edges, p, grad) if ctx.needs_input_grad[2] else None
        return None, to_p, to_g


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(edges: Edges, scores: Tensor) -> Tensor:
        result: Tensor = _kernels(scores).softmax(edges, scores.contiguous())
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Edges, Tensor], output: Tensor) -> None:
        ctx.edges = inputs[0]
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        (shares,) = ctx.saved_tensors
        return None, _kernels(grad).softmax_backward(ctx.edges, shares, grad.contiguous())

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, int], edges: Edges, scores: Tensor) -> Any:
        return _unfold(softmax(edges, _fold(scores, in_dims[1], info.batch_size, 0)), info.batch_size, 0), 0


def _kernels(tensor: Tensor) -> Any:
    """The module that computes for a tensor's device."""
    if propagation.backend(tensor) == "triton":
        from sobgnn.baselines import edges_triton

        return edges_triton
    from sobgnn.baselines import edges_portable

    return edges_portable
