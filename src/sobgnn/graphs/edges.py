"""Edges checked, sorted into compressed rows and made symmetric: lists on any device, and matrices of scipy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# The weights a graph holds are float32's normal numbers whose reciprocal is one too: past them arithmetic is inexact.
SMALLEST_WEIGHT = float(np.finfo(np.float32).tiny)
LARGEST_WEIGHT = float(np.finfo(np.float32).max) / 4
# How far the weights of an edge's two directions may be apart: normalizing them in float32 rounds each a few times.
ROUNDING = 4 * torch.finfo(torch.float32).eps
DIFFERENT = "A graph must be symmetric, but some edges differ between their two directions."


def check_weights(
    weight: npt.NDArray[Any] | Tensor, least: float = SMALLEST_WEIGHT, largest: float = LARGEST_WEIGHT
) -> None:
    """Raise unless all weights [E] are finite and in a range; by default that of a graph's weights."""
    if not isinstance(weight, Tensor) and weight.dtype.kind not in "fiub":
        raise TypeError(f"Edge weights must be real numbers, but got {weight.dtype}.")
    good = (weight >= least) & (weight <= largest)
    if not bool(good.all()):
        first = good.tolist().index(False)
        raise ValueError(
            f"Edge weights must be finite and {f'at least {least:.3g}' if least else 'not negative'}, at most "
            f"{largest:.3g}, but {len(good) - int(good.sum())} are not (first: {weight[first]} at entry {first}). Drop "
            "those edges or rescale the weights."
        )


