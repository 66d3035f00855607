"""An order of the nodes that keeps neighbors close."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import reverse_cuthill_mckee

from sobgnn.graphs.graph import Graph


def locality_order(graph: Graph) -> npt.NDArray[np.int64]:
    """Reverse Cuthill–McKee: neighbors get positions close to one another."""
    if graph.num_edges == 0:
        return np.arange(graph.num_nodes)
    order: npt.NDArray[np.int64] = reverse_cuthill_mckee(graph.to_scipy(copy=False), symmetric_mode=True).astype(
        np.int64, "C"
    )
    return order
