"""Claim: results of a few megabytes reuse their pages: at 30 MB, forward is at least 1.2x faster than with fresh ones.

Run: python -m benchmarks.propagation_midsize
"""

from __future__ import annotations

import torch

from benchmarks.propagation_graphs import pattern, stencil
from benchmarks.timing import line, machine, medians
from sobgnn.propagation import expand
from sobgnn.runtime import pages

K, WIDTH = 30, 32


def main() -> None:
    print(machine())
    reuse_from = pages.SMALLEST

    def fresh(operators: object, x: torch.Tensor) -> None:
        pages.SMALLEST = 1 << 40  # results as torch allocates them
        try:
            expand(operators, x)  # type: ignore[arg-type]
        finally:
            pages.SMALLEST = reuse_from

    for nodes, alpha in ((20_000, 4), (60_000, 4), (60_000, 1)):
        operators = stencil(pattern("local", nodes, K), alpha)
        x = torch.randn(nodes, WIDTH, generator=torch.Generator().manual_seed(0))
        work = {
            "fresh": lambda s=operators, x=x: fresh(s, x),
            "reused": lambda s=operators, x=x: expand(s, x),
        }
        seconds = medians(work, rounds=15)
        size = nodes * alpha * WIDTH * 4 / 2**20
        case = f"local n={nodes} h={WIDTH} alpha={alpha} {size:.0f} MB"
        times = "  ".join(f"{name} {1e3 * value:6.1f} ms" for name, value in seconds.items())
        print(f"{case:<34} {times}")
        print(line(case, "fresh pages / reused pages", seconds["fresh"] / seconds["reused"], 1.2))


if __name__ == "__main__":
    main()
