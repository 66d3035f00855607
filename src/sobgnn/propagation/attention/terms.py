"""What the kernels of attention read and give: edges, terms, outputs, gradients."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Kinds of score, as the compiled kernels number them.
ADDITIVE, GATED, SCALED_DOT = 0, 1, 2
SLOPE = 0.2  # of the leaky ReLU, PyG's default


class EdgePattern(NamedTuple):
    """The edges into R rows from N nodes, sorted by row, and the same edges sorted by node.

    Attributes:
        indptr: int64 [R + 1].
        sources: int32 [E], the node that each edge comes from.
        weight: float32 [E].
        t_indptr: int64 [N + 1].
        t_targets: int32 [E], the row that each edge goes to.
        t_weight: float32 [E].
    """

    indptr: Tensor
    sources: Tensor
    weight: Tensor
    t_indptr: Tensor
    t_targets: Tensor
    t_weight: Tensor


class Terms(NamedTuple):
    """What scores and sums are made of; ``None`` where a kind of score has no such term.

    Attributes:
        query: [R, H, c].
        key: [N, H, c].
        target: t, [R, H].
        source: u, [N, H].
        edge: a, [H].
        value: [N, H, c].
    """

    query: Tensor | None
    key: Tensor | None
    target: Tensor
    source: Tensor | None
    edge: Tensor | None
    value: Tensor


class Outputs(NamedTuple):
    """What the forward pass gives.

    Attributes:
        out: The sums o, [R, H, c].
        moment: The mean weights m, [R, H].
        log_sum: The logarithms of the softmax's sums, [R, H].
    """

    out: Tensor
    moment: Tensor
    log_sum: Tensor

    @classmethod
    def empty(cls, edges: EdgePattern, terms: Terms) -> Outputs:
        """Memory for a kernel to fill."""
        rows, (_, heads, channels) = edges.indptr.shape[0] - 1, terms.value.shape
        new = terms.value.new_empty
        return cls(new(rows, heads, channels), new(rows, heads), new(rows, heads))


class Gradients(NamedTuple):
    """Gradients of the terms, in their order; ``None`` where there is no such term."""

    query: Tensor | None
    key: Tensor | None
    target: Tensor
    source: Tensor | None
    edge: Tensor | None
    value: Tensor

    @classmethod
    def empty(cls, terms: Terms) -> Gradients:
        """Memory for a kernel to fill; for ``edge`` each row's part [R, H], which :meth:`summed` adds up."""
        like = torch.empty_like
        return cls(
            query=None if terms.query is None else like(terms.query),
            key=None if terms.key is None else like(terms.key),
            target=like(terms.target),
            source=None if terms.source is None else like(terms.source),
            edge=None if terms.edge is None else like(terms.target),
            value=like(terms.value),
        )

    def summed(self) -> Gradients:
        """The same, with the rows' parts of the edge factor's gradient added up."""
        return self if self.edge is None else self._replace(edge=self.edge.sum(dim=0))
