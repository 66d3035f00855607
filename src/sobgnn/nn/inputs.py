"""A graph in any of the forms that PyG's users have it, to the operators of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sobgnn.graphs.graph import Graph
from sobgnn.operators import EdgeOperators, Normalize, SobolevOperators, SobolevRows
from sobgnn.operators.base import warn_unweighted

Size = tuple[int | None, int | None]


@dataclass(frozen=True)
class OperatorSpec:
    """What a layer asks of its operators."""

    alpha: int
    epsilon: float | Tensor
    normalize: Normalize = "sym"
    symmetrize: str | None = None
    directed: bool = False


def check_size(given: Any, x: Tensor | tuple[Tensor, Tensor], size: Any = None) -> None:
    """Raise unless x has as many sources and targets as ``size`` and PyG's EdgeIndex say; ``None`` in them is any."""
    nodes = tuple(part.shape[0] for part in (x if isinstance(x, tuple) else (x, x)))
    known = {"size": size}
    if not torch.compiler.is_compiling() and isinstance(given, Tensor) and hasattr(given, "sparse_size"):
        known["sparse_size of edge_index"] = given.sparse_size()
    for name, value in known.items():
        if value is None:
            continue
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise ValueError(f"{name} must be a pair of sources and targets, but got {value!r}.")
        if any(number not in (None, own) for number, own in zip(value, nodes, strict=True)):
            raise ValueError(
                f"{name} must be the numbers of sources and targets in x, {nodes}, but got {tuple(value)}."
            )


def number_of_targets(given: Any, size: Any) -> int:
    """How many targets there are where they have no rows, by ``size``, or by what the edges say of it."""
    found = size[1] if isinstance(size, (tuple, list)) and len(size) == 2 else None
    if found is None and isinstance(given, EdgeOperators):
        found = given.num_nodes
    if found is None and isinstance(given, Tensor):
        found = (
            given.shape[0] if given.layout != torch.strided else getattr(given, "sparse_size", lambda: (0, None))()[1]
        )
    if found is None:
        raise ValueError("x of sources alone needs the number of targets. Pass size=(None, number of targets).")
    return int(found)


def as_operators(given: Any, edge_weight: Tensor | None, x: Tensor | tuple[Tensor, Tensor], spec: OperatorSpec) -> Any:
    """The operators given, checked, or new ones from a graph.

    Args:
        given: Operators; a :class:`~sobgnn.Graph`; PyG's ``edge_index`` or EdgeIndex; or a torch sparse adjacency
            matrix in which, as in PyG, the entry [i, j] is the edge from j to i.
        edge_weight: Weights of ``edge_index``.
        x: What the layer is applied to, or (sources, targets).
        spec: What the layer asks of its operators.
    """
    own = isinstance(spec.epsilon, Tensor) or spec.normalize != "sym"
    if isinstance(given, SobolevOperators) and own and edge_weight is None:
        _check_own(given, spec)
        given = given.graph
    if isinstance(given, Graph):
        if edge_weight is not None:
            raise ValueError("edge_weight goes with edge_index; a graph holds its own weights. Leave it out.")
        if not own:
            return SobolevOperators(given, spec.alpha, float(spec.epsilon))
        for part in x if isinstance(x, tuple) else (x,):
            if part.shape[0] != given.num_nodes:
                raise ValueError(f"x must have one row per node, but got {part.shape[0]} for {given.num_nodes} nodes.")
        given, edge_weight = given.edges()
        given = given.flip(0)  # a graph's entry [i, j] is the edge from j to i
    if isinstance(given, Tensor):
        if given.layout != torch.strided:
            sources, targets = x if isinstance(x, tuple) else (x, x)
            if tuple(given.shape) != (targets.shape[0], sources.shape[0]):
                raise ValueError(
                    f"A sparse matrix must have a row for each target and a column for each source, "
                    f"{[targets.shape[0], sources.shape[0]]}, but got {list(given.shape)}."
                )
        edge_index, edge_weight = as_edges(given, edge_weight)
        return _from_edges(edge_index, edge_weight, x, spec)
    if not hasattr(given, "propagate_each"):
        raise TypeError(
            f"edge_index must be a tensor, a sobgnn.Graph or operators, but got {type(given).__name__}. Convert it "
            "with torch.as_tensor, or with Graph.from_scipy."
        )
    if edge_weight is not None:
        raise ValueError("edge_weight goes with edge_index; operators hold their own weights. Leave it out.")
    _check_alpha(given, spec)
    if isinstance(spec.epsilon, Tensor) or (own and not isinstance(given, EdgeOperators)):
        name = "SobolevRows" if isinstance(given, SobolevRows) else type(given).__name__
        raise ValueError(f'A layer that learns epsilon or has normalize="row" needs the graph, but got {name}.')
    if getattr(given, "normalize", "sym") != spec.normalize:
        raise ValueError(
            f"The operators must have this layer's normalize={spec.normalize!r}, but have {given.normalize!r}."
        )
    return given


