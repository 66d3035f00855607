"""Edges in any order to compressed rows, as a torch operator: checked, on any device, inside compiled graphs too."""

from __future__ import annotations

import torch
from torch import Tensor

_SMALLEST = torch.finfo(torch.float32).tiny
# How far the weights of an edge's two directions may be apart: normalizing them in float32 rounds each a few times.
ROUNDING = 4 * torch.finfo(torch.float32).eps


def sort_edges(
    row: Tensor,
    column: Tensor,
    weight: Tensor,
    shape: tuple[int, int],
    *,
    symmetric: bool = False,
    edges: int | None = None,
    sources: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where each entry of the CSR [R, C] and of its transpose comes from, and where their rows start.

    All checks are inside the operator that sorts, since a compiled graph drops an operator whose result nobody reads.

    Args:
        row: int64 [E], in [0, R).
        column: int64 [E], in [0, C). No edge may be there twice.
        weight: [E], positive and finite.
        shape: R and C.
        symmetric: Whether every edge must be there in both directions, with the same weight up to rounding.
        edges: How many of the entries, from the first, are edges that were given; the others are self-loops that
            operators add. ``None``: all.
        sources: Columns that edges may come from; ``None``: all C, which are then the rows' own nodes, and self-loops
            among the edges are refused.

    Returns:
        ``order`` int64 [E], ``indptr`` int64 [R + 1], ``t_order`` int64 [E], ``t_indptr`` int64 [C + 1].
    """
    result: tuple[Tensor, Tensor, Tensor, Tensor] = torch.ops.sobgnn.sort_edges(
        row,
        column,
        weight.detach(),
        *shape,
        symmetric,
        row.shape[0] if edges is None else edges,
        shape[1] if sources is None else sources,
        sources is None,
    )
    return result


@torch.library.custom_op("sobgnn::sort_edges", mutates_args=())
def _sort_edges(
    row: Tensor,
    column: Tensor,
    weight: Tensor,
    rows: int,
    columns: int,
    symmetric: bool,
    edges: int,
    sources: int,
    one_set: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    _check(row[:edges], column[:edges], weight, rows, sources)
    if one_set:
        _check_loops(row[:edges], column[:edges])
    keys, order = torch.sort(row * columns + column)
    t_keys, t_order = torch.sort(column * rows + row)
    repeated = int((keys[1:] == keys[:-1]).sum())
    if repeated:
        raise ValueError(
            f"Each edge may be listed once per direction, but {repeated} are repeated. Add them up first, for "
            "example with torch_geometric.utils.coalesce."
        )
    if symmetric:
        there, back = weight[order], weight[t_order]
        if not (torch.equal(keys, t_keys) and bool(((there - back).abs() <= ROUNDING * there).all())):
            raise ValueError(
                "A graph must be symmetric, but some edges differ between their two directions. Pass a layer or "
                'Graph.from_edges symmetrize="union" to keep the larger weight or "mutual" the smaller; or a layer '
                'normalize="row" for a graph that is meant to be directed.'
            )
    return order, _starts(row, rows), t_order, _starts(column, columns)


@_sort_edges.register_fake
def _(
    row: Tensor, column: Tensor, weight: Tensor, rows: int, columns: int, *checks: object
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return torch.empty_like(row), row.new_empty(rows + 1), torch.empty_like(row), row.new_empty(columns + 1)


def _check_loops(row: Tensor, column: Tensor) -> None:
    loops = int((row == column).sum())
    if loops:
        raise ValueError(
            f"A graph has no self-loops, but got {loops}. Remove them: operators add their own through epsilon."
        )


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
    bad = torch.nonzero(~((weight >= _SMALLEST) & (weight <= largest))).flatten()
    if bad.numel():
        raise ValueError(
            f"Edge weights must be finite and at least {_SMALLEST:.3g}, at most {largest:.3g}, but {bad.numel()} are "
            f"not (first: {float(weight[bad[0]])} at entry {int(bad[0])}). Drop those edges or rescale the weights."
        )


def _starts(index: Tensor, size: int) -> Tensor:
    starts = index.new_zeros(size + 1)
    starts[1:] = torch.bincount(index, minlength=size).cumsum(0)
    return starts
