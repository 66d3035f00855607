"""Claim: results of a few megabytes reuse their pages: a forward takes none anew from the system.

"Fresh" is torch's allocator. Whether glibc takes a block of this size anew from the system depends on what was freed
before; a fixed threshold makes it do so at every call, which is the case that results should not pay for.

Run: MALLOC_MMAP_THRESHOLD_=131072 python -m benchmarks.propagation_midsize
"""

from __future__ import annotations

import resource
import statistics
import time

import torch

from benchmarks.propagation_graphs import pattern, stencil
from benchmarks.timing import line, machine
from sobgnn.propagation import Stencil, expand
from sobgnn.runtime import pages

K, WIDTH = 30, 32


def measure(operators: Stencil, x: torch.Tensor, reuse_from: int) -> tuple[float, int]:
    """Seconds and new pages of a forward whose result reuses pages from ``reuse_from`` bytes."""
    pages.SMALLEST = reuse_from
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    expand(operators, x)
    seconds = time.perf_counter() - start
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def main() -> None:
    print(machine())
    default = pages.SMALLEST
    for nodes, alpha in ((20_000, 4), (60_000, 4), (60_000, 1)):
        operators = stencil(pattern("local", nodes, K), alpha)
        x = torch.randn(nodes, WIDTH, generator=torch.Generator().manual_seed(0))
        cases = {"fresh": 1 << 40, "reused": default}
        runs: dict[str, list[tuple[float, int]]] = {name: [] for name in cases}
        for _ in range(9):  # interleaved, so that a busy machine is unfair to none
            for name, smallest in cases.items():
                runs[name].append(measure(operators, x, smallest))
        seconds = {name: statistics.median(value for value, _ in found) for name, found in runs.items()}
        count = {name: statistics.median(value for _, value in found) for name, found in runs.items()}
        pages.SMALLEST = default
        size = nodes * alpha * WIDTH * 4 / 2**20
        case = f"local n={nodes} h={WIDTH} alpha={alpha} {size:.0f} MB"
        times = "  ".join(f"{name} {1e3 * value:6.1f} ms, {count[name]:.0f} faults" for name, value in seconds.items())
        print(f"{case:<34} {times}")
        print(line(case, "fresh pages / reused pages", seconds["fresh"] / seconds["reused"], 1.0))


if __name__ == "__main__":
    main()
