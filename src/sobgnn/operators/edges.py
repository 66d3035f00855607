"""Operators from a graph in any form that PyG's users have: differentiable in the weights, directed or not."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from sobgnn import propagation
from sobgnn.graphs.edges import (
    check_devices,
    check_ends,
    check_sizes,
    check_weights,
    sort_edges,
    sum_at,
    sum_repeated,
    symmetrize_edges,
)
from sobgnn.graphs.graph import Graph
from sobgnn.operators.sobolev import (
    OperatorBase,
    SobolevOperators,
    SobolevRows,
    clamp_epsilon,
    real_type,
    warn_unweighted,
)
from sobgnn.propagation import SobolevCSR

Normalize = Literal["sym", "row"]
Nodes = int | tuple[int, int]


class EdgeOperators(OperatorBase):
    r"""The normalized sparse Sobolev terms of PyG's ``edge_index``, as a function of its weights and of ε.

    .. math::
        \hat{A}_\rho = D_\rho^{-1/2} (A + \epsilon I)^{(\rho)} D_\rho^{-1/2} \quad (\texttt{"sym"}), \qquad
        \hat{A}_\rho = D_\rho^{-1} (A + \epsilon I)^{(\rho)} \quad (\texttt{"row"}),

    with :math:`A[i, j]` the weight of the edge from j to i. The first are those of :class:`~sobgnn.SobolevOperators`
    and need a symmetric graph. The second are averages over the edges that point to a node, for directed graphs
    and for edges between two sets of nodes; there inputs are the sources followed by the targets, whose self-loops
    have the weight ε.

    Args:
        edge_index: int64 [2, E], from ``edge_index[0]`` to ``edge_index[1]``, in any order. The weights of an edge
            listed twice are added up. A self-loop keeps its weight; the other nodes' have the weight ε.
        edge_weight: [E], finite and not negative; ``None``: all 1. Gradients go through it. An edge of weight 0 is
            none, and has a gradient of 0.
        num_nodes: Number of nodes, or of sources and of targets.
        alpha: Number of orders.
        epsilon: Weight of self-loops; a tensor of one number where it is learned.
        normalize: ``"sym"`` or ``"row"``.
        symmetrize: ``"union"`` or ``"mutual"``: make the graph symmetric first. Not inside a compiled graph.
        directed: Take ``"sym"`` of a graph that is not symmetric, with the degrees of the edges that point to a node.
        dtype: float32, or float64 for float64 signals.
    """

    def __init__(
        self,
        edge_index: Tensor,
        edge_weight: Tensor | None,
        num_nodes: Nodes,
        alpha: int,
        epsilon: float | Tensor,
        *,
        normalize: Normalize = "sym",
        symmetrize: str | None = None,
        directed: bool = False,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if edge_weight is not None and not isinstance(edge_weight, Tensor):
            raise TypeError(f"edge_weight must be a tensor, but got {type(edge_weight).__name__}.")
        check_sizes(edge_index, edge_weight)
        check_devices(edge_index, edge_weight)
        if alpha > 1 and _unweighted(edge_weight):
            warn_unweighted(epsilon)
        self.alpha, self.normalize, self.dtype = alpha, normalize, real_type(dtype)
        (column, row), device = edge_index.long(), edge_index.device
        if edge_weight is None:
            edge_weight = torch.ones(edge_index.shape[1], dtype=self.dtype, device=device)
        weight = edge_weight.reshape(-1).to(self.dtype)
        two_sets = isinstance(num_nodes, tuple)
        sources, targets = num_nodes if isinstance(num_nodes, tuple) else (0, num_nodes)
        if two_sets and symmetrize is not None:
            raise ValueError("`symmetrize` needs one set of nodes: edges between two sets have no other direction.")
        if two_sets and normalize != "row":
            raise ValueError('Edges between two sets of nodes need normalize="row": they have no symmetric form.')
        if symmetrize is not None:
            check_ends("nodes", torch.cat([column, row]), targets)
            check_weights(weight, 0.0)
            (column, row), weight = symmetrize_edges(*sum_repeated(torch.stack([column, row]), weight), symmetrize)
        self.num_nodes, self.num_inputs = targets, sources + targets
        plain = 0.0 if isinstance(epsilon, Tensor) else clamp_epsilon(epsilon)
        # Self-loops are entries where they differ: between two sets of nodes, learned, or some given among the edges
        # (in a compiled graph, which must not depend on numbers, always).
        loops = isinstance(epsilon, Tensor)
        if plain > 0:
            loops = two_sets or torch.compiler.is_compiling() or bool((row == column).any())
        symmetric = normalize == "sym" and not directed
        size = (self.num_nodes, self.num_inputs)
        at = sort_edges(
            row, column, weight, size, symmetric=symmetric, sources=sources if two_sets else None, loops=loops
        )
        if loops:
            loop = epsilon.to(weight) if isinstance(epsilon, Tensor) else weight.new_full((), plain)
            nodes = torch.arange(targets, device=device)
            row, column = torch.cat([row, nodes]), torch.cat([column, sources + nodes])
            weight = torch.cat([weight, torch.where(at.own, 0.0, loop)])
        # A size that is a symbol cannot choose a type.
        kind = torch.int64 if torch.compiler.is_compiling() or self.num_inputs >= 2**31 else torch.int32
        pattern = (at.indptr, column[at.order].to(kind), sum_at(weight[at.order], at.first))
        # The transpose serves the features' gradient, which is a constant to the weights.
        if symmetric:
            back = (at.indptr, pattern[1], pattern[2].detach())
        else:
            back = (at.t_indptr, row[at.t_order].to(kind), sum_at(weight.detach()[at.t_order], at.t_first))
        by_rows = normalize == "row"
        scale = propagation.scales(at.indptr, pattern[2], alpha, 0.0 if loops else plain, by_rows=by_rows)
        inputs = scale.new_ones((self.num_inputs, alpha + 1)) if by_rows else scale
        self._csr = SobolevCSR(*pattern, *back, scale, inputs, 0.0 if loops else plain)

    def __repr__(self) -> str:
        return (
            f"EdgeOperators({self.num_inputs} to {self.num_nodes} nodes, {self._csr.indices.numel()} entries, "
            f"alpha={self.alpha}, normalize={self.normalize!r})"
        )

    def csr(self, dtype: torch.dtype = torch.float32) -> SobolevCSR:
        """The operators as :mod:`sobgnn.propagation` takes them."""
        if real_type(dtype) != self.dtype:
            raise TypeError(f"These operators are for signals of {self.dtype}, but got {dtype}. Build them again.")
        return self._csr


def _unweighted(edge_weight: Tensor | None) -> bool:
    """Whether all weights are known to be 1.

    They are read on the CPU alone, and past the first only where that is 1: reading them would stall a GPU.
    """
    if torch.compiler.is_compiling():
        return False
    if edge_weight is None:
        return True
    readable = type(edge_weight) in (Tensor, torch.nn.Parameter) and edge_weight.device.type == "cpu"
    if not readable or edge_weight.numel() == 0:
        return False
    weight = edge_weight.detach().reshape(-1)
    try:
        return bool(weight[0] == 1) and bool((weight == 1).all())
    except RuntimeError:  # mapped over by vmap: there is no one weight to read
        return False


def as_operators(
    given: Any,
    edge_weight: Tensor | None,
    nodes: Nodes,
    dtype: torch.dtype,
    *,
    alpha: int,
    epsilon: float | Tensor,
    normalize: Normalize = "sym",
    **options: Any,
) -> Any:
    """The operators given, checked, or new ones from a graph.

    Args:
        given: Operators; a :class:`~sobgnn.Graph`; or what :func:`as_edges` takes.
        edge_weight: Weights of ``edge_index``.
        nodes: Number of nodes in x, or of sources and of targets.
        dtype: Type of x.
        alpha, epsilon, normalize: What the layer asks of its operators.
        **options: Of :class:`EdgeOperators`.
    """
    learned = isinstance(epsilon, Tensor)
    own = learned or normalize != "sym"  # what the layer makes of the graph itself, even of other operators'
    name = type(given).__name__
    if not isinstance(given, Tensor) and edge_weight is not None:
        raise ValueError(f"edge_weight goes with edge_index; a {name} holds its own weights. Leave it out.")
    if isinstance(given, OperatorBase) or hasattr(given, "propagate_each"):
        if given.alpha != alpha:
            raise ValueError(
                f"The operators must have this layer's alpha={alpha}, but have alpha={given.alpha}. Build them with "
                f"SobolevOperators(graph, alpha={alpha})."
            )
        if not (own and isinstance(given, SobolevOperators)):
            if learned or (own and isinstance(given, SobolevRows)):
                raise ValueError(f'A layer that learns epsilon or has normalize="row" needs the graph, but got {name}.')
            if getattr(given, "normalize", "sym") != normalize:
                raise ValueError(
                    f"The operators must have this layer's normalize={normalize!r}, but have {given.normalize!r}."
                )
            return given
        if not learned and given.epsilon != epsilon:
            raise ValueError(
                f'A layer of normalize="row" makes operators of its own epsilon={epsilon} of the graph, but got '
                f"operators of epsilon={given.epsilon}. Pass their `graph`."
            )
        given = given.graph
    if isinstance(given, Graph):
        if not own:
            return SobolevOperators(given, alpha, float(epsilon))
        for count in nodes if isinstance(nodes, tuple) else (nodes,):
            if count != given.num_nodes:
                raise ValueError(f"x must have one row per node, but got {count} for {given.num_nodes} nodes.")
        given, edge_weight = given.edges()
        given = given.flip(0)  # a graph's entry [i, j] is the edge from j to i
    if not isinstance(given, Tensor):
        raise TypeError(
            f"edge_index must be a tensor, a sobgnn.Graph or operators, but got {name}. Convert it with "
            "torch.as_tensor, or with Graph.from_scipy."
        )
    edges = as_edges(given, edge_weight, nodes)
    return EdgeOperators(*edges, nodes, alpha, epsilon, normalize=normalize, dtype=dtype, **options)


def as_edges(
    given: Tensor, edge_weight: Tensor | None, nodes: Nodes, flow: str = "source_to_target"
) -> tuple[Tensor, Tensor | None]:
    """``edge_index`` [2, E], from sources to targets, as a plain tensor, and its weights.

    Args:
        given: PyG's ``edge_index`` or EdgeIndex, or a torch sparse adjacency matrix in which, as in PyG, the entry
            [i, j] is the edge from j to i.
        edge_weight: Weights of ``edge_index``.
        nodes: Number of nodes in x, or of sources and of targets.
        flow: PyG's: ``"target_to_source"`` for edges listed the other way round.
    """
    two_sets = isinstance(nodes, tuple)
    sources, targets = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    sparse = given.layout != torch.strided
    if flow != "source_to_target" and (two_sets or sparse):
        raise ValueError('`flow="target_to_source"` needs edge_index of one set of nodes. Pass the edges reversed.')
    if sparse:
        if edge_weight is not None:
            raise ValueError("edge_weight goes with edge_index; a sparse matrix holds its own weights. Leave it out.")
        if tuple(given.shape) != (targets, sources):
            raise ValueError(
                f"A sparse matrix must have a row for each target and a column for each source, {[targets, sources]}, "
                f"but got {list(given.shape)}."
            )
        if given.layout != torch.sparse_coo:
            given = given.to_sparse_coo()  # type: ignore[no-untyped-call]
        if not given.is_coalesced():
            given = given.coalesce()
        return given.indices().flip(0), given.values()
    if not torch.compiler.is_compiling() and hasattr(given, "as_tensor"):  # PyG's EdgeIndex
        check_size("sparse_size of edge_index", given.sparse_size(), nodes)  # type: ignore[attr-defined]
        given = given.as_tensor()
    return given if flow == "source_to_target" else given.flip(0), edge_weight


def check_size(name: str, size: Any, nodes: Nodes) -> None:
    """Raise unless the numbers of sources and of targets are those in x; ``None`` among them is any."""
    known = nodes if isinstance(nodes, tuple) else (nodes, nodes)
    if not isinstance(size, (tuple, list)) or len(size) != 2:
        raise ValueError(f"{name} must be a pair of sources and targets, but got {size!r}.")
    if any(number not in (None, own) for number, own in zip(size, known, strict=True)):
        raise ValueError(f"{name} must be the numbers of sources and targets in x, {known}, but got {tuple(size)}.")


def number_of_targets(given: Any, size: Any) -> int:
    """How many targets there are where they have no rows, by ``size``, or by what the edges say of it."""
    found = size[1] if isinstance(size, (tuple, list)) and len(size) == 2 else None
    if found is None and isinstance(given, EdgeOperators):
        found = given.num_nodes
    if found is None and isinstance(given, Tensor):
        dense = given.layout == torch.strided
        found = getattr(given, "sparse_size", lambda: (0, None))()[1] if dense else given.shape[0]
    if found is None:
        raise ValueError("x of sources alone needs the number of targets. Pass size=(None, number of targets).")
    return int(found)
