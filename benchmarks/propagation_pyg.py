"""Claim: on CPUs, alpha = 4 orders in one pass are 100x as fast as PyG's GCNConv on an edge list once per order.

Both have their coefficients ready and no weights to multiply by: GCNConv runs without normalization and with an
identity in place of its linear map.
"""

from __future__ import annotations

import warnings

import torch

from benchmarks.propagation_graphs import matrices, pattern, stencil
from benchmarks.timing import line, machine, medians
from sobgnn.propagation import expand, reduce

NODES, K, WIDTH, ALPHA = 100_000, 30, 32, 4


def main() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.nn import GCNConv
    print(machine())
    layer = GCNConv(WIDTH, WIDTH, bias=False, normalize=False)
    layer.lin = torch.nn.Identity()
    for kind in ("local", "random"):
        graph = pattern(kind, NODES, K)
        operators = stencil(graph, ALPHA)
        case = f"{kind} n={NODES} e={graph[1].numel() / 1e6:.1f}M h={WIDTH}"
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(NODES, WIDTH, generator=generator).requires_grad_()
        g = torch.randn(NODES, ALPHA, WIDTH, generator=generator)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            orders = matrices(operators)
        targets = torch.arange(NODES).repeat_interleave(orders[0].crow_indices().diff())
        edge_index = torch.stack([orders[0].col_indices().long(), targets])
        values = [order.values() for order in orders]

        def peer(x=x, edge_index=edge_index, values=values):
            return [layer(x, edge_index, value) for value in values]

        def peer_both(x=x, g=g, peer=peer):
            outputs = peer()
            return torch.autograd.grad(outputs, x, [g[:, order] for order in range(ALPHA)])

        work = {"expand": lambda s=operators, x=x: expand(s, x), "reduce": lambda s=operators, g=g: reduce(s, g)}
        ours = medians(work, rounds=7)
        theirs = medians({"forward": peer, "both": peer_both}, rounds=1, warm=0)
        both = ours["expand"] + ours["reduce"]
        print(
            f"{case:<34} expand {1e3 * ours['expand']:.1f} ms  GCNConv x alpha {1e3 * theirs['forward']:.0f} ms; "
            f"with backward {1e3 * both:.1f} ms  {1e3 * theirs['both']:.0f} ms"
        )
        print(line(case, "GCNConv x alpha, forward", theirs["forward"] / ours["expand"], 100.0))
        print(line(case, "GCNConv x alpha, forward + backward", theirs["both"] / both, 100.0))


if __name__ == "__main__":
    main()
