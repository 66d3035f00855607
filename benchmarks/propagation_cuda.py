"""Claims, on CUDA, for alpha = 4 orders at N = 1 000 000, h = 64 and at N = 10 000, h = 1 600 (k = 30):

- against cuSPARSE (torch sparse CSR) once per order: 3x and 2.5x forward, 2x forward + backward;
- against gather-scatter (index_select, index_add_) once per order: 50x;
- the result is the definition's, in the same bits on every run, with a hub of a million neighbors too.

Run: PYTHONPATH=src python3 -m benchmarks.propagation_cuda [--quick]
"""

from __future__ import annotations

import sys
import warnings

import torch
from torch import Tensor

from benchmarks.propagation import csr_of, matrices, pattern
from benchmarks.timing import copy_bandwidth, line, machine, medians
from sobgnn.propagation import SobolevCSR, backend, portable, propagate, propagate_each, propagate_sum

ALPHA = 4


def say(text: str) -> None:
    print(text, flush=True)


def reference(operators: SobolevCSR, x: Tensor, *, orders_out: bool) -> Tensor:
    """The portable backend in float64."""
    double = operators._replace(row_scale=operators.row_scale.double(), column_scale=operators.column_scale.double())
    rows, alpha = double.row_scale.shape[0], double.row_scale.shape[1] - 1
    shape = (rows, alpha, x.shape[-1]) if orders_out else (rows, x.shape[-1])
    result = torch.empty(shape, dtype=torch.float64, device=x.device)
    portable.run(double, x.double(), result)
    return result


def check(name: str, graph: tuple[Tensor, Tensor, Tensor], width: int, alpha: int = ALPHA) -> None:
    """Every operator against float64, in float32 and bfloat16, twice."""
    operators = csr_of(graph, alpha)
    nodes = graph[0].numel() - 1
    x = torch.randn(nodes, width, device="cuda")
    g = torch.randn(nodes, alpha, width, device="cuda")
    for operator, argument in ((propagate, x), (propagate_sum, g), (propagate_each, g)):
        for dtype, limit in ((torch.float32, 1e-5), (torch.bfloat16, 1e-2)):
            features = argument.to(dtype)
            got = operator(operators, features)
            same = all(torch.equal(got, operator(operators, features)) for _ in range(2))
            want = reference(operators, features, orders_out=operator is not propagate_sum)
            error = ((got.double() - want).abs().max() / want.abs().max()).item()
            verdict = "holds" if error < limit and same else "misses"
            say(
                f"{name:<34} {operator.__name__:<7} {str(dtype)[6:]:<9} alpha={alpha} h={width:<5} "
                f"error {error:.1e}  same bits {same}  {verdict}"
            )


def gather_scatter(rows: Tensor, columns: Tensor, value: Tensor, x: Tensor) -> list[Tensor]:
    """What message passing on an edge list does, once per order, with ready-made coefficients."""
    return [torch.zeros_like(x).index_add_(0, rows, x.index_select(0, columns) * value) for _ in range(ALPHA)]


def hub() -> None:
    """A million neighbors in one row: right, and no slower than as many entries spread evenly."""
    nodes = 1_000_001
    graph = pattern("random", nodes, 2, device="cuda", hub=nodes - 1)
    check("hub of 1M neighbors", graph, 16, alpha=2)
    operators = csr_of(graph, ALPHA)
    even = csr_of(pattern("random", nodes, 3, device="cuda"), ALPHA)
    x = torch.randn(nodes, 64, device="cuda")
    seconds = medians({"hub": lambda: propagate(operators, x), "even": lambda: propagate(even, x)})
    ratio = seconds["hub"] / seconds["even"]
    say(line("hub of 1M neighbors, h=64", "as many entries, no hub", ratio, 2, at_most=True))


