"""The layer as one of PyG's message passing modules: what ``to_hetero`` and ``Explainer`` look for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing

from sobgnn.nn.cascade import row_product
from sobgnn.nn.conv import SobolevConv
from sobgnn.nn.inputs import Size, as_edges
from sobgnn.operators import EdgeOperators

_SMALLEST = torch.finfo(torch.float32).tiny


class MessagePassingSobolevConv(SobolevConv, MessagePassing):  # type: ignore[misc]
    """:class:`~sobgnn.SobolevConv`, of PyG's ``MessagePassing`` too.

    Made in its place if PyG is imported. To make a layer of your own one of PyG's, derive it from this class.
    Its hooks of single messages do not exist, since no message is ever formed. An explainer's edge mask multiplies the
    edges' weights; GraphMaskExplainer, which replaces messages, drops edges instead.
    """

    explain: bool | None = None  # a plain attribute: PyG's own looks into messages when it is set
    # What others read of any such module; nothing here depends on it.
    aggr, node_dim, decomposed_layers, fuse = "sum", -2, 1, False

    @functools.wraps(SobolevConv.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        SobolevConv.__init__(self, *args, **kwargs)
        self._edge_mask: Tensor | None = None
        self._loop_mask: Tensor | None = None
        self._apply_sigmoid = True

    def propagate(self, *_: Any, **__: Any) -> Any:
        """Refused: what PyG's propagation is asked for, a message for each edge, is never formed."""
        raise NotImplementedError(
            "SobolevConv forms no messages, so it has no propagate, no hooks of messages and no to_hetero_with_bases. "
            'Call the layer itself, or use to_hetero with normalize="row".'
        )

    edge_updater = propagate
    register_propagate_forward_pre_hook = register_propagate_forward_hook = propagate
    register_message_forward_pre_hook = register_message_forward_hook = propagate
    register_aggregate_forward_pre_hook = register_aggregate_forward_hook = propagate
    register_message_and_aggregate_forward_pre_hook = register_message_and_aggregate_forward_hook = propagate
    register_edge_update_forward_pre_hook = register_edge_update_forward_hook = propagate

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)  # type: ignore[no-untyped-call]

    def _operators(
        self, given: Any, edge_weight: Tensor | None, rows: Tensor, targets: Tensor | None, size: Size | None
    ) -> Any:
        if self.explain and not isinstance(given, EdgeOperators):
            if not isinstance(given, Tensor):
                raise ValueError("An explanation needs edge_index: operators do not show their edges.")
            given, edge_weight = as_edges(given, edge_weight)
            mask = self._mask(given, edge_weight, rows, targets)
            if mask is not None:
                mask = mask.clamp_min(_SMALLEST)  # an edge of weight 0 would be none
                edge_weight = mask if edge_weight is None else (edge_weight * mask).clamp_min(_SMALLEST)
        return super()._operators(given, edge_weight, rows, targets, size)

    def _mask(self, edges: Tensor, weight: Tensor | None, rows: Tensor, targets: Tensor | None) -> Tensor | None:
        """What an explainer multiplies the weights [E] with; ``None``: nothing yet."""
        if self._edge_mask is not None:
            return self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        listen = self.__dict__.get("explain_message")
        if listen is not None:  # GraphMaskExplainer's, which also reads what an edge would carry
            source, target = edges if self.flow == "source_to_target" else edges.flip(0)
            carried = row_product(rows, self.weight[int(self.self_branch) :]).mean(dim=1)[source]
            carried = carried if weight is None else carried * weight.reshape(-1, 1)
            listen(carried, (rows if targets is None else targets)[target], rows[source])
        mask: Tensor | None = getattr(self, "message_scale", None)
        return mask
