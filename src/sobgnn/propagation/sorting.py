"""Edges in any order to compressed rows, as a torch operator: checked, on any device, inside compiled graphs too."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# How far the weights of an edge's two directions may be apart: normalizing them in float32 rounds each a few times.
ROUNDING = 4 * torch.finfo(torch.float32).eps


class Sorted(NamedTuple):
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
) -> Sorted:
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
    sources = shape[1] if sources is None else sources
    return Sorted(*torch.ops.sobgnn.sort_edges(row, column, weight.detach(), *shape, symmetric, sources, loops))


@torch.library.custom_op("sobgnn::sort_edges", mutates_args=())
def _sort_edges(
    row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int, symmetric: bool, sources: int, loops: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    _check(row, column, weight, rows, sources)
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
            there, back = merged(there, first), merged(back, t_first)
        if not torch.equal(keys, t_keys):  # other numbers of edges of weight 0, or of one edge in its two directions
            kept, t_kept = there > 0, back > 0
            keys, t_keys, there, back = keys[kept], t_keys[t_kept], there[kept], back[t_kept]
        if not (torch.equal(keys, t_keys) and bool(((there - back).abs() <= ROUNDING * there).all())):
            raise ValueError(
                "A graph must be symmetric, but some edges differ between their two directions. Pass a layer or "
                'Graph.from_edges symmetrize="union" to keep the larger weight or "mutual" the smaller; or a layer '
                'normalize="row" for a graph that is meant to be directed.'
            )
    return order, _starts(row, rows), first, t_order, _starts(column, columns), t_first, own


@_sort_edges.register_fake
def _(
    row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int, symmetric: bool, sources: int, loops: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    entries = row.shape[0] + rows if loops else row.shape[0]
    order, first, t_order, t_first = (row.new_empty(entries) for _ in range(4))
    own = row.new_empty(rows, dtype=torch.bool)
    return order, row.new_empty(rows + 1), first, t_order, row.new_empty(columns + 1), t_first, own


def merged(weight: Tensor, first: Tensor) -> Tensor:
    """Weights of entries [E] added up at the first entry of their place; 0 at the others."""
    return torch.zeros_like(weight).index_add(0, first, weight)


def _first(keys: Tensor) -> Tensor:
    """The first of the equal keys that each of sorted keys belongs to."""
    places, again = torch.arange(keys.shape[0], device=keys.device), keys[1:] == keys[:-1]
    if bool(again.any()):
        places[1:].masked_fill_(again, 0)
        places = places.cummax(0).values
    return places


def _check(row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int) -> None:
    for name, index, size in (("targets", row, rows), ("sources", column, columns)):
        if index.numel() == 0:
            continue
        low, high = (int(value) for value in torch.aminmax(index))
        if low < 0 or high >= size:
            raise ValueError(
                f"edge_index must lie in [0, num_nodes), but got {name} from {low} to {high} for num_nodes={size}."
            )
    largest = torch.finfo(weight.dtype).max / 4  # beyond it the reciprocal is no normal number
    bad = torch.nonzero(~((weight >= 0) & (weight <= largest))).flatten()
    if bad.numel():
        raise ValueError(
            f"Edge weights must be finite and not negative, at most {largest:.3g}, but {bad.numel()} are not (first: "
            f"{float(weight[bad[0]])} at entry {int(bad[0])}). Drop those edges or rescale the weights."
        )


def _starts(index: Tensor, size: int) -> Tensor:
    starts = index.new_zeros(size + 1)
    starts[1:] = torch.bincount(index, minlength=size).cumsum(0)
    return starts
