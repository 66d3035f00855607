"""Operators kept for the edges they were made from, and for no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from sobgnn.nn.inputs import OperatorSpec, as_edges


class Cache:
    """The operators of the last graph, returned only for the same graph.

    Tensors are compared entry by entry with copies of those that the operators were made from: a few milliseconds for
    millions of edges, where sorting them takes a hundred times as long, and safe against edges that changed in place.
    Nothing is kept where the operators are functions of parameters: of weights that require gradients, or a learned ε.
    """

    def __init__(self) -> None:
        # Key, tensors and operators, always of one graph: threads that share a layer replace all of it at once.
        self._kept: tuple[tuple[Any, ...], list[Tensor], Any] | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Cache:
        return Cache()

    def get(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        x: Tensor | tuple[Tensor, Tensor],
        spec: OperatorSpec,
        build: Callable[[], Any],
    ) -> Any:
        """The operators of these edges: those kept, if they are of the same edges, or new ones from ``build``."""
        edges, weight = as_edges(edge_index, edge_weight)
        if isinstance(spec.epsilon, Tensor) or (weight is not None and weight.requires_grad):
            return build()
        parts = x if isinstance(x, tuple) else (x,)
        double = parts[0].dtype == torch.float64
        key = (spec, double, weight is None, tuple(part.shape[0] for part in parts))
        tensors = [edges] if weight is None else [edges, weight]
        kept = self._kept
        if kept is not None and kept[0] == key and all(map(_same, tensors, kept[1])):
            return kept[2]
        with torch.inference_mode(False):  # what is kept serves training too
            copies = [tensor.detach().clone() for tensor in tensors]
            operators = build()
        self._kept = (key, copies, operators)
        return operators


def _same(tensor: Tensor, kept: Tensor) -> bool:
    return tensor.device == kept.device and tensor.dtype == kept.dtype and torch.equal(tensor, kept)
