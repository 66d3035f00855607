"""Blocks of features: one per column, each scaled to its weight; conversion to plain values and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.tables.categories import CategoryColumn, SetColumn
from sobgnn.tables.columns import Arrays, Column, check_finite, is_text, text_values
from sobgnn.tables.dates import DateColumn
from sobgnn.tables.kinds import Choice
from sobgnn.tables.numbers import NumberColumn, as_numbers
from sobgnn.tables.pictures import PictureColumn
from sobgnn.tables.text import ModelColumn, TextColumn
from sobgnn.tables.vectors import VectorColumn

if TYPE_CHECKING:
    import polars as pl

_KINDS: dict[str, Any] = {
    kind.kind: kind
    for kind in (
        NumberColumn,
        DateColumn,
        CategoryColumn,
        SetColumn,
        TextColumn,
        ModelColumn,
        VectorColumn,
        PictureColumn,
    )
}
# Total variance of a column's features, by outcome; a number has 1. Measured, see TableEncoder.
_WEIGHT = {"text": 10.0, "text model": 10.0, "vectors": 10.0, "pictures": 10.0}
# Number of rows on which the variance of a column's features is computed.
_SAMPLE = 10_000


@dataclass(frozen=True)
class Block:
    """Adjacent features that come from one column.

    Args:
        column: The fitted column.
        outcome: ``number``, ``date``, ``categories``, ``set``, ``text``, ``short text``, ``text model``, ``vectors`` or
            ``pictures``.
        start: First feature.
        stop: One past the last feature.
        factor: What the column's features are multiplied by.
        complete: Whether every cell held a readable value when the column was fitted, or in the rows passed to
            :func:`judged_on`: the model then never learned what a blank cell means.
    """

    column: Column
    outcome: str
    start: int
    stop: int
    factor: float
    complete: bool = False

    @property
    def name(self) -> str:
        """The column's name."""
        return self.column.name


def fit_blocks(frame: pl.DataFrame, choices: Mapping[str, Choice]) -> list[Block]:
    """The blocks of all columns that are used, in the order of the table, each scaled to its weight."""
    sample = frame[np.linspace(0, frame.height - 1, min(frame.height, _SAMPLE)).astype(np.int64)]
    blocks: list[Block] = []
    for name, choice in choices.items():
        if choice.column is not None:
            factor = _factor(choice.column, sample[name], _WEIGHT.get(choice.outcome, 1.0))
            complete = _is_complete(choice.column, frame[name])
            blocks.append(_next_block(blocks, choice.column, choice.outcome, factor, complete))
    return blocks


def judged_on(blocks: Sequence[Block], frame: pl.DataFrame) -> list[Block]:
    """The same blocks, ``complete`` if no cell of these rows is blank; blocks of other columns are unchanged."""
    there = set(frame.columns)
    return [replace(b, complete=_is_complete(b.column, frame[b.name])) if b.name in there else b for b in blocks]


def _is_complete(column: Column, series: pl.Series) -> bool:
    filled = filled_cells(column, series)
    return filled is not None and bool(filled.all())


def filled_cells(column: Column, series: pl.Series) -> npt.NDArray[np.bool_] | None:
    """As :func:`read_cells`, but without sentinels, which are readable and count as blank."""
    read = read_cells(column, series)
    if read is None or not isinstance(column, NumberColumn) or not column.sentinels:
        return read
    return np.asarray(read & ~as_numbers(series, column.style).is_in(column.sentinels).fill_null(False).to_numpy())


def read_cells(column: Column, series: pl.Series) -> npt.NDArray[np.bool_] | None:
    """Which cells are not blank and are readable as the column's kind, [rows]; ``None`` if that is unknown."""
    if isinstance(column, NumberColumn | DateColumn | CategoryColumn):
        return column.reads(series)
    if isinstance(column, PictureColumn):
        return None  # unreadable pictures are reported elsewhere
    return np.asarray((text_values(series) if is_text(series) else series).is_not_null().to_numpy())


def is_heavy(block: Block) -> bool:
    """Whether a block's directions matter more than its columns: text, vectors and pictures."""
    return block.outcome in _WEIGHT


def blocks_to_json(blocks: Sequence[Block]) -> list[dict[str, Any]]:
    """Plain values; :func:`block_arrays` holds the rest."""
    return [
        {
            "kind": b.column.kind,
            "outcome": b.outcome,
            "factor": b.factor,
            "complete": b.complete,
            "column": b.column.to_json(),
        }
        for b in blocks
    ]


def block_arrays(blocks: Sequence[Block]) -> Arrays:
    """Arrays of all columns, by ``<number of the block>.<name>``."""
    return {f"{i}.{name}": part for i, b in enumerate(blocks) for name, part in b.column.arrays().items()}


def blocks_from_json(content: Any, arrays: Arrays) -> list[Block]:
    """Rebuild blocks from :func:`blocks_to_json` and :func:`block_arrays`."""
    blocks: list[Block] = []
    for number, entry in enumerate(content):
        own = {k.split(".", 1)[1]: v for k, v in arrays.items() if k.split(".", 1)[0] == str(number)}
        column = _KINDS[entry["kind"]].restore(entry["column"], own)
        complete, factor = bool(entry["complete"]), float(entry["factor"])
        check_finite(scale=factor)
        blocks.append(_next_block(blocks, column, str(entry["outcome"]), factor, complete))
    return blocks


def _next_block(blocks: Sequence[Block], column: Column, outcome: str, factor: float, complete: bool) -> Block:
    start = blocks[-1].stop if blocks else 0
    return Block(column, outcome, start, start + len(column.feature_names()), factor, complete)


def _factor(column: Column, sample: pl.Series, weight: float) -> float:
    """The factor that scales the total variance of the column's features to its weight."""
    held = column.encode(sample)
    held = held.toarray() if sp.issparse(held) else held
    variance = float(held.astype(np.float64).var(axis=0).sum())
    factor = np.sqrt(weight / variance) if variance > 1e-30 else 1.0
    return float(factor)
