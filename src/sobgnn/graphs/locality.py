"""An order of the nodes that keeps neighbors close, and a fair share of nodes for each rank."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee

from sobgnn.graphs.graph import Graph
from sobgnn.runtime.ranks import Ranks


def locality_order(graph: Graph) -> npt.NDArray[np.int64]:
    """Reverse Cuthill–McKee: neighbors get positions close to one another."""
    if graph.num_edges == 0:
        return np.arange(graph.num_nodes)
    order: npt.NDArray[np.int64] = reverse_cuthill_mckee(graph.to_scipy(copy=False), symmetric_mode=True).astype(
        np.int64, "C"
    )
    return order


def own_nodes(graph: Graph | None, index: npt.NDArray[np.int64], ranks: Ranks) -> npt.NDArray[np.int64]:
    """Which of the nodes ``index`` [L] this rank computes at, as places in ``index``; every node is one rank's.

    Where their neighborhoods in a graph would cover it, ranks get nodes that are close to one another, so that what
    two of them have to read is mostly not the same. A rank that gets none has the one place -1, and must not count it.
    """
    places = np.arange(len(index))
    if graph is not None and ranks.size > 1:
        reach = len(index) + int(graph.degree[torch.from_numpy(index)].sum())
        if reach > graph.num_nodes:
            position = np.empty(graph.num_nodes, np.int64)
            position[locality_order(graph)] = np.arange(graph.num_nodes)
            places = np.argsort(position[index])
    own = places[ranks.part(len(index))]
    return own if len(own) else np.array([-1])
