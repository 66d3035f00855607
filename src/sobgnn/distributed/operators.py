"""One rank's rows of the sparse Sobolev operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.distributed as dist
from torch import Tensor

from sobgnn import propagation
from sobgnn.distributed.exchange import Exchange
from sobgnn.distributed.partition import Partition
from sobgnn.graphs.graph import Graph
from sobgnn.operators import check_alpha, check_epsilon, clamp_epsilon, node_scales
from sobgnn.propagation import Stencil, csr_tensors


class RankOperators:
    """This rank's rows of every Â_ρ, used in place of :class:`~sobgnn.SobolevOperators` in layers and models.

    Signals hold only this rank's nodes, in the order of ``partition.nodes(rank)``; the rows of others that it reads are
    exchanged inside :meth:`propagate`. The operators are those of the whole graph, entry by entry: a node's degrees
    come from its own row, which is entirely on one rank.

    Args:
        graph: The whole graph, preferably memory-mapped (``Graph.load``): only this rank's rows are read.
        partition: Which rank holds what.
        alpha: Number of orders, at least 1.
        epsilon: Weight of every self-loop, at least 0.
        device: Device of this rank.
        group: Process group; the default one if left out.
    """

    def __init__(
        self,
        graph: Graph,
        partition: Partition,
        alpha: int = 3,
        epsilon: float = 1.0,
        *,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        if partition.ranks != ranks:
            raise ValueError(f"The partition must have one part per rank, but got {partition.ranks} for {ranks} ranks.")
        self.alpha = check_alpha(alpha)
        self.epsilon = check_epsilon(epsilon)
        self.device = torch.device(device)
        self.nodes = torch.from_numpy(partition.nodes(rank)).to(self.device)
        rows = _rows(graph, partition, rank)
        start, stop = partition.bounds[rank], partition.bounds[rank + 1]
        outside = (rows.indices < start) | (rows.indices >= stop)
        halo = np.unique(rows.indices[outside]).astype(np.int64)
        self.exchange = Exchange(halo, partition.bounds, self.device, group)
        self._scale = torch.from_numpy(node_scales(rows.indptr, rows.data, self.alpha, self.epsilon)).to(self.device)
        self._stencils: dict[torch.dtype, Stencil] = {}
        self._pattern = self._local_pattern(rows, int(start), outside, halo)

    def __repr__(self) -> str:
        return f"RankOperators({self.num_nodes} rows, {self.exchange.num_halo} fetched, alpha={self.alpha})"

    @property
    def num_nodes(self) -> int:
        """Number of nodes this rank holds."""
        return self.nodes.numel()

    @property
    def halo_share(self) -> float:
        """Rows fetched from others per row held."""
        return self.exchange.num_halo / max(self.num_nodes, 1)

    def propagate(self, H: Tensor) -> Tensor:
        """This rank's part of every order applied to one signal: H [n, h] to [n, α, h]."""
        return propagation.expand(self.stencil(H.dtype), self.exchange(H))

    def propagate_each(self, H: Tensor) -> Tensor:
        """Each order applied to its own signal: H [n, α, h] to [n, α, h]."""
        return propagation.each(self.stencil(H.dtype), self.exchange(H))

    def stencil(self, dtype: torch.dtype = torch.float32) -> Stencil:
        """This rank's rows in the form of :mod:`sobgnn.propagation`: own nodes, then the halo."""
        key = torch.float64 if dtype == torch.float64 else torch.float32
        if key not in self._stencils:
            own = self._scale.to(key)
            both = torch.cat([own, self.exchange.fetch(own)])
            self._stencils[key] = Stencil(*self._pattern, own, both, 0.0)
        return self._stencils[key]

    def _local_pattern(
        self, rows: Any, start: int, outside: Any, halo: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """CSR of own rows over own and halo columns, and its transpose; self-loops are entries of weight ε."""
        n = self.num_nodes
        columns = np.where(outside, n + np.searchsorted(halo, rows.indices), rows.indices - start)
        local = sp.csr_array((rows.data, columns, rows.indptr), shape=(n, n + len(halo)))
        epsilon = clamp_epsilon(self.epsilon)
        if epsilon > 0:
            loops = (np.full(n, epsilon, np.float32), (np.arange(n), np.arange(n)))
            local = (local + sp.csr_array(loops, shape=local.shape)).tocsr()
        local.sort_indices()
        return (*csr_tensors(local, self.device), *csr_tensors(local.T.tocsr(), self.device))


def _rows(graph: Graph, partition: Partition, rank: int) -> Any:
    """A rank's rows of the adjacency; columns are positions in the partition's order."""
    position = np.empty(graph.num_nodes, dtype=np.int32 if graph.num_nodes < 2**31 else np.int64)
    position[partition.order] = np.arange(graph.num_nodes)
    indptr, indices, weight = graph.indptr.numpy(), graph.indices.numpy(), graph.weight.numpy()
    nodes = partition.nodes(rank)
    counts = indptr[nodes + 1] - indptr[nodes]
    ptr = np.concatenate([[0], np.cumsum(counts)])
    # Entry e of the rank's rows is at the same offset in its node's row of the whole graph.
    source = np.repeat(indptr[nodes] - ptr[:-1], counts) + np.arange(ptr[-1])
    rows = sp.csr_array((weight[source], position[indices[source]], ptr), shape=(len(nodes), graph.num_nodes))
    rows.sort_indices()
    return rows