def float32_weights(weight: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Weights [E] as a graph holds them; raises where they are not in its range, or leave it by rounding."""
    check_weights(weight)
    if weight.dtype != np.float32:
        with np.errstate(over="ignore"):
            weight = weight.astype(np.float32)
        check_weights(weight)
    return weight


def check_how(how: str | None) -> None:
    """Raise unless ``how`` is a way to make edges symmetric, or ``None``."""
    if how not in (None, "union", "mutual"):
        raise ValueError(f'`symmetrize` must be "union", "mutual" or None, but got {how!r}.')


def check_sizes(edge_index: Any, edge_weight: Any) -> None:
    """Raise unless ``edge_index`` [2, E] holds integers and ``edge_weight`` has a number for each edge, or is None."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise ValueError(f"edge_index must have shape [2, E], but got {list(edge_index.shape)}.")
    kind = str(edge_index.dtype)
    if 0 not in edge_index.shape and "int" not in kind:
        raise TypeError(f"edge_index must hold integers, but got {kind}. Cast it to int64.")
    entries = edge_index.shape[1] if edge_weight is None else edge_weight.reshape(-1).shape[0]
    if entries != edge_index.shape[1]:
        raise ValueError(
            f"edge_weight must have one entry per edge, but got {entries} for {edge_index.shape[1]} edges."
        )


def check_devices(edge_index: Any, edge_weight: Any) -> None:
    """Raise if ``edge_index`` and ``edge_weight`` are tensors on two devices."""
    places = [part.device for part in (edge_index, edge_weight) if isinstance(part, Tensor)]
    if len(places) == 2 and places[0] != places[1]:
        raise ValueError(
            f"edge_index and edge_weight must be on one device, but got {places[0]} and {places[1]}. Move one with "
            ".to()."
        )


def sum_repeated(edge_index: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Edges of a weight other than 0, each once, with the sum of its weights."""
    kept = weight.detach() != 0
    found, place = torch.unique(edge_index[:, kept], dim=1, return_inverse=True)
    return found, weight.new_zeros(found.shape[1]).index_add(0, place, weight[kept])


def symmetrize_edges(edge_index: Tensor, weight: Tensor, how: str) -> tuple[Tensor, Tensor]:
    """Every edge in both directions with the larger (``"union"``) or the smaller (``"mutual"``) of its weights.

    An absent direction counts as 0, so ``"mutual"`` keeps the edges that are there in both. Where both directions are
    equal, each gets half of the gradient.

    Args:
        edge_index: int64 [2, E], not negative, each edge at most once per direction.
        weight: [E], positive.
        how: ``"union"`` or ``"mutual"``.
    """
    size = int(edge_index.max()) + 1 if edge_index.numel() else 1
    keys, place = torch.unique(
        torch.cat([edge_index[0] * size + edge_index[1], edge_index[1] * size + edge_index[0]]), return_inverse=True
    )
    halves = torch.zeros(2, keys.numel(), dtype=weight.dtype, device=weight.device)
    for direction, entries in enumerate(place.chunk(2)):
        halves = halves.index_put((torch.full_like(entries, direction), entries), weight)
    joined = halves.amax(dim=0) if how == "union" else halves.amin(dim=0)
    kept = joined.detach() > 0
    return torch.stack([keys // size, keys % size])[:, kept], joined[kept]


class SortedEdges(NamedTuple):
    """Where the entries of a CSR [R, C] and of its transpose come from.

    Attributes:
        order: int64 [E], of each entry its edge; numbers past the given edges are self-loops.
        indptr: int64 [R + 1].
        first: int64 [E], of each entry the first one at its place, which the weights of edges listed twice add up at.
        t_order, t_indptr, t_first: The same of the transpose; ``t_indptr`` [C + 1].
        own: bool [R], the nodes that have a self-loop among the given edges.
    """

    order: Tensor
    indptr: Tensor
    first: Tensor
    t_order: Tensor
    t_indptr: Tensor
    t_first: Tensor
    own: Tensor


def sort_edges(
    row: Tensor,
    column: Tensor,
    weight: Tensor,
    shape: tuple[int, int],
    *,
    symmetric: bool = False,
    sources: int | None = None,
    loops: bool = False,
) -> SortedEdges:
    """Sort edges by row and by column.

    All checks are inside the operator that sorts, since a compiled graph drops an operator whose result nobody reads.

    Args:
        row: int64 [E], in [0, R).
        column: int64 [E], in [0, C).
        weight: [E], finite and not negative.
        shape: R and C.
        symmetric: Whether every edge must be there in both directions, with the same weight up to rounding.
        sources: Columns that edges may come from, where the others are the rows' own nodes; ``None``: all C are these.
        loops: Add a self-loop for each row, numbered after the edges.
    """
    run = torch.ops.sobgnn.sort_edges if torch.compiler.is_compiling() else _sort_edges
    return SortedEdges(
        *run(row, column, weight.detach(), *shape, symmetric, shape[1] if sources is None else sources, loops)
    )


def _sort_edges(
    row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int, symmetric: bool, sources: int, loops: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    check_ends("targets", row, rows)
    check_ends("sources", column, sources)
    check_weights(weight, 0.0, torch.finfo(weight.dtype).max / 4)  # beyond it the reciprocal is no normal number
    own = torch.zeros(rows, dtype=torch.bool, device=row.device)
    if sources == columns:
        own[row[row == column]] = True
    if loops:
        nodes = torch.arange(rows, device=row.device)
        row, column = torch.cat([row, nodes]), torch.cat([column, columns - rows + nodes])
        weight = torch.cat([weight, weight.new_ones(rows)])
    keys, order = torch.sort(row * columns + column)
    t_keys, t_order = torch.sort(column * rows + row)
    first, t_first = _first(keys), _first(t_keys)
    if symmetric:
        there, back = weight[order], weight[t_order]
        if bool((keys[1:] == keys[:-1]).any()):
            there, back = sum_at(there, first), sum_at(back, t_first)
        if not torch.equal(keys, t_keys):  # other numbers of edges of weight 0, or of one edge in its two directions
            kept, t_kept = there > 0, back > 0
            keys, t_keys, there, back = keys[kept], t_keys[t_kept], there[kept], back[t_kept]
        if not (torch.equal(keys, t_keys) and bool(((there - back).abs() <= ROUNDING * there).all())):
            raise ValueError(
                f'{DIFFERENT} Pass a layer or Graph.from_edges symmetrize="union" to keep the larger weight or '
                '"mutual" the smaller; or a layer normalize="row" for a graph that is meant to be directed.'
            )
    return order, _starts(row, rows), first, t_order, _starts(column, columns), t_first, own


_operator = torch.library.custom_op("sobgnn::sort_edges", _sort_edges, mutates_args=())


@_operator.register_fake
def _(
    row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int, symmetric: bool, sources: int, loops: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    entries = row.shape[0] + rows if loops else row.shape[0]
    order, first, t_order, t_first = (row.new_empty(entries) for _ in range(4))
    own = row.new_empty(rows, dtype=torch.bool)
    return order, row.new_empty(rows + 1), first, t_order, row.new_empty(columns + 1), t_first, own


def check_ends(name: str, index: Tensor, size: int) -> None:
    """Raise unless nodes lie in [0, size)."""
    low, high = (int(value) for value in torch.aminmax(index)) if index.numel() else (0, -1)
    if low < 0 or high >= size:
        raise ValueError(
            f"edge_index must lie in [0, num_nodes), but got {name} from {low} to {high} for num_nodes={size}."
        )


def sum_at(weight: Tensor, first: Tensor) -> Tensor:
    """Weights of entries [E] added up at the first entry of their place; 0 at the others."""
    return torch.zeros_like(weight).index_add(0, first, weight)


def _first(keys: Tensor) -> Tensor:
    """The first of the equal keys that each of sorted keys belongs to."""
    places, again = torch.arange(keys.shape[0], device=keys.device), keys[1:] == keys[:-1]
    if bool(again.any()):
        places[1:].masked_fill_(again, 0)
        places = places.cummax(0).values
    return places


def _starts(index: Tensor, size: int) -> Tensor:
    starts = index.new_zeros(size + 1)
    starts[1:] = torch.bincount(index, minlength=size).cumsum(0)
    return starts


def symmetrize_csr(csr: Any, how: str | None) -> Any:
    """The union (entrywise maximum) or mutual (minimum) of a non-negative CSR matrix and its transpose.

    ``None``: the matrix itself, which must be symmetric; of two weights that only rounding tells apart the larger.
    """
    check_how(how)
    other = csr.T.tocsr()
    if how == "union":
        return csr.maximum(other)
    if how == "mutual":
        # Absent entries count as 0, and scipy stores none: the minimum keeps the edges present in both directions.
        return csr.minimum(other)
    if np.array_equal(csr.indptr, other.indptr) and np.array_equal(csr.indices, other.indices):
        if np.array_equal(csr.data, other.data):
            return csr
        if np.all(np.abs(csr.data - other.data) <= ROUNDING * csr.data):
            return csr.maximum(other)
    raise ValueError(f'{DIFFERENT} Pass symmetrize="union" to keep the larger weight or "mutual" the smaller.')


def csr_tensors(csr: Any) -> tuple[Tensor, Tensor, Tensor]:
    """A graph's tensors from a CSR matrix known to be canonical, symmetric and positive; shares its weights."""
    indices = csr.indices
    if indices.dtype == np.int64 and csr.shape[0] < 2**31:
        indices = indices.astype(np.int32)
    return torch.from_numpy(csr.indptr.astype(np.int64)), torch.from_numpy(indices), torch.from_numpy(csr.data)
