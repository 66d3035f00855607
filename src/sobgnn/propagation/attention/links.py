r"""SuperGAT's loss of link prediction for many members at once, on CUDA: edges score high, other pairs low.

.. math:: \ell_{ij} = \tfrac1H v_i \cdot v_j, \qquad
   L = \tfrac{2}{3} \, \mathrm{mean}_{(i, j) \in E} \, \zeta(-\ell_{ij})
     + \tfrac{1}{3} \, \mathrm{mean}_{(i, j) \in U} \, \zeta(\ell_{ij}), \qquad \zeta(x) = \log(1 + e^x)

over the edges E and drawn pairs U that are none, both symmetric. Then :math:`\nabla_{v_i} L` is twice a sum over i's
own pairs, so that one pass gives loss and gradient, and nothing is kept for each pair.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from sobgnn.propagation.attention.terms import EdgePattern
from sobgnn.propagation.attention.walks import Long, Shape, launch_parts

# Of the pairs that PyG's SuperGATConv samples: 0.8 of the edges, half as many others.
EDGE_SHARE, OTHER_SHARE = 2 / 3, 1 / 3


def link_losses(edges: EdgePattern, others: Tensor, shape: Shape, maps: Tensor, long: Long) -> Tensor:
    """The loss of S members, float32 [S].

    Args:
        edges: Between N nodes, each in both directions.
        others: int32 [S, N, T], each member's drawn partners of every node, in both directions; -1 for none.
        shape: Sizes.
        maps: float32 [N, S · H · c], each member's heads side by side.
        long: Nodes of many edges.
    """
    losses: Tensor = _Links.apply(edges, others, shape, long, maps)  # type: ignore[no-untyped-call]
    return losses


class _Links(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, edges: EdgePattern, others: Tensor, shape: Shape, long: Long, maps: Tensor) -> Tensor:
        import triton

        from sobgnn.propagation.attention.links_triton import links

        nodes, width = len(maps), shape.heads * shape.channels
        # Gathered rows in float16 where matrix products may be TF32, as in the layer.
        value = maps if torch.get_float32_matmul_precision() == "highest" else maps.clamp(-65504, 65504).half()
        drawn = (others >= 0).sum(dim=(1, 2)).clamp_min(1)
        scale = torch.stack([torch.full_like(drawn, len(edges.sources)) / EDGE_SHARE, drawn / OTHER_SHARE]).reciprocal()
        losses = maps.new_empty(nodes, shape.members)
        gradient = torch.empty_like(maps)
        padded = triton.next_power_of_2(width)
        arguments = (
            edges.indptr, edges.sources, others.contiguous(), value.contiguous(), scale.float(), losses, gradient,
            nodes, others.shape[2], shape.members, width, long.most, 1 / shape.heads,
        )  # fmt: skip
        lanes = max(4, 1024 // padded)
        options = {"D": padded, "E": lanes, "num_warps": max(1, padded // 128)}
        results = (shape.members, padded + lanes)
        launch_parts(links, (nodes, shape.members), nodes, long.rows, results, arguments, options)
        ctx.members = shape.members
        ctx.save_for_backward(gradient)
        return losses.sum(dim=0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_losses: Tensor) -> tuple[None, None, None, None, Tensor]:
        (gradient,) = ctx.saved_tensors
        return None, None, None, None, (gradient.view(len(gradient), ctx.members, -1) * to_losses[:, None]).flatten(1)
