"""A summary of a graph: degrees, weights, components, agreement of labels, assortativity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from sobgnn._system.unknown import unknown_labels

if TYPE_CHECKING:
    from sobgnn.graphs.graph import Graph

_QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class GraphReport:
    """The numbers of :meth:`sobgnn.Graph.describe`; ``print`` shows them as a few lines.

    Attributes:
        nodes: Number of nodes.
        edges: Number of undirected edges.
        degree_quantiles: Number of neighbors: minimum, quartiles, maximum.
        weight_quantiles: Edge weight: minimum, quartiles, maximum.
        components: Number of connected components, isolated nodes included.
        largest_component: Nodes in the largest.
        isolated: Nodes without a neighbor.
        agreement: Entry ρ-1: share of the weight Σ w^ρ, over edges with both labels known, that joins equal
            labels. Where it grows with ρ, higher Hadamard powers give more weight to the right neighbors.
        neighbor_recall: Share of true neighbors found, where the search was approximate.
    """

    nodes: int
    edges: int
    degree_quantiles: tuple[float, ...]
    weight_quantiles: tuple[float, ...]
    components: int
    largest_component: int
    isolated: int
    agreement: tuple[float, ...] | None = None
    neighbor_recall: float | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.nodes:,} nodes, {self.edges:,} edges, {self.isolated:,} isolated nodes",
            f"{self.components:,} components, the largest of {self.largest_component:,} nodes",
            "degree  min/25%/50%/75%/max  " + " / ".join(f"{q:g}" for q in self.degree_quantiles),
            "weight  min/25%/50%/75%/max  " + " / ".join(f"{q:.3g}" for q in self.weight_quantiles),
        ]
        if self.neighbor_recall is not None:
            lines.append(f"approximate neighbors, measured recall {self.neighbor_recall:.3f}")
        if self.agreement is not None:
            lines.append(
                "weight between equal labels, per power  " + "  ".join(f"{100 * a:.1f} %" for a in self.agreement)
            )
        return "\n".join(lines)


def report_adjacency(
    csr: sp.csr_array, y: npt.NDArray[Any] | None, orders: int, neighbor_recall: float | None
) -> GraphReport:
    """The report of a symmetric adjacency matrix [N, N], and of labels ``y`` [N]; -1, None and NaN are unknown."""
    n = csr.shape[0]
    degree = np.diff(csr.indptr)
    components, member = connected_components(csr, directed=False) if n else (0, np.zeros(0, dtype=int))
    return GraphReport(
        nodes=n,
        edges=csr.nnz // 2,
        degree_quantiles=_quantiles(degree),
        weight_quantiles=_quantiles(csr.data),
        components=int(components),
        largest_component=int(np.bincount(member).max()) if n else 0,
        isolated=int(np.count_nonzero(degree == 0)),
        agreement=None if y is None else _agreement(csr, y, orders),
        neighbor_recall=neighbor_recall,
    )


def _quantiles(values: npt.NDArray[Any]) -> tuple[float, ...]:
    return tuple(float(q) for q in np.quantile(values, _QUANTILES)) if values.size else (0.0,) * len(_QUANTILES)


def _agreement(csr: sp.csr_array, y: npt.NDArray[Any], orders: int) -> tuple[float, ...]:
    if y.shape != (csr.shape[0],):
        raise ValueError(f"y must have one label per node, but got shape {y.shape} for {csr.shape[0]} nodes.")
    rows = np.repeat(np.arange(csr.shape[0]), np.diff(csr.indptr))
    have = ~unknown_labels(y)
    known = have[rows] & have[csr.indices]
    equal = y[rows[known]] == y[csr.indices[known]]
    weight = csr.data[known].astype(np.float64)
    if not weight.size:
        return (float("nan"),) * orders
    weight /= weight.max()  # the share does not change, and powers cannot overflow
    shares = []
    power = np.ones_like(weight)
    for _ in range(orders):
        power *= weight
        shares.append(float(power[equal].sum() / power.sum()))
    return tuple(shares)


def assortativity(graph: Graph, classes: npt.NDArray[np.int64], without: npt.NDArray[np.int64] | None = None) -> float:
    r"""Newman's assortativity of classes over the edges of a graph, those at the points ``without`` left out.

    .. math:: r = \frac{\mathrm{tr}\, e - \sum_c a_c^2}{1 - \sum_c a_c^2}

    with e the shares of edges between classes and a its row sums: 1 where edges join equal classes only, 0 where they
    join classes by chance.
    """
    edges = graph.to("cpu").to_scipy(copy=False).tocoo()
    free = np.ones(graph.num_nodes, dtype=bool)
    if without is not None:
        free[without] = False
    kept = free[edges.row] & free[edges.col]
    first, second = classes[edges.row[kept]], classes[edges.col[kept]]
    if not len(first):
        return 0.0
    shares = np.bincount(first, minlength=int(classes.max()) + 1) / len(first)
    chance = float(np.square(shares).sum())
    return float(((first == second).mean() - chance) / (1 - chance)) if chance < 1 else 0.0
