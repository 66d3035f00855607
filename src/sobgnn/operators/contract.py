"""What every operator offers to layers: whole graphs, some rows."""

from __future__ import annotations

import sys
import warnings
from typing import Protocol

import torch
from torch import Tensor

_INSIDE = ("sobgnn", "torch", "torch_geometric")


class Operator(Protocol):
    """Every order of the sparse Sobolev operators, from C input rows to R output rows."""

    alpha: int

    @property
    def nodes(self) -> Tensor | None:
        """The node of each output row [R]; ``None``: row i is node i."""

    def propagate(self, H: Tensor) -> Tensor:
        """Every order applied to one signal: H [C, h] to [R, α, h]."""

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each order applied to a signal of its own: H [C, α, h] to [R, α, h]."""


def check_signal(H: Tensor, columns: int, device: torch.device) -> None:
    """Raise unless H is dense, floating point, on the device, with one row for each of the input nodes."""
    if not isinstance(H, Tensor):
        raise TypeError(f"The signal must be a torch tensor, but got {type(H).__name__}. Use torch.as_tensor.")
    if H.layout != torch.strided:
        raise TypeError(f"The signal must be dense, but got {H.layout}. Convert it with .to_dense().")
    if H.device != device:
        raise ValueError(
            f"The signal and the operators must be on one device, but got {H.device} and {device}. Move one with .to()."
        )
    if not H.is_floating_point():
        raise TypeError(f"The signal must be floating point, but got {H.dtype}. Convert it with .float().")
    if H.ndim < 2 or H.shape[0] != columns:
        raise ValueError(f"The signal must have one row per node, but got shape {list(H.shape)} for {columns} nodes.")


def warn_unweighted(epsilon: float | Tensor) -> None:
    """Warn, at the first line outside of sobgnn, torch and PyG, that weights of 1 have no other powers."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in _INSIDE:
        frame, level = frame.f_back, level + 1
    what = "alpha > 1 adds nothing"
    if isinstance(epsilon, Tensor) or epsilon not in (0, 1):
        what = "its orders differ by their self-loops alone"
    warnings.warn(
        f"All edge weights are 1, so every Hadamard power of the graph is the graph itself and {what}. Give the edges "
        "weights, for example with sobgnn.reweight(graph).",
        stacklevel=level,
    )
