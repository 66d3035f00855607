"""What all kinds of columns share: blank cells, cells that are parsed once, and the contract of a fitted column."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from types import UnionType
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

# Cells that hold nothing. A label cell with one of these is an unlabeled row.
BLANKS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NaT", "null", "NULL", "<NA>", "#N/A", "?")
# Share of blank cells from which a flag column marks them.
COMMON_BLANKS = 0.05

# Features are float32: with larger factors they would overflow. Those of fits stay far below.
LARGEST_FACTOR = 1e20

# Metadata of fields that are not saved.
NOT_SAVED = {"saved": False}

Arrays = dict[str, npt.NDArray[Any]]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Cells:
    """The cells of a column, each parsed once."""

    values: Any  # what ``encode`` takes: numbers, seconds, codes, lists or texts, [rows]
    filled: Mask  # which cells hold something
    read: Mask  # which of them hold a value of the column's kind
    # Which numbers lack the unit of the column's format. Of dates: 1 where a number above 12 is in the place of the
    # month, -1 where one is in that of the day.
    odd: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class Column:
    """One fitted column: the cells of a series to features [rows, width], the same way every time.

    ``parse`` and ``encode`` never fail because of a cell's content: cells that do not fit the kind count as blank.
    Features are dense float32 or, for one-hot columns, scipy CSR. Saved are all fields but those marked NOT_SAVED.
    """

    kind: ClassVar[str]
    name: str  # as in the table
    factor: float = field(default=1.0, kw_only=True)  # multiplies the features, to have the column's weight
    # Whether every cell held a readable value when the column was fitted, or in the rows passed to
    # :meth:`TableEncoder.judged_on`: the model then never learned what a blank cell means.
    complete: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Raise ValueError if fields contradict each other: they may come from a damaged file."""
        if not 0 < self.factor <= LARGEST_FACTOR or getattr(self, "scale", 1.0) <= 0:
            raise ValueError("a factor is not positive, or too large")

    def parse(self, series: pl.Series) -> Cells:
        """The cells of a series of any type."""
        return cells_of(text_values(series))

    def check(self, series: pl.Series, cells: Cells) -> None:
        """Raise if the cells, the first of a file, cannot be of this column: another has its name."""
        if not is_text(series) and series.null_count() < series.len() and not cells.filled.any():
            raise ValueError(
                f"Column {self.name!r} held {self.kind} when the model was fitted, but holds {series.dtype} here."
            )

    def known(self, cells: Cells) -> Mask:
        """Which cells hold a value that says something, [rows]."""
        return cells.read

    def encode(self, values: Any) -> Any:
        """Features float32 [rows, width] of :attr:`Cells.values`, before :attr:`factor`."""
        raise NotImplementedError

    def feature_names(self) -> list[str]:
        """One name per feature; each begins with the column's name."""
        raise NotImplementedError


@dataclass
class Choice:
    """The outcome for a column."""

    column: Column | None  # fitted; None if it is left out
    outcome: str  # what it is, in a word or two: number, id, constant, …
    notes: list[str] = field(default_factory=list)  # what users may not expect
    cells: Cells | None = None  # those that it was fitted on, if they were parsed
    blank: int = 0  # cells of a number column that were filled with its median


def to_plain(value: Any, arrays: Arrays, name: str = "") -> Any:
    """A value as JSON; arrays are put into ``arrays`` by the dotted names of the fields that hold them."""
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return None
    if is_dataclass(value):
        return {part: to_plain(getattr(value, part), arrays, f"{name}.{part}".lstrip(".")) for part in _saved(value)}
    return list(value) if isinstance(value, tuple) else value


