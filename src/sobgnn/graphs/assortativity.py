"""How far the edges of a graph join nodes of one class."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sobgnn.graphs.graph import Graph


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