def compare(kind: str, nodes: int, width: int, bandwidth: float, forward_goal: float, *, rounds: int) -> None:
    graph = pattern(kind, nodes, 30, device="cuda")
    operators = csr_of(graph, ALPHA)
    single = csr_of(graph, 1)
    edges = graph[1].numel()
    case = f"{kind} n={nodes} e={edges / 1e6:.1f}M h={width}"
    x = torch.randn(nodes, width, device="cuda")
    g = torch.randn(nodes, ALPHA, width, device="cuda")
    slices = [g[:, order].contiguous() for order in range(ALPHA)]
    first, x16, g16 = slices[0].unsqueeze(1), x.bfloat16(), g.bfloat16()
    rows = torch.arange(nodes, device="cuda").repeat_interleave(graph[0].diff())
    columns, value = graph[1].long(), graph[2][:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        orders = matrices(operators)
    work = {
        "propagate": lambda: propagate(operators, x),
        "propagate_sum": lambda: propagate_sum(operators, g),
        "propagate_each": lambda: propagate_each(operators, g),
        "propagate 1": lambda: propagate(single, x),
        "propagate_sum 1": lambda: propagate_sum(single, first),
        "cusparse": lambda: [order @ x for order in orders],
        # Symmetric, so its backward multiplies by the same matrices; the sum over orders is part of it.
        "cusparse back": lambda: sum(order @ part for order, part in zip(orders, slices, strict=True)),
        "bfloat16 propagate": lambda: propagate(operators, x16),
        "bfloat16 propagate_sum": lambda: propagate_sum(operators, g16),
    }
    seconds = medians(work, rounds=rounds)
    for name, value in seconds.items():
        say(f"{case:<34} {name:<16} {1e3 * value:9.3f} ms")
    scatter = medians({"": lambda: gather_scatter(rows, columns, value, x)}, rounds=3, warm=1)[""]
    say(f"{case:<34} {'gather-scatter':<16} {1e3 * scatter:9.3f} ms")

    both = seconds["propagate"] + seconds["propagate_sum"]
    peer = seconds["cusparse"] + seconds["cusparse back"]
    ones = seconds["propagate 1"] + seconds["propagate_sum 1"]
    say(line(case, "cuSPARSE x alpha, forward", seconds["cusparse"] / seconds["propagate"], forward_goal))
    say(line(case, "cuSPARSE x alpha, forward + backward", peer / both, 2.0))
    say(line(case, "gather-scatter x alpha, forward", scatter / seconds["propagate"], 50.0))
    say(line(case, "gather-scatter x alpha, fwd + bwd", 2 * scatter / both, 50.0))
    say(line(case, "own alpha = 1, forward", seconds["propagate"] / seconds["propagate 1"], 1.6, at_most=True))
    say(line(case, "own alpha = 1, forward + backward", both / ones, 2.5, at_most=True))
    pattern_bytes = 8 * edges + 8 * nodes + 2 * nodes * 4 * (ALPHA + 1)
    for name, gathered, streamed in (
        ("propagate", 4 * width, (1 + ALPHA) * 4 * width * nodes),
        ("propagate_sum", 4 * width * ALPHA, (1 + ALPHA) * 4 * width * nodes),
    ):
        # Least: each index, weight and row once. Most: every gathered row from memory, as if nothing were cached.
        least = pattern_bytes + streamed
        most = pattern_bytes + streamed + gathered * (edges - nodes)
        floor, ceiling = (size / seconds[name] / bandwidth for size in (least, most))
        say(
            f"{case:<34} {name}: {floor:.0%} of copy bandwidth counting each row once, "
            f"{ceiling:.0%} counting every gather"
        )


def main() -> None:
    if not torch.cuda.is_available():
        say("No CUDA device: nothing was run.")
        return
    quick = "--quick" in sys.argv
    torch.manual_seed(0)
    bandwidth = copy_bandwidth("cuda", 1 << 28)
    say(f"{machine('cuda')}; copy {bandwidth / 1e12:.2f} TB/s; backend {backend(torch.zeros(1, device='cuda'))}")
    check("random n=2000", pattern("random", 2000, 8, device="cuda"), 33, alpha=3)
    check("random n=2000", pattern("random", 2000, 8, device="cuda"), 7, alpha=9)
    check("random n=10000", pattern("random", 10_000, 30, device="cuda"), 200)
    check("local n=100000", pattern("local", 100_000, 30, device="cuda"), 64)
    hub()
    rounds = 5 if quick else 15
    for kind in ("random", "local"):
        compare(kind, 10_000, 1600, bandwidth, 2.5, rounds=rounds)
        torch.cuda.empty_cache()
    for kind in ("local", "random"):
        compare(kind, 1_000_000, 64, bandwidth, 3.0, rounds=rounds)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
