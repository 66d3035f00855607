"""Pairs for SuperGAT's link prediction loss: the edges, and other pairs drawn at every step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from sobgnn.nn.dropout import row_hashes
from sobgnn.paper.models.edges import Edges

# Of the pairs that PyG's SuperGATConv samples: 0.8 of the edges, half as many others.
EDGE_SHARE, OTHER_SHARE = 2 / 3, 1 / 3
# Other pairs drawn per edge: PyG's SuperGATConv draws half as many as it samples edges, which is 0.8 of them.
_OTHERS = 0.4
_LAYER = 2000  # separates the draws from those of dropout


class Links:
    """The edges of a graph, in both directions, and pairs of nodes without an edge.

    Other pairs are drawn by stepping along a fixed random circle of all nodes, random distances forward and back, so
    that every node has equally many pairs, also in both directions; a pair that has an edge is ignored.

    Args:
        edges: Edges into all N nodes, with self-loops.
    """

    def __init__(self, edges: Edges) -> None:
        self.edges, nodes, device = edges, len(edges.nodes), edges.nodes.device
        self.keys = edges.targets * nodes + edges.sources
        order = torch.randperm(nodes, generator=torch.Generator().manual_seed(0))
        self.circle, self.place = order.to(device), order.argsort().to(device)
        self.distances = torch.arange(max(1, round(_OTHERS / 2 * len(self.keys) / nodes)), device=device)

    def others(self, key: Tensor, layer: int) -> Tensor:
        """int64 [N, T], drawn partners of every node, -1 if a pair has an edge; keys [S] give [S, N, T].

        Args:
            key: int64, the key of a member and a step.
            layer: Distinguishes the layers of one step.
        """
        nodes = len(self.circle)
        hashed = row_hashes(self.distances, key.unsqueeze(-1), _LAYER + layer).long() % 2**31
        distance = 1 + hashed % max(1, nodes - 1)
        distance = torch.cat([distance, nodes - distance], dim=-1).unsqueeze(-2)
        partner = self.circle[(self.place.unsqueeze(1) + distance) % nodes]
        pair = torch.arange(nodes, device=key.device).unsqueeze(1) * nodes + partner
        found = torch.searchsorted(self.keys, pair).clamp_max(len(self.keys) - 1)
        return torch.where(self.keys[found] == pair, -1, partner)

    def loss(self, value: Tensor, others: Tensor) -> Tensor:
        r"""The loss of one member: edges score high, other pairs low.

        .. math:: \ell_{ij} = \tfrac1H v_i \cdot v_j, \qquad
           L = \tfrac{2}{3} \, \mathrm{mean}_{(i, j) \in E} \, \zeta(-\ell_{ij})
             + \tfrac{1}{3} \, \mathrm{mean}_{(i, j) \in U} \, \zeta(\ell_{ij}), \qquad \zeta(x) = \log(1 + e^x)

        over the edges E and drawn pairs U that are none.

        Args:
            value: [N, H, c].
            others: int64 [N, T].
        """
        rows, known = value.flatten(1), others >= 0
        edge = (rows.index_select(0, self.edges.targets) * rows.index_select(0, self.edges.sources)).sum(dim=1)
        partners = rows.index_select(0, others.clamp_min(0).flatten()).view(*others.shape, -1)
        other = torch.einsum("nd,ntd->nt", rows, partners)
        heads = value.shape[1]
        others_loss = torch.where(known, F.softplus(other / heads), 0.0).sum() / known.sum().clamp_min(1)
        return EDGE_SHARE * F.softplus(-edge / heads).mean() + OTHER_SHARE * others_loss
