"""Filter weights of a layer whose input sizes may be unknown until the first input, as in PyG's layers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter


class LazyWeights(nn.Module):
    """A layer with filter weights [branches, in, out]: ``weight`` and, for targets of their own size, ``weight_dst``.

    An input size of -1 is taken from the first input, or from a state that is loaded.

    Attributes:
        in_channels: Size of each input row, or a pair for sources and targets; -1: not known yet.
        out_channels: Size of each output row.
        alpha: Number of filters.
        self_branch: Whether there is one more, without the graph.
    """

    in_channels: int | tuple[int, int]
    out_channels: int
    alpha: int
    self_branch: bool
    weight: nn.Parameter
    weight_dst: nn.Parameter | None

    def _make_weights(self) -> None:
        """Set the weights, empty or of unknown shape, by the attributes above."""
        sources, *targets = self.in_channels if isinstance(self.in_channels, tuple) else (self.in_channels,)
        self.weight = self._empty(sources)
        self.weight_dst = self._empty(targets[0]) if targets else None
        self._register_load_state_dict_pre_hook(self._before_loading)  # type: ignore[no-untyped-call]

    def _draw_weights(self) -> None:
        """Draw new Glorot weights, where their shape is known."""
        for weight in (self.weight, self.weight_dst):
            if weight is not None and not isinstance(weight, UninitializedParameter):
                self._draw(weight)

    def _materialize(self, rows: Tensor, targets: Tensor | None) -> None:
        """Give weights of unknown shape the shape of the first input, and draw them."""
        for name, x in (("weight", rows), ("weight_dst", targets)):
            if isinstance(getattr(self, name), UninitializedParameter) and x is not None:
                self._give_shape(name, x.shape[1])
                self._draw(getattr(self, name))

    def _shape(self, channels: int) -> tuple[int, int, int]:
        return self.alpha + self.self_branch, channels, self.out_channels

    def _empty(self, channels: int) -> nn.Parameter:
        if channels == -1:
            return UninitializedParameter()  # type: ignore[return-value]
        return nn.Parameter(torch.empty(self._shape(channels)))

    def _draw(self, weight: Tensor) -> None:
        bound = math.sqrt(6 / (weight.shape[1] + self.out_channels))
        nn.init.uniform_(weight, -bound, bound)

    def _give_shape(self, name: str, channels: int) -> None:
        getattr(self, name).materialize(self._shape(channels))
        self._set_channels(name, channels)

    def _set_channels(self, name: str, channels: int) -> None:
        if isinstance(self.in_channels, tuple):
            sources, targets = self.in_channels
            self.in_channels = (channels, targets) if name == "weight" else (sources, channels)
        else:
            self.in_channels = channels

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, True)  # parameters of unknown shape cannot be detached
        for name, parameter in self._parameters.items():
            if parameter is not None and not keep_vars and not isinstance(parameter, UninitializedParameter):
                destination[prefix + name] = parameter.detach()

    def _before_loading(self, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
        """Take the shape that is loaded, or that it is unknown yet, as PyG's layers do."""
        for name in ("weight", "weight_dst"):
            own, loaded = getattr(self, name), state.get(prefix + name)
            if own is None or loaded is None:
                continue
            if isinstance(loaded, UninitializedParameter):
                unknown = UninitializedParameter(device=own.device, dtype=own.dtype)  # type: ignore[call-arg]
                setattr(self, name, unknown)
                self._set_channels(name, -1)
            elif isinstance(own, UninitializedParameter):
                self._give_shape(name, loaded.shape[1])
