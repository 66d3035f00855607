"""Claim: on CPUs, alpha = 4 orders in one pass are 3x as fast forward, and 2x forward + backward, as torch's sparse CSR
product (MKL) once per order, its fastest peer, for near-by and for random neighbors.

The graph is symmetric, so the peer's backward multiplies by the same matrices and transposes nothing.
"""

from __future__ import annotations

import warnings

import torch

from benchmarks.propagation_graphs import matrices, pattern, stencil
from benchmarks.timing import copy_bandwidth, line, machine, medians
from sobgnn.propagation import expand, reduce

NODES, K, WIDTH, ALPHA = 100_000, 30, 32, 4


def main() -> None:
    bandwidth = copy_bandwidth()
    print(f"{machine()}; copy {bandwidth / 1e9:.1f} GB/s")
    for kind in ("local", "random"):
        graph = pattern(kind, NODES, K)
        operators = stencil(graph, ALPHA)
        edges = graph[1].numel()
        case = f"{kind} n={NODES} e={edges / 1e6:.1f}M h={WIDTH}"
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(NODES, WIDTH, generator=generator)
        g = torch.randn(NODES, ALPHA, WIDTH, generator=generator)
        slices = [g[:, order].contiguous() for order in range(ALPHA)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            orders = matrices(operators)
        work = {
            "expand": lambda s=operators, x=x: expand(s, x),
            "reduce": lambda s=operators, g=g: reduce(s, g),
            "mkl": lambda m=orders, x=x: [order @ x for order in m],
            "mkl back": lambda m=orders, g=slices: sum(order @ part for order, part in zip(m, g, strict=True)),
        }
        seconds = medians(work, rounds=11)
        print(f"{case:<34} " + "  ".join(f"{name} {1e3 * value:.1f} ms" for name, value in seconds.items()))
        ratio = seconds["mkl"] / seconds["expand"]
        both = (seconds["mkl"] + seconds["mkl back"]) / (seconds["expand"] + seconds["reduce"])
        print(line(case, "MKL x alpha, forward", ratio, 3.0))
        print(line(case, "MKL x alpha, forward + backward", both, 2.0))
        # What must move: each index, weight, scale and row once, the output written and, before that, read.
        pattern_bytes = 8 * edges + 8 * NODES + 2 * 4 * NODES * (ALPHA + 1)
        for name, rows in (("expand", 1 + 2 * ALPHA), ("reduce", ALPHA + 2)):
            share = (pattern_bytes + 4 * WIDTH * NODES * rows) / seconds[name] / bandwidth
            print(f"{case:<34} {name}: {share:.0%} of the copy bandwidth, counting each row once")


if __name__ == "__main__":
    main()
