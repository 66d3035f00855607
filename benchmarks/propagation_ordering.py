"""Claim: where rows gather from all over the graph, reordering its nodes pays; where they do not, it does not.

A k-NN graph of points on a plane (the order of a generator that walks along it, shuffled, and shuffled then undone by
reverse Cuthill-McKee), and one of points in 32 dimensions, where no order brings neighbors together. Prints the cost
of a forward and backward pass in each order, and how many passes pay for computing the order.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.spatial import cKDTree
from torch import Tensor

from benchmarks.propagation_graphs import stencil
from benchmarks.timing import machine, medians
from sobgnn.propagation import expand, reduce

WIDTH, ALPHA, K = 32, 4, 30


def neighbors(points: np.ndarray) -> sp.csr_array:
    """The union of the K nearest neighbors of each point, Gaussian weights."""
    distance, index = cKDTree(points).query(points, K + 1, workers=-1)
    rows = np.repeat(np.arange(len(points)), K)
    weight = np.exp(-((distance[:, 1:] / distance[:, 1:].mean()) ** 2)).ravel()
    graph = sp.coo_array((weight, (rows, index[:, 1:].ravel())), shape=(len(points),) * 2).tocsr()
    return graph.maximum(graph.T).tocsr()


def permuted(graph: sp.csr_array, order: np.ndarray) -> sp.csr_array:
    result = graph[order][:, order].tocsr()
    result.sort_indices()
    return result


def passes(graph: sp.csr_array, x: Tensor, g: Tensor) -> Callable[[], object]:
    """One forward and one backward pass over the graph."""
    indptr = torch.from_numpy(graph.indptr.astype(np.int64))
    indices = torch.from_numpy(graph.indices.astype(np.int32))
    operators = stencil((indptr, indices, torch.from_numpy(graph.data).float()), ALPHA)
    return lambda: (expand(operators, x), reduce(operators, g))


def main() -> None:
    print(machine())
    draw = np.random.default_rng(0)
    for name, nodes, dimensions in (("plane", 20_000, 2), ("plane", 200_000, 2), ("32 dimensions", 20_000, 32)):
        points = draw.uniform(size=(nodes, dimensions))
        walked = points[np.lexsort((points[:, 1], np.floor(points[:, 0] * np.sqrt(nodes / 50))))]
        graph = neighbors(walked)
        shuffled = permuted(graph, draw.permutation(nodes))
        start = time.perf_counter()
        restored = permuted(shuffled, reverse_cuthill_mckee(sp.csr_matrix(shuffled), symmetric_mode=True))
        spent = time.perf_counter() - start
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(nodes, WIDTH, generator=generator)
        g = torch.randn(nodes, ALPHA, WIDTH, generator=generator)
        orders = {"generator": graph, "shuffled": shuffled, "RCM": restored}
        work = {order: passes(matrix, x, g) for order, matrix in orders.items()}
        seconds = medians(work, rounds=9)
        gain = seconds["shuffled"] - seconds["RCM"]
        pays = f"pays after {spent / gain:.0f} passes" if gain > 0.05 * seconds["shuffled"] else "does not pay"
        times = "  ".join(f"{order} {1e3 * value:.1f} ms" for order, value in seconds.items())
        print(
            f"{name} n={nodes} e={graph.nnz / 1e6:.1f}M: {times}; shuffled / RCM "
            f"{seconds['shuffled'] / seconds['RCM']:.2f}x; RCM took {1e3 * spent:.0f} ms, {pays}"
        )


if __name__ == "__main__":
    main()
