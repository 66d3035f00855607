"""Claim: the backward with gradients for edge weights takes at most 2x the time of the backward without them.

Measured twice: of the propagation alone, and of a layer of as many outputs as inputs, whose backward has products too.
Beside it torch's sparse CSR product per order, whose weight gradient is a sampled dense product (GPU only: its memory).

Run: python -m benchmarks.propagation_weight_gradient [--device cuda] [--nodes 1000000] [--width 64]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.propagation_graphs import matrices, pattern, stencil
from benchmarks.timing import line, machine, medians
from sobgnn import Graph, SobolevConv, SobolevOperators
from sobgnn.propagation import Stencil, expand, scales


def backward(
    graph: tuple[Tensor, Tensor, Tensor], alpha: int, x: Tensor, g: Tensor, learned: bool
) -> Callable[[], object]:
    """The backward of one propagation, its forward done once: from g to x, and to learned weights."""
    indptr, indices, weight = graph
    x = x.clone().requires_grad_()
    if not learned:
        out = expand(stencil(graph, alpha), x)
        return lambda: torch.autograd.grad(out, [x], g, retain_graph=True)
    leaf = weight.clone().requires_grad_()
    scale = scales(indptr, leaf, alpha, 1.0)
    out = expand(Stencil(indptr, indices, leaf, *graph, scale, scale, 1.0), x)
    return lambda: torch.autograd.grad(out, [x, leaf], g, retain_graph=True)


def layer_backward(graph: tuple[Tensor, Tensor, Tensor], alpha: int, x: Tensor, learned: bool) -> Callable[[], object]:
    """The backward of a layer: to x, its parameters, and to learned weights."""
    indptr, indices, weight = graph
    layer = SobolevConv(x.shape[1], x.shape[1], alpha).to(x.device)
    leaf = weight.clone().requires_grad_(learned)
    x = x.clone().requires_grad_()
    out = layer(x, SobolevOperators(Graph(indptr, indices, leaf), alpha))
    wanted = [x, *layer.parameters(), *([leaf] if learned else [])]
    g = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, wanted, g, retain_graph=True)


def torch_backward(operators: list[Tensor], x: Tensor, g: Tensor) -> Callable[[], object]:
    """torch CSR: the gradients of x and of every order's values, which is not yet that of the weights."""

    def run() -> None:
        for order, matrix in enumerate(operators):
            part = g[:, order].contiguous()
            _ = matrix.t() @ part
            torch.sparse.sampled_addmm(matrix, part, x.t().contiguous(), beta=0.0)

    return run


def peak(work: Callable[[], object]) -> float:
    """GiB that a call takes on top of what is there."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--k", type=int, default=30)
    options = parser.parse_args()
    print(machine(options.device))
    for kind in ("local", "random"):
        graph = pattern(kind, options.nodes, options.k, device=options.device)
        case = f"{kind} n={options.nodes} e={graph[1].numel() / 1e6:.1f}M h={options.width}"
        generator = torch.Generator(options.device).manual_seed(0)
        size = {"device": options.device, "generator": generator}
        x = torch.randn(options.nodes, options.width, **size)
        for alpha in (1, 3, 4):
            g = torch.randn(options.nodes, alpha, options.width, **size)
            work = {
                "without": backward(graph, alpha, x, g, learned=False),
                "with": backward(graph, alpha, x, g, learned=True),
                "layer without": layer_backward(graph, alpha, x, learned=False),
                "layer with": layer_backward(graph, alpha, x, learned=True),
            }
            if options.device == "cuda":
                work["torch CSR"] = torch_backward(matrices(stencil(graph, alpha)), x, g)
            seconds = medians(work, rounds=7)
            times = "  ".join(f"{name} {1e3 * value:7.1f} ms" for name, value in seconds.items())
            print(f"{case:<34} alpha={alpha}  {times}")
            print(line(case, f"alpha={alpha} with / without", seconds["with"] / seconds["without"], 2.0, at_most=True))
            ratio = seconds["layer with"] / seconds["layer without"]
            print(line(case, f"alpha={alpha} layer with / without", ratio, 2.0, at_most=True))
            if options.device == "cuda":
                memory = "  ".join(f"{name} {peak(function):.2f} GiB" for name, function in work.items())
                print(f"{case:<34} alpha={alpha}  extra memory: {memory}")


if __name__ == "__main__":
    main()