def from_plain(kind: Any, content: Any, arrays: Arrays, name: str = "") -> Any:
    """A value of a type from :func:`to_plain`, field by field; raises ValueError if it cannot be one.

    Types are str, bool, float, tuples, literals, arrays, dataclasses, and any of them or None. Floats are finite.
    """
    if is_dataclass(kind):
        if not isinstance(content, dict):
            raise ValueError(f"{content!r:.40} has no fields")
        hints = get_type_hints(kind)
        parts = {p: from_plain(hints[p], content.get(p), arrays, f"{name}.{p}".lstrip(".")) for p in _saved(kind)}
        return kind(**parts)  # type: ignore[operator]
    if isinstance(kind, UnionType):
        return None if content is None else from_plain(get_args(kind)[0], content, arrays, name)
    if get_origin(kind) is np.ndarray:
        if name not in arrays or arrays[name].dtype != get_args(get_args(kind)[1])[0]:
            raise ValueError(f"the array {name} is missing or of another type")
        return np.ascontiguousarray(arrays[name])
    if get_origin(kind) is Literal and content in get_args(kind):
        return content
    if get_origin(kind) is tuple:
        kinds = get_args(kind)
        if not isinstance(content, list) or (kinds[-1] is not Ellipsis and len(content) != len(kinds)):
            raise ValueError(f"{content!r:.40} is no list of values")
        if kinds[0] is str and len(set(content)) < len(content):
            raise ValueError(f"{content!r:.40} holds a value twice")
        return tuple(from_plain(kinds[0], value, arrays) for value in content)
    if kind is float and isinstance(content, int | float) and not isinstance(content, bool):
        if not np.isfinite(content):
            raise ValueError("a value is not finite")
        return float(content)
    if not isinstance(kind, type) or not isinstance(content, kind):
        raise ValueError(f"{content!r:.40} is not of type {kind}")
    return content


def _saved(kind: Any) -> list[str]:
    return [part.name for part in fields(kind) if part.metadata.get("saved", True)]


def cells_of(values: pl.Series) -> Cells:
    """Cells that are read wherever they hold something."""
    filled = values.is_not_null().to_numpy()
    return Cells(values, filled, filled)


def is_text(series: pl.Series) -> bool:
    """Whether the series holds text of any polars kind."""
    return series.dtype in (pl.String, pl.Categorical, pl.Enum)


def text_values(series: pl.Series) -> pl.Series:
    """A String series without surrounding spaces, null for blank cells, and for all cells of a type without a text."""
    try:
        text = series.cast(pl.String, strict=False).str.strip_chars()
    except pl.exceptions.PolarsError:  # lists, durations, bytes
        return pl.Series(series.name, [None] * series.len(), dtype=pl.String)
    filled: pl.Series = text.set(text.is_in(list(BLANKS)).fill_null(False), None)
    return filled


def distinct_cells(text: pl.Series) -> tuple[pl.Series, npt.NDArray[np.int64]]:
    """The distinct cells, in order of appearance, and the place of every row's cell among them, [rows]."""
    cells = text.unique(maintain_order=True)
    places = cells.to_frame("cell").with_row_index("place")
    rows = text.to_frame("cell").join(places, on="cell", how="left", nulls_equal=True, maintain_order="left")
    return cells, rows["place"].to_numpy().astype(np.int64)


def evenly_spaced(series: pl.Series, most: int) -> pl.Series:
    """At most so many of the cells, from the first to the last one."""
    return series.gather(np.linspace(0, series.len() - 1, min(series.len(), most)).astype(np.int64))


def empty_rows(frame: pl.DataFrame) -> Mask:
    """Which rows have only blank cells, [rows]."""
    if not frame.width:
        return np.ones(frame.height, dtype=bool)
    blank = []
    for name, kind in frame.schema.items():
        cell = pl.col(name)
        if kind == pl.String:
            blank.append(cell.str.strip_chars().is_in(BLANKS).fill_null(True))
        else:
            blank.append(cell.is_nan().fill_null(True) if kind.is_float() else cell.is_null())
    return np.asarray(frame.select(pl.all_horizontal(blank)).to_series().to_numpy())


def dense(X: Any) -> npt.NDArray[Any]:
    """An array, dense or sparse, as a dense one."""
    return np.asarray(X.toarray() if sp.issparse(X) else X)


def standardized(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of finite values; a deviation of 0, or one due only to rounding, becomes 1."""
    if not values.size:
        return 0.0, 1.0
    mean = float(values.mean())
    deviation = float(values.std())
    return mean, deviation if deviation > 1e-12 * abs(mean) else 1.0
