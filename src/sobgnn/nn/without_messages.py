"""What PyG's ``to_hetero`` and ``Explainer`` ask of a layer, without the messages that PyG's layers are made of."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.conv import MessagePassing


class WithoutMessages(MessagePassing):  # type: ignore[misc]
    """One of PyG's ``MessagePassing`` modules that never forms a message.

    Its hooks of single messages do not exist. An explainer's edge mask multiplies the edges' weights;
    GraphMaskExplainer, which replaces messages, drops edges instead.
    """

    explain: bool | None = None  # a plain attribute: PyG's own looks into messages when it is set
    # What others read of any such module; nothing here depends on it.
    aggr, node_dim, decomposed_layers, fuse = "sum", -2, 1, False
    flow: str

    def __init__(self) -> None:
        nn.Module.__init__(self)  # PyG's own prepares messages
        self._edge_mask: Tensor | None = None  # set by PyG's Explainer, as the next two
        self._loop_mask: Tensor | None = None
        self._apply_sigmoid = True

    def _explained(
        self, edge_index: Tensor, weight: Tensor | None, rows: Tensor, targets: Tensor, carried: Tensor
    ) -> Tensor | None:
        """The edges' weights times an explainer's mask.

        Args:
            edge_index: int64 [2, E].
            weight: [E]; ``None``: all 1.
            rows: Rows of the sources.
            targets: Rows of the targets.
            carried: What an edge of weight 1 would carry from each source, for GraphMaskExplainer.
        """
        mask: Tensor | None = getattr(self, "message_scale", None)  # GraphMaskExplainer's
        if self._edge_mask is not None:
            mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        elif (listen := self.__dict__.get("explain_message")) is not None:
            source, target = edge_index if self.flow == "source_to_target" else edge_index.flip(0)
            message = carried[source] if weight is None else carried[source] * weight.reshape(-1, 1)
            listen(message, targets[target], rows[source])
        return mask if weight is None or mask is None else weight * mask

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
