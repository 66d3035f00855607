"""S-SobGNN, with Hadamard powers as in the paper or, for comparison, with matrix powers, which become dense."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from sobgnn import propagation
from sobgnn.nn.model import SSobGNN
from sobgnn.paper.models.contract import DEEP, Network, Setting, Source, choice, uniform
from sobgnn.propagation import SobolevCSR, csr_tensors

ALPHA, EPSILON = choice(1, 2, 3, 4, 5, 6), uniform(0.5, 2.0)
# Maximum number of entries of one matrix power: 12 bytes each, and as much again while they are computed.
_MOST_ENTRIES = 600_000_000


class MatrixPowers:
    r"""Normalized matrix powers of a graph, each with its own pattern; for comparison.

    .. math:: \tilde{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{\rho} D_\rho^{-1/2}, \qquad \rho = 1, \dots, \alpha

    Used in place of :class:`~sobgnn.SobolevOperators` in :class:`~sobgnn.SSobGNN`.

    Args:
        source: Its graph is read.
        alpha: Number of powers.
        epsilon: Weight of every self-loop.
        index: int64 [R], the rows to return; ``None`` for all.
    """

    def __init__(self, source: Source, alpha: int, epsilon: float, index: Tensor | None = None) -> None:
        self.alpha, self.num_nodes, self.nodes = alpha, source.graph.num_nodes, index
        base = (source.graph.to_scipy().astype(np.float64) + epsilon * sp.eye_array(self.num_nodes)).tocsr()
        power = sp.eye_array(self.num_nodes)
        self._csrs = []
        for rho in range(1, alpha + 1):
            power = (power @ base).tocsr()
            if power.nnz > _MOST_ENTRIES:
                raise ValueError(f"Power {rho} has {power.nnz} entries, too many for memory. Lower `alpha`.")
            degree = power.sum(axis=1)
            scale = sp.diags_array(np.divide(1.0, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree)))
            block = (scale @ power @ scale).tocsr()
            block = block if index is None else block[index.cpu().numpy()]
            forward = csr_tensors(block, source.graph.device)
            backward = forward if index is None else csr_tensors(block.T.tocsr(), source.graph.device)
            left, right = (torch.ones(size, 2, device=source.graph.device) for size in block.shape)
            self._csrs.append(SobolevCSR(*forward, *backward, left, right, 0.0))

    @property
    def nbytes(self) -> int:
        """Bytes of the matrices, each counted once, without transposed copies."""
        return sum(
            t.numel() * t.element_size() for s in self._csrs for t in (s.indptr, s.indices, s.weight)
        )  # fmt: skip

    def propagate(self, H: Tensor) -> Tensor:
        """Every power applied to one signal: H [N, h] to [R, α, h]."""
        return torch.cat([propagation.propagate(csr, H) for csr in self._csrs], dim=1)

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each power applied to its own signal: H [N, α, h] to [R, α, h]."""
        parts = [propagation.propagate(csr, H[:, i]) for i, csr in enumerate(self._csrs)]
        return torch.cat(parts, dim=1)


def _build(features: int, classes: int, setting: Setting) -> nn.Module:
    return SSobGNN(
        features,
        int(setting["hidden"]),
        classes,
        int(setting["layers"]),
        int(setting["alpha"]),
        float(setting["epsilon"]),
        float(setting["dropout"]),
        setting["combine"],  # type: ignore[arg-type]
        bool(setting.get("self_branch", False)),
        last_activation=setting.get("head") == "paper",
    )


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> dict[str, Any]:
    alpha, epsilon = int(setting["alpha"]), float(setting["epsilon"])
    matrix = setting.get("powers") == "matrix"
    full = source.keep(MatrixPowers, alpha, epsilon) if matrix else source.sobolev(alpha, epsilon)
    at: Any = None
    if rows is not None and matrix:
        at = [full] * (int(setting["layers"]) - 1) + [source.keep(MatrixPowers, alpha, epsilon, rows)]
    elif rows is not None:
        at = full.rows(rows)
    return {"x": source.X, "edge_index": full, "propagated": full.propagate(source.X), "rows": at}


SOBOLEV = Network(
    build=_build,
    inputs=_inputs,
    space={**DEEP, "alpha": ALPHA, "epsilon": EPSILON, "combine": choice("linear", "concat")},
    width=lambda setting: int(setting["hidden"]) * (int(setting["layers"]) - 1) * (4 + 3 * int(setting["alpha"])),
    own_rates=("lr", "weight_decay"),
    headed=True,
)
# Not in the paper: each point's own features also bypass the graph. Its search space is that of S-SobGNN.
SOBOLEV_SELF = replace(
    SOBOLEV, build=lambda f, c, setting: _build(f, c, {**setting, "self_branch": True}), headed=False
)
