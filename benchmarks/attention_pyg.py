"""Claim: on CPUs, a layer of fused attention is at least 3x as fast as PyG's of the same weights, forward and backward.

Four heads of 32 channels on a k-NN graph of random points; GATConv and TransformerConv have the edges' weights as their
one edge feature, SuperGATConv takes none.

Run: python -m benchmarks.attention_pyg [NODES]
"""

from __future__ import annotations

import sys
import warnings

import torch

from benchmarks.timing import line, machine, medians
from sobgnn import knn_graph
from sobgnn.baselines.attention import AttentionConv
from sobgnn.baselines.edges import edges_of

K, FEATURES, CHANNELS, HEADS = 30, 64, 32, 4


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch_geometric.nn as pyg
    print(machine())
    x = torch.randn(nodes, FEATURES, generator=torch.Generator().manual_seed(0))
    graph = knn_graph(x.numpy(), k=K)
    edge_index, weight = graph.edges()
    size = (FEATURES, CHANNELS, HEADS)
    peers = {
        "GAT": pyg.GATConv(*size, edge_dim=1),
        "SuperGAT": pyg.SuperGATConv(*size, attention_type="MX").eval(),  # draws no negative edges
        "Transformer": pyg.TransformerConv(*size, edge_dim=1),
    }
    for kind, peer in peers.items():
        ours = AttentionConv(kind, *size, concat=True)  # type: ignore[arg-type]
        edges = edges_of(graph, loops=kind != "Transformer")
        given = {} if kind == "SuperGAT" else {"edge_attr": weight[:, None]}

        def fused(layer=ours, edges=edges):
            layer(x, edges).sum().backward()

        def theirs(layer=peer, given=given):
            layer(x, edge_index, **given).sum().backward()

        times = medians({"fused": fused, "PyG": theirs}, rounds=3, warm=1)
        case = f"{kind} n={nodes} e={len(weight) / 1e6:.2f}M"
        print(f"{case:<34} fused {1e3 * times['fused']:.0f} ms  PyG {1e3 * times['PyG']:.0f} ms")
        print(line(case, "PyG's layer", times["PyG"] / times["fused"], 3.0))


if __name__ == "__main__":
    main()
