"""S-SobGNN, with Hadamard powers as in the paper or, for comparison, with matrix powers, which become dense."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from sobgnn import propagation
from sobgnn.graphs.graph import Graph
from sobgnn.nn.model import SSobGNN
from sobgnn.paper.models.contract import DEEP, Call, Choice, Network, Setting, Uniform
from sobgnn.paper.models.source import Source, matrix_csr

ALPHA, EPSILON = Choice((1, 2, 3, 4, 5, 6)), Uniform(0.5, 2.0)
# Maximum number of entries of one matrix power: 12 bytes each, and as much again while they are computed.
_MOST_ENTRIES = 600_000_000


class MatrixPowers:
    r"""Normalized matrix powers of a graph, each with its own pattern; for comparison.

    .. math:: \tilde{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{\rho} D_\rho^{-1/2}, \qquad \rho = 1, \dots, \alpha

    Used in place of :class:`~sobgnn.SobolevOperators` in :class:`~sobgnn.SSobGNN`.

    Args:
        graph: Symmetric, weighted, without self-loops.
        alpha: Number of powers.
        epsilon: Weight of every self-loop.
        index: int64 [R], the rows to return; ``None`` for all.
    """

    def __init__(self, graph: Graph, alpha: int, epsilon: float, index: Tensor | None = None) -> None:
        self.alpha, self.num_nodes, self.nodes = alpha, graph.num_nodes, index
        base = (graph.to_scipy().astype(np.float64) + epsilon * sp.eye_array(graph.num_nodes)).tocsr()
        power = sp.eye_array(graph.num_nodes)
        self._csrs = []
        for rho in range(1, alpha + 1):
            power = (power @ base).tocsr()
            if power.nnz > _MOST_ENTRIES:
                raise ValueError(f"Power {rho} has {power.nnz} entries, too many for memory. Lower `alpha`.")
            degree = power.sum(axis=1)
            scale = sp.diags_array(np.divide(1.0, np.sqrt(degree), where=degree > 0, out=np.zeros_like(degree)))
            self._csrs.append(matrix_csr(scale @ power @ scale, graph.device, index, symmetric=True))

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


def _inputs(source: Source, setting: Setting, rows: Tensor | None) -> Call:
    size = int(setting["alpha"]), float(setting["epsilon"])
    matrix = setting.get("powers") == "matrix"
    full = source.keep(_matrix_powers, *size, None) if matrix else source.sobolev(*size)
    known = {"propagated": full.propagate(source.X)}
    if rows is None:
        return Call((source.X, full), known)
    last = (
        [full] * (int(setting["layers"]) - 1) + [source.keep(_matrix_powers, *size, rows)]
        if matrix
        else full.rows(rows)
    )
    return Call((source.X, full), {**known, "rows": last})


def _matrix_powers(source: Source, alpha: int, epsilon: float, rows: Tensor | None) -> MatrixPowers:
    return MatrixPowers(source.graph, alpha, epsilon, rows)


def _width(setting: Setting) -> int:
    return int(setting["hidden"]) * (int(setting["layers"]) - 1) * (4 + 3 * int(setting["alpha"]))


SOBOLEV = Network(
    _build,
    _inputs,
    {**DEEP, "alpha": ALPHA, "epsilon": EPSILON, "combine": Choice(("linear", "concat"))},
    _width,
    own_rates=("lr", "weight_decay"),
    headed=True,
)
# Not in the paper: each point's own features also bypass the graph. Its search space is that of S-SobGNN.
SOBOLEV_SELF = replace(
    SOBOLEV, build=lambda f, c, setting: _build(f, c, {**setting, "self_branch": True}), headed=False
)
