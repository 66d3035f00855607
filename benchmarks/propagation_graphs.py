"""The graphs of the propagation benchmarks: k neighbors near by or anywhere, symmetrized. Torch only."""

from __future__ import annotations

import torch
from torch import Tensor

from sobgnn.propagation import Stencil


def pattern(
    kind: str, nodes: int, k: int, *, device: str = "cpu", seed: int = 0, hub: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """CSR of a symmetric graph: ``kind`` "local" draws neighbors within 200 rows, "random" anywhere.

    ``hub`` links node 0 to that many others besides.
    """
    generator = torch.Generator(device).manual_seed(seed)
    i = torch.arange(nodes, device=device).repeat_interleave(k)
    if kind == "local":
        offset = torch.randint(1, 401, i.shape, device=device, generator=generator) - 200
        j = (i + offset).remainder(nodes)
    else:
        j = torch.randint(nodes, i.shape, device=device, generator=generator)
    if hub:
        other = torch.arange(1, min(hub + 1, nodes), device=device)
        i, j = torch.cat([i, torch.zeros_like(other)]), torch.cat([j, other])
    i, j = i[i != j], j[i != j]
    keys = torch.unique(torch.cat([i * nodes + j, j * nodes + i]))
    i, j = keys // nodes, keys % nodes
    # A weight from the pair alone, so that both directions have the same.
    low, high = torch.minimum(i, j), torch.maximum(i, j)
    weight = 0.05 + 0.95 * ((low * 7919 + high * 104729) % 10007).float() / 10007
    indptr = torch.zeros(nodes + 1, dtype=torch.int64, device=device)
    indptr[1:] = torch.bincount(i, minlength=nodes).cumsum(0)
    return indptr, j.int(), weight


def stencil(
    graph: tuple[Tensor, Tensor, Tensor], alpha: int, *, epsilon: float = 1.0, dtype: torch.dtype = torch.float32
) -> Stencil:
    """The normalized operators of orders 1 .. alpha on that graph."""
    indptr, _, weight = graph
    nodes = indptr.numel() - 1
    i = torch.arange(nodes, device=indptr.device).repeat_interleave(indptr.diff())
    peak = torch.full((nodes,), epsilon, dtype=torch.float64, device=indptr.device)
    peak.scatter_reduce_(0, i, weight.double(), "amax")
    mantissa, exponent = torch.frexp(peak.rsqrt())
    q = torch.ldexp(torch.round(mantissa * 4096), exponent - 12)
    base = weight.double() * q[i] ** 2
    columns = [q]
    for order in range(1, alpha + 1):
        degree = (epsilon * q**2) ** order
        columns.append(degree.index_add(0, i, base**order).rsqrt())
    scale = torch.stack(columns, 1).to(dtype)
    return Stencil(*graph, *graph, scale, scale, epsilon)


def matrices(operators: Stencil, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Each order written out as torch's sparse CSR, self-loops included: what a peer multiplies by."""
    indptr, indices, weight = operators[:3]
    nodes = indptr.numel() - 1
    counts = indptr.diff()
    device = indptr.device
    i = torch.arange(nodes, device=device).repeat_interleave(counts)
    diagonal = torch.arange(nodes, device=device)
    i, j = torch.cat([i, diagonal]), torch.cat([indices.long(), diagonal])
    w = torch.cat([weight, weight.new_full((nodes,), operators.epsilon)]).double()
    order = torch.argsort(i * nodes + j)
    i, j, w = i[order], j[order], w[order]
    scale = operators.scale_in.double()
    base = w * (scale[i, 0] * scale[j, 0])
    starts = (indptr + torch.arange(nodes + 1, device=device)).int()
    result = []
    for rho in range(1, scale.shape[1]):
        values = (base**rho * scale[i, rho] * scale[j, rho]).to(dtype)
        result.append(torch.sparse_csr_tensor(starts, j.int(), values, (nodes, nodes)))
    return result
