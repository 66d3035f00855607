"""Dense definitions, for tests only: what the sparse code must agree with, written as the paper writes it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st
from scipy.special import logsumexp

from sobgnn.graphs.graph import Graph

Array = npt.NDArray[np.float64]


def graph_of(dense: npt.ArrayLike) -> Graph:
    """The graph with this dense adjacency matrix."""
    matrix = np.asarray(dense, dtype=np.float32)
    rows, columns = np.nonzero(matrix)
    return Graph.from_edges(np.stack([rows, columns]), matrix[rows, columns], len(matrix))


def adjacency(graph: Graph) -> Array:
    return np.asarray(graph.to_scipy().toarray(), dtype=np.float64)


def laplacian(graph: Graph) -> Array:
    A = adjacency(graph)
    return np.diag(A.sum(axis=1)) - A


def normalized_adjacency(graph: Graph) -> Array:
    A = adjacency(graph)
    degree = A.sum(axis=1)
    inverse = np.array([d**-0.5 if d > 0 else 0.0 for d in degree])
    return inverse[:, None] * A * inverse[None, :]


def normalized_laplacian(graph: Graph) -> Array:
    return np.diag((adjacency(graph).sum(axis=1) > 0).astype(float)) - normalized_adjacency(graph)


def sobolev_operator(graph: Graph, rho: int, epsilon: float) -> Array:
    """D^{-1/2} (A + εI)^(ρ) D^{-1/2} with D the degrees of (A + εI)^(ρ), by logarithms: no power is ever formed."""
    shifted = adjacency(graph) + epsilon * np.eye(graph.num_nodes)
    with np.errstate(divide="ignore"):
        power = rho * np.log(shifted)
    with np.errstate(divide="ignore", under="ignore", invalid="ignore"):
        half_degree = logsumexp(power, axis=1) / 2
        entries = np.exp(power - half_degree[:, None] - half_degree[None, :])
    return np.where(shifted > 0, entries, 0.0)


def random_graph(
    seed: int, nodes: int, density: float = 0.4, exponents: tuple[float, float] = (-2.0, 0.0), components: int = 1
) -> Graph:
    """Weights 10^u with u uniform between the two exponents; no edge joins nodes of different components."""
    rng = np.random.default_rng(seed)
    weight = 10.0 ** rng.uniform(*exponents, size=(nodes, nodes))
    member = rng.integers(components, size=nodes)
    kept = (rng.random((nodes, nodes)) < density) & (member[:, None] == member[None, :])
    upper = np.triu(np.where(kept, weight, 0.0), 1)
    return graph_of(upper + upper.T)


@st.composite
def graphs(draw: Any, most: int = 12) -> Graph:
    """Graphs of 1 to ``most`` nodes: empty to complete, isolated nodes, components, weights from 1e-30 to 1e6."""
    exponents = draw(st.sampled_from([(-30.0, 6.0), (-30.0, -29.0), (5.0, 6.0), (-3.0, 0.0), (0.0, 0.0)]))
    return random_graph(
        seed=draw(st.integers(0, 10**6)),
        nodes=draw(st.integers(1, most)),
        density=draw(st.sampled_from([0.0, 0.15, 0.4, 1.0])),
        exponents=exponents,
        components=draw(st.integers(1, 3)),
    )


epsilons = st.one_of(st.sampled_from([0.0, 1e-30, 1e-3, 0.1, 1.0, 10.0]), st.floats(1e-6, 10.0))