def _check_alpha(given: Any, spec: OperatorSpec) -> None:
    if given.alpha != spec.alpha:
        raise ValueError(
            f"The operators must have this layer's alpha={spec.alpha}, but have alpha={given.alpha}. Build them with "
            f"SobolevOperators(graph, alpha={spec.alpha})."
        )


def _check_own(given: SobolevOperators, spec: OperatorSpec) -> None:
    """Raise unless operators are those of this layer, which takes their graph and makes operators of its own form."""
    _check_alpha(given, spec)
    if not isinstance(spec.epsilon, Tensor) and given.epsilon != spec.epsilon:
        raise ValueError(
            f'A layer of normalize="row" makes operators of its own epsilon={spec.epsilon} of the graph, but got '
            f"operators of epsilon={given.epsilon}. Pass their `graph`."
        )


def directed(given: Any, flow: str, *, two_sets: bool) -> Any:
    """``edge_index`` from sources to targets, whichever of its rows those are by PyG's ``flow``."""
    if flow == "source_to_target":
        return given
    if flow != "target_to_source":
        raise ValueError(f'`flow` must be "source_to_target" or "target_to_source", but got {flow!r}.')
    if not isinstance(given, Tensor):
        return given  # operators and graphs say themselves which way their edges go
    if two_sets or given.layout != torch.strided:
        raise ValueError('`flow="target_to_source"` needs edge_index of one set of nodes. Pass the edges reversed.')
    return as_edges(given, None)[0].flip(0)


def as_edges(given: Tensor, edge_weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """``edge_index`` [2, E] as a plain tensor, and its weights."""
    if given.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        if edge_weight is not None:
            raise ValueError("edge_weight goes with edge_index; a sparse matrix holds its own weights. Leave it out.")
        if given.layout != torch.sparse_coo:
            given = given.to_sparse_coo()  # type: ignore[no-untyped-call]
        if not given.is_coalesced():
            given = given.coalesce()
        return given.indices().flip(0), given.values()
    if not torch.compiler.is_compiling() and hasattr(given, "as_tensor"):  # PyG's EdgeIndex
        return given.as_tensor(), edge_weight
    return given, edge_weight


def _from_edges(
    edge_index: Tensor, edge_weight: Tensor | None, x: Tensor | tuple[Tensor, Tensor], spec: OperatorSpec
) -> EdgeOperators | SobolevOperators:
    nodes: int | tuple[int, int]
    if isinstance(x, tuple):
        dtype, nodes = x[0].dtype, (x[0].shape[0], x[1].shape[0])
    else:
        dtype, nodes = x.dtype, x.shape[0]
    if spec.alpha > 1 and _unweighted(edge_weight):
        warn_unweighted(spec.epsilon)
    return EdgeOperators(
        edge_index,
        edge_weight,
        nodes,
        spec.alpha,
        spec.epsilon,
        normalize=spec.normalize,
        symmetrize=spec.symmetrize,
        directed=spec.directed,
        dtype=dtype,
    )


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
