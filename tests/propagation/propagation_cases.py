"""Random CSRs, and the dense matrices that they stand for, from the definition."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from sobgnn.propagation import SobolevCSR, portable


def random_graph(nodes, degree, seed=0, *, low=-3.0, high=0.0, isolated=0, hub=False):
    """A symmetric CSR without self-loops, of weights 10^low .. 10^high; the last ``isolated`` nodes have none."""
    generator = np.random.default_rng(seed)
    linked = nodes - isolated
    count = nodes * degree // 2 if linked > 1 else 0
    i, j = generator.integers(0, max(linked, 1), (2, count))
    if hub and linked > 1:
        i = np.concatenate([i, np.zeros(linked - 1, int)])
        j = np.concatenate([j, np.arange(1, linked)])
    i, j = i[i != j], j[i != j]
    weight = 10 ** generator.uniform(low, high, i.size)
    graph = sp.coo_array((weight, (i, j)), shape=(nodes, nodes)).tocsr().astype(np.float32)
    graph = graph.maximum(graph.T).tocsr()
    graph.sort_indices()
    return graph


def scales(graph, alpha, epsilon, dtype=torch.float32):
    """[N, α + 1]: q of 12 bits and t_ρ = d_ρ^{-1/2}, which tests/operators compare to the definition."""
    indptr, weight = torch.from_numpy(graph.indptr).long(), torch.from_numpy(graph.data).double()
    return portable.scales(indptr, weight, alpha, epsilon, False).to(dtype)


def csr_of(graph, alpha, epsilon=1.0, dtype=torch.float32, index=torch.int32, device="cpu"):
    """The csr of a symmetric graph."""
    pattern = (
        torch.from_numpy(graph.indptr).to(device, torch.int64),
        torch.from_numpy(graph.indices).to(device, index),
        torch.from_numpy(graph.data).to(device, torch.float32),
    )
    scale = scales(graph, alpha, epsilon, dtype).to(device)
    return SobolevCSR(*pattern, *pattern, scale, scale, epsilon)


def rows_of(graph, keep, alpha, epsilon=1.0, dtype=torch.float32, index=torch.int32, device="cpu"):
    """The rectangular csr of the rows ``keep``, with self-loops as entries of weight ε."""
    scale = scales(graph, alpha, epsilon, dtype).to(device)
    looped = (graph + sp.diags_array(np.full(graph.shape[0], epsilon, np.float32))).tocsr()
    picked = looped[keep].tocsr().astype(np.float32)
    flipped = picked.T.tocsr()
    pattern = []
    for matrix in (picked, flipped):
        matrix.sort_indices()
        pattern += [
            torch.from_numpy(matrix.indptr).to(device, torch.int64),
            torch.from_numpy(matrix.indices).to(device, index),
            torch.from_numpy(matrix.data).to(device, torch.float32),
        ]
    return SobolevCSR(*pattern, scale[torch.as_tensor(keep)], scale, 0.0)


def dense(graph, alpha, epsilon):
    """[α, N, N] float64: D_ρ^{-1/2} (A + εI)^(ρ) D_ρ^{-1/2} by the definition, each row's powers taken in log space."""
    a = graph.toarray().astype(np.float64) + epsilon * np.eye(graph.shape[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        log = np.log(a)
        result = []
        for order in range(1, alpha + 1):
            peak = log.max(1)
            degree = order * peak + np.log(np.exp(order * (log - peak[:, None])).sum(1))
            entry = np.exp(order * log - 0.5 * (degree[:, None] + degree[None, :]))
            result.append(np.where(a > 0, entry, 0.0))
    return torch.from_numpy(np.stack(result)) if alpha else torch.zeros(0, *a.shape)
