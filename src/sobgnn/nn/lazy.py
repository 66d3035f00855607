"""Filter weights of a layer whose input sizes may be unknown until the first input, as in PyG's layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedParameter


class LazyWeights(nn.Module):
    """A layer with filter weights [branches, in, out]: ``weight`` and, for targets of their own size, ``weight_dst``.

    An input size of -1 is taken from the first input, or from a state that is loaded.
    """

    weight: nn.Parameter
    weight_dst: nn.Parameter | None
    _save_to_state_dict = LazyModuleMixin._save_to_state_dict

    def _make_weights(self, branches: int, in_channels: int | tuple[int, int], out_channels: int) -> None:
        """Set the weights, empty or of unknown shape."""
        self._sizes = branches, out_channels
        sources, *targets = in_channels if isinstance(in_channels, tuple) else (in_channels,)
        self.weight = self._empty(sources)
        self.weight_dst = self._empty(targets[0]) if targets else None
        self._register_load_state_dict_pre_hook(self._before_loading)  # type: ignore[no-untyped-call]

    @property
    def in_channels(self) -> int | tuple[int, int]:
        """Size of each input row, or a pair for sources and targets; -1: not known yet."""
        sources = -1 if isinstance(self.weight, UninitializedParameter) else self.weight.shape[1]
        if self.weight_dst is None:
            return sources
        return sources, -1 if isinstance(self.weight_dst, UninitializedParameter) else self.weight_dst.shape[1]

    def _draw_weights(self) -> None:
        """Draw new Glorot weights, where their shape is known."""
        for weight in (self.weight, self.weight_dst):
            if weight is not None and not isinstance(weight, UninitializedParameter):
                _draw(weight)

    def _materialize(self, rows: Tensor, targets: Tensor | None) -> None:
        """Give weights of unknown shape the shape of the first input, and draw them."""
        for weight, x in ((self.weight, rows), (self.weight_dst, targets)):
            if weight is not None and x is not None and isinstance(weight, UninitializedParameter):
                weight.materialize(self._shape(x.shape[1]))
                _draw(weight)

    def _shape(self, channels: int) -> tuple[int, int, int]:
        return self._sizes[0], channels, self._sizes[1]

    def _empty(self, channels: int) -> nn.Parameter:
        if channels == -1:
            return UninitializedParameter()  # type: ignore[return-value]
        return nn.Parameter(torch.empty(self._shape(channels)))

    def _before_loading(self, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
        """Take the shape that is loaded, or that it is unknown yet, as PyG's layers do."""
        for name in ("weight", "weight_dst"):
            own, loaded = getattr(self, name), state.get(prefix + name)
            if own is None or loaded is None:
                continue
            if isinstance(loaded, UninitializedParameter):
                setattr(self, name, UninitializedParameter(device=own.device, dtype=own.dtype))  # type: ignore[call-arg]
            elif isinstance(own, UninitializedParameter):
                own.materialize(self._shape(loaded.shape[1]))


def _draw(weight: Tensor) -> None:
    bound = math.sqrt(6 / (weight.shape[1] + weight.shape[2]))
    nn.init.uniform_(weight, -bound, bound)
