"""What PyG and torch ask of any layer: hooks, explainers' masks, sizes that the first input tells."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter
from torch_geometric.nn.conv import MessagePassing

from sobgnn.nn.filter_bank import row_product


class Layer(MessagePassing):  # type: ignore[misc]
    """One of PyG's ``MessagePassing`` modules that never forms a message, with filter weights [branches, in, out].

    PyG's hooks of single messages do not exist. An explainer's edge mask multiplies the edges' weights;
    GraphMaskExplainer, which replaces messages, drops edges instead.

    The weights are ``weight`` and, for targets of their own size, ``weight_dst``. An input size of -1 is taken from the
    first input, or from a state that is loaded, as in PyG's layers.
    """

    explain: bool | None = None  # a plain attribute: PyG's own looks into messages when it is set
    # What others read of any such module; nothing here depends on it.
    aggr, node_dim, decomposed_layers, fuse = "sum", -2, 1, False
    flow: str
    branches: int
    out_channels: int
    self_branch: bool
    weight: nn.Parameter
    weight_dst: nn.Parameter | None
    _save_to_state_dict = LazyModuleMixin._save_to_state_dict

    def __init__(self) -> None:
        nn.Module.__init__(self)  # PyG's own prepares messages
        self._edge_mask: Tensor | None = None  # set by PyG's Explainer, as the next two
        self._loop_mask: Tensor | None = None
        self._apply_sigmoid = True

    def make_weights(self, in_channels: int | tuple[int, int]) -> None:
        """Set the weights, empty or of unknown shape."""
        sources, *targets = in_channels if isinstance(in_channels, tuple) else (in_channels,)
        self.weight = self._empty(sources)
        self.weight_dst = self._empty(targets[0]) if targets else None
        self._register_load_state_dict_pre_hook(self._before_loading)

    def draw_weights(self) -> None:
        """Draw new Glorot weights, where their shape is known."""
        for weight in (self.weight, self.weight_dst):
            if weight is not None and not isinstance(weight, UninitializedParameter):
                _draw(weight)

    def materialize(self, sources: int, targets: int | None) -> None:
        """Give weights of unknown shape that of the first input, and draw them."""
        for weight, size in ((self.weight, sources), (self.weight_dst, targets)):
            if isinstance(weight, UninitializedParameter) and size is not None:
                weight.materialize(self._shape(size))
                _draw(weight)

    def _shape(self, channels: int) -> tuple[int, int, int]:
        return self.branches, channels, self.out_channels

    def _empty(self, channels: int) -> nn.Parameter:
        if channels == -1:
            return UninitializedParameter()  # type: ignore[return-value]
        return nn.Parameter(torch.empty(self._shape(channels)))

    def _before_loading(self, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
        """Take the shape that is loaded, or that it is unknown yet."""
        for name in ("weight", "weight_dst"):
            own, loaded = getattr(self, name), state.get(prefix + name)
            if own is None or loaded is None:
                continue
            if isinstance(loaded, UninitializedParameter):
                setattr(self, name, UninitializedParameter(device=own.device, dtype=own.dtype))  # type: ignore[call-arg]
            elif isinstance(own, UninitializedParameter):
                own.materialize(self._shape(loaded.shape[1]))

    def explained(self, edge_index: Tensor, weight: Tensor | None, rows: Tensor, targets: Tensor) -> Tensor | None:
        """The edges' weights [E] (``None``: all 1) times an explainer's mask."""
        mask: Tensor | None = getattr(self, "message_scale", None)  # GraphMaskExplainer's
        if self._edge_mask is not None:
            mask = self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask
        elif (listen := self.__dict__.get("explain_message")) is not None:
            source, target = edge_index
            # What an edge of weight 1 would carry from each source.
            message = row_product(rows, self.weight[int(self.self_branch) :]).mean(dim=1)[source]
            listen(message if weight is None else message * weight.reshape(-1, 1), targets[target], rows[source])
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

    __setstate__ = nn.Module.__setstate__  # PyG's own looks for messages, too


def _draw(weight: Tensor) -> None:
    bound = math.sqrt(6 / (weight.shape[1] + weight.shape[2]))
    nn.init.uniform_(weight, -bound, bound)
