"""Claim: one pass serves all orders; alpha = 4 costs at most 1.6x of alpha = 1 forward, 2.5x forward + backward."""

from __future__ import annotations

import torch

from benchmarks.propagation_graphs import pattern, stencil
from benchmarks.timing import line, machine, medians
from sobgnn.propagation import expand, reduce

NODES, K, WIDTH = 100_000, 30, 32


def main() -> None:
    print(machine())
    for kind in ("local", "random"):
        graph = pattern(kind, NODES, K)
        case = f"{kind} n={NODES} e={graph[1].numel() / 1e6:.1f}M h={WIDTH}"
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(NODES, WIDTH, generator=generator)
        work = {}
        for alpha in (1, 2, 4, 6):
            operators = stencil(graph, alpha)
            g = torch.randn(NODES, alpha, WIDTH, generator=generator)
            work[f"expand {alpha}"] = lambda s=operators, x=x: expand(s, x)
            work[f"reduce {alpha}"] = lambda s=operators, g=g: reduce(s, g)
        seconds = medians(work, rounds=11)
        for alpha in (1, 2, 4, 6):
            forward, backward = seconds[f"expand {alpha}"], seconds[f"reduce {alpha}"]
            print(f"{case:<34} alpha={alpha}  expand {1e3 * forward:6.1f} ms  reduce {1e3 * backward:6.1f} ms")
        forward = seconds["expand 4"] / seconds["expand 1"]
        both = (seconds["expand 4"] + seconds["reduce 4"]) / (seconds["expand 1"] + seconds["reduce 1"])
        print(line(case, "alpha = 4 over alpha = 1, forward", forward, 1.6, at_most=True))
        print(line(case, "alpha = 4 over alpha = 1, fwd + bwd", both, 2.5, at_most=True))


if __name__ == "__main__":
    main()
