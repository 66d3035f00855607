"""What operators add to a graph, and whether building them is linear in its edges.

    python benchmarks/operators_memory.py [--nodes 1000000] [--degree 60] [--alpha 6]

Graphs are banded rings, in which node i is joined to i ± s for ``degree / 2`` fixed steps s: made in seconds
at any size, with the rows and the memory traffic of a k-NN graph whose nodes are in no particular order.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
import torch

from sobgnn.graphs.graph import Graph
from sobgnn.operators import SobolevOperators


def ring(nodes: int, degree: int, seed: int = 0) -> Graph:
    """A graph of ``nodes`` · ``degree`` / 2 undirected edges with weights in (0.1, 1), symmetric by construction."""
    rng = np.random.default_rng(seed)
    half = degree // 2
    steps = np.sort(rng.choice(np.arange(1, nodes // 2), half, replace=False)).astype(np.int64)
    forward = rng.uniform(0.1, 1.0, (half, nodes)).astype(np.float32)
    indices, weight = np.empty((nodes, degree), np.int32), np.empty((nodes, degree), np.float32)
    node = np.arange(nodes)
    for column, step in enumerate(steps):
        indices[:, column], weight[:, column] = (node + step) % nodes, forward[column]
        indices[:, half + column], weight[:, half + column] = (node - step) % nodes, np.roll(forward[column], step)
    for start in range(0, nodes, 1 << 16):  # rows sorted, block by block
        rows = slice(start, start + (1 << 16))
        order = np.argsort(indices[rows], axis=1)
        indices[rows] = np.take_along_axis(indices[rows], order, axis=1)
        weight[rows] = np.take_along_axis(weight[rows], order, axis=1)
    indptr = torch.arange(0, nodes * degree + 1, degree)
    return Graph(indptr, torch.from_numpy(indices.ravel()), torch.from_numpy(weight.ravel()))


def peak_while_building(graph: Graph, alpha: int) -> int:
    """The most bytes held at once while operators are built, on top of the graph and of what they keep."""
    tracemalloc.start()
    operators = SobolevOperators(graph, alpha, 1.0)
    _, peak = tracemalloc.get_traced_memory()  # numpy's arrays; what is kept is one of them
    tracemalloc.stop()
    return peak - operators.nbytes


def main() -> None:
    parser = argparse.ArgumentParser(description="Memory and build time of Sobolev operators.")
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--degree", type=int, default=60, help="neighbors of each node, even")
    parser.add_argument("--alpha", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()

    print("Claim: operators add less than 10 % to the memory of the graph, and are built in time linear in its edges.")
    print(f"torch {torch.__version__}, numpy {np.__version__}, {torch.get_num_threads()} threads")
    edges, seconds, share = [], [], 0.0
    for nodes in (options.nodes // 4, options.nodes // 2, options.nodes):
        graph = ring(nodes, options.degree)
        times = []
        for _ in range(options.repeats):
            start = time.perf_counter()
            operators = SobolevOperators(graph, options.alpha, 1.0)
            times.append(time.perf_counter() - start)
        transient = peak_while_building(graph, options.alpha)
        share = operators.nbytes / graph.nbytes
        edges.append(graph.num_edges // 2)
        seconds.append(min(times))
        print(
            f"n={nodes:,} undirected edges={edges[-1]:,} alpha={options.alpha}   graph {graph.nbytes:,} B   "
            f"added {operators.nbytes:,} B ({100 * share:.2f} %)   held while building {transient / 1e6:.1f} MB   "
            f"best {min(times):.2f} s ({', '.join(f'{t:.2f}' for t in times)})",
            flush=True,
        )
        del graph, operators
    slope = float(np.polyfit(np.log(edges), np.log(seconds), 1)[0])
    print(f"memory added {100 * share:.2f} % of the graph: {'holds' if share < 0.1 else 'DOES NOT HOLD'} (below 10 %)")
    print(f"time ~ edges^{slope:.2f}: {'holds' if slope < 1.15 else 'DOES NOT HOLD'} (1 is linear; noise to 1.15)")


if __name__ == "__main__":
    main()
