"""The encoding of a file: everything needed to encode another file in the same way."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.runtime.arrays import load_arrays, save_arrays
from sobgnn.runtime.files import read_json, write_text
from sobgnn.tables.blocks import Block, filled_cells
from sobgnn.tables.categories import CategoryColumn
from sobgnn.tables.columns import Arrays, clean_names, empty_rows, is_text, label_names, shortened, text_values
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.dates import DateColumn
from sobgnn.tables.encoder import TableEncoder
from sobgnn.tables.formats import Layout
from sobgnn.tables.numbers import LARGEST, NumberColumn, NumberFormat, as_numbers
from sobgnn.tables.pictures import PictureColumn
from sobgnn.tables.predictions import Sheet

if TYPE_CHECKING:
    import polars as pl

FORMAT = 3
_FILE, _ARRAYS = "table.json", "table.npz"


@dataclass(frozen=True, eq=False)
class Encoding:
    """How rows became features.

    Args:
        encoder: For tables and pictures: the fitted encoder. ``None`` for arrays, whose features are unchanged.
        fill: For arrays: the replacement for missing values of each feature, [F].
        label: Name of the label column, which a file for prediction may have or lack.
        id: Name of the column that identifies rows, or ``None``.
        dropped: Columns that the model must not see.
    """

    encoder: TableEncoder | None = None
    fill: npt.NDArray[np.float64] | None = None
    label: str | None = None
    id: str | None = None
    dropped: tuple[str, ...] = ()

    @property
    def named(self) -> bool:
        """Whether features have names from the file. Arrays have none: their columns are matched by position."""
        return self.encoder is not None

    @property
    def width(self) -> int:
        """Number of features."""
        return self.encoder.n_features_out_ if self.encoder is not None else len(self.fill_values)

    @property
    def fill_values(self) -> npt.NDArray[np.float64]:
        """``fill``, or empty for an encoding without it."""
        return np.zeros(0) if self.fill is None else self.fill

    @property
    def names(self) -> frozenset[str]:
        """Columns that features are made of; none for arrays."""
        return frozenset() if self.encoder is None else frozenset(block.name for block in self.encoder.blocks_)

    @property
    def pictures(self) -> PictureColumn | None:
        """The column that names pictures, if there is one."""
        blocks = [] if self.encoder is None else self.encoder.blocks_
        return next((b.column for b in blocks if isinstance(b.column, PictureColumn)), None)

    def sheet(self, separator: str) -> Sheet:
        """How a spreadsheet writes CSV where a file with these columns and this separator comes from.

        Decimal commas, or semicolons without any fraction, mean a language that writes 0,5 between semicolons.
        """
        blocks = [] if self.encoder is None else self.encoder.blocks_
        numbers = [block.column for block in blocks if isinstance(block.column, NumberColumn)]
        if any(column.style.decimal == "," for column in numbers):
            return Sheet(";", ",")
        # The median of integers may be halfway between two.
        ends = ((column.low, column.high, 2 * column.fill) for column in numbers)
        whole = all(float(value).is_integer() for values in ends for value in values)
        return Sheet(";", "," if whole else ".") if separator == ";" else Sheet()

    def in_folder(self, folder: Path) -> Encoding:
        """The same encoding for pictures under another folder."""
        if self.encoder is None or self.pictures is None:
            return self
        return dataclasses.replace(self, encoder=self.encoder.with_picture_folder(folder))

    def features_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns of a fitted table that are features: without labels, ids and columns that were left out."""
        aside = {self.label, self.id, *self.dropped} - self.names
        return as_frame(frame.drop([name for name in frame.columns if name in aside]))

    def judged_on(self, rows: pl.DataFrame) -> Encoding:
        """The same encoding; blank cells are gaps in columns without blanks in ``rows``, the labeled rows."""
        if self.encoder is None or not rows.height:
            return self
        return dataclasses.replace(self, encoder=self.encoder.judged_on(self.features_of(rows)))

    def renamed(self, columns: Sequence[str]) -> dict[str, str]:
        """New names for columns that match a missing column except for capitals, if exactly one does."""
        label = None if self.encoder is None else self.label
        missing = [name for name in (*self.names, self.id, label) if name is not None and name not in columns]
        spare = [column for column in columns if column not in self.names]
        meant = {name: [c for c in spare if c.casefold() == name.casefold()] for name in sorted(set(missing))}
        alone = Counter(name.casefold() for name in meant)
        return {c[0]: name for name, c in meant.items() if len(c) == 1 and alone[name.casefold()] == 1}

    def ignored(self, columns: Sequence[str]) -> list[str]:
        """Columns that the file for fitting did not have, so that nothing was learned from them; none for arrays."""
        if self.encoder is None:
            return []
        known = {self.label, self.id, *self.dropped, *self.encoder.feature_names_in_.tolist(), *self.names}
        return [name for name in columns if name not in known]

    def check_repeats(self, layout: Layout) -> None:
        """Raise if a file repeats a column that the model was fitted with once."""
        if self.encoder is None:
            return
        known = {self.label, self.id, *self.dropped, *self.encoder.feature_names_in_.tolist()}
        read = {self.id, *(block.name for block in self.encoder.blocks_)}
        for column, name in layout.repeats.items():
            if name in read and column not in known:
                raise ValueError(
                    f"The file has more columns {shortened(name)} than the model was fitted with. Rename the others, "
                    "or remove them."
                )

    def read_plainly(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The same table with numbers instead of text, in columns of plain numbers whose filled cells are all numbers.

        All columns at once: one by one, and several times each, takes minutes for thousands of columns.
        """
        import polars as pl

        blocks = [] if self.encoder is None else self.encoder.blocks_
        plain = {b.name for b in blocks if isinstance(b.column, NumberColumn) and b.column.style.plain}
        text = frame.select([n for n, kind in frame.schema.items() if n in plain and kind == pl.String])
        if not text.width:
            return frame
        number = text.with_columns(pl.all().cast(pl.Float64, strict=False))
        lost = (number.null_count() - text.null_count()).row(0)
        nan = number.select(pl.all().is_nan().any()).row(0)
        kept = [name for name, gone, odd in zip(text.columns, lost, nan, strict=True) if not gone and not odd]
        return frame.with_columns(number.select(kept))

    def features(self, frame: pl.DataFrame, first_row: int = 0) -> Any:
        """Features float32 [rows, width] of a table with this encoding's columns; others are ignored.

        Raises if at least half of the cells of a numeric column are not numbers, because another column then has its
        name, and if dates have day and month swapped. Only the file's first rows are checked. ``first_row`` is the
        table's position in its file.
        """
        frame = clean_names(frame)
        if self.encoder is None:
            return self._in_order(frame, first_row)
        there = set(frame.columns)
        for block in self.encoder.blocks_ if first_row == 0 else []:
            if block.name in there and isinstance(block.column, NumberColumn):
                check_numbers(frame[block.name], block.column.style)
            if block.name in there and isinstance(block.column, DateColumn):
                check_dates(frame[block.name], block.column)
        return self.encoder.encode(frame)

    def doubts(self, frame: pl.DataFrame, X: Any, first_row: int) -> tuple[Counter[str], npt.NDArray[np.bool_]]:
        """What is doubtful in some rows whose features are X.

        Raises if more than half of the pictures in a file's first rows cannot be read.

        Returns:
            How many filled cells of each column count as blank: not a number, date, known category or picture. And
            which rows have a number far beyond the fitted ones, or no picture, [rows].
        """
        count: Counter[str] = Counter()
        far = np.zeros(frame.height, dtype=bool)
        there = set(frame.columns)
        for block in [] if self.encoder is None else self.encoder.blocks_:
            column = block.column
            if block.name not in there:
                continue
            series = frame[block.name]
            if isinstance(column, PictureColumn):
                unseen = _unread(block, X)
                count[block.name], far = int(unseen.sum()), far | unseen
                if first_row == 0 and 2 * count[block.name] > frame.height:
                    why = column.reason(series[int(unseen.argmax())])
                    raise ValueError(
                        f"{count[block.name]:,} of the first {frame.height:,} pictures cannot be read{why}"
                    )
                continue
            read = series
            if isinstance(column, NumberColumn):
                read = as_numbers(series, column.style)  # once: text is slow to parse
                far |= column.beyond(read)
            typed = isinstance(column, NumberColumn | DateColumn) and not is_text(series)
            if isinstance(column, NumberColumn | DateColumn | CategoryColumn) and not typed:
                text = text_values(series)
                filled = text.is_not_null()
                if isinstance(column, NumberColumn):  # words for missing numbers were learned
                    filled &= ~text.is_in(list(column.style.marks)).fill_null(False)
                count[block.name] = int((~column.reads(read) & filled.to_numpy()).sum())
        return +count, far

    def unread_pictures(self, X: Any) -> npt.NDArray[np.bool_]:
        """Which rows of features X have a picture that cannot be read, [rows]."""
        blocks = [] if self.encoder is None else self.encoder.blocks_
        unread = [_unread(block, X) for block in blocks if isinstance(block.column, PictureColumn)]
        return np.asarray(np.any([np.zeros(X.shape[0], dtype=bool), *unread], axis=0))

    def unsigned(self, frame: pl.DataFrame) -> tuple[Counter[str], npt.NDArray[np.bool_]]:
        """Numbers of another magnitude without the unit that all numbers had when the model was fitted.

        Returns:
            How many each column has, named with the unit, and which rows have one, [rows].
        """
        count: Counter[str] = Counter()
        rows = np.zeros(frame.height, dtype=bool)
        for block in [] if self.encoder is None else self.encoder.blocks_:
            if isinstance(block.column, NumberColumn) and block.column.usual and block.name in frame.columns:
                style, bare = block.column.style, block.column.unsigned(frame[block.name])
                count[f"{block.name} without {style.unit or style.currency}"] = int(bare.sum())
                rows |= bare
        return +count, rows

    def outside(self, X: Any) -> Counter[str]:
        """For each column, how many rows of features X have a number or date outside the fitted range."""
        count: Counter[str] = Counter()
        for block in [] if self.encoder is None else self.encoder.blocks_:
            column = block.column
            if not isinstance(column, NumberColumn | DateColumn) or column.low is None or column.high is None:
                continue
            if isinstance(column, DateColumn) and not column.number:
                continue
            held = X[:, [block.start]]
            value = (held.toarray() if sp.issparse(held) else held)[:, 0] / block.factor
            most = column.clip if isinstance(column, NumberColumn) else 1e4
            low, high = (
                min(max((end - column.center) / column.scale, -most), most) for end in (column.low, column.high)
            )
            slack = 1e-4 * (high - low) + 1e-6  # features are rounded to float32
            count[block.name] = int(((value < low - slack) | (value > high + slack)).sum())
        return +count

    def empty(self, frame: pl.DataFrame) -> npt.NDArray[np.bool_]:
        """Which rows have only blank cells, except for the label, [rows]."""
        return empty_rows(frame.drop(self.label, strict=False) if self.label is not None else frame)

    def gaps(self, frame: pl.DataFrame) -> tuple[Counter[str], npt.NDArray[np.bool_]]:
        """Cells that the model has not learned.

        These are categories that were never seen, and cells that are blank or not read in columns where none was when
        the model was fitted.

        Returns:
            How many each such column has, and which rows have one or are empty, [rows].
        """
        count: Counter[str] = Counter()
        there = set(frame.columns)
        own = self.names or {*frame.columns} - {self.id, *label_names(frame.columns)}
        gappy = empty_rows(frame.select([name for name in frame.columns if name in own]))
        for block in [] if self.encoder is None else self.encoder.blocks_:
            if not block.complete and not isinstance(block.column, CategoryColumn):
                continue
            # A field that a nested column lacks is blank.
            blank = np.zeros(frame.height, dtype=bool)
            read = filled_cells(block.column, frame[block.name]) if block.name in there else blank
            if read is None:
                continue
            gap = ~read
            if not block.complete:  # blank cells were learned, but not a category that was never seen
                gap &= ~empty_rows(frame.select(block.name)) if block.name in there else False
            count[block.name] = int(gap.sum())
            gappy |= gap
        return +count, gappy

    def _in_order(self, frame: pl.DataFrame, first_row: int) -> npt.NDArray[np.float32]:
        """The table's columns in order, for a model fitted on an array."""
        frame = frame.drop([name for name in (self.id, *label_names(frame.columns)) if name in frame.columns])
        if frame.width != self.width:
            raise ValueError(
                f"The model was fitted on {self.width} unnamed features, but the file has {frame.width} "
                "columns besides label and id. Give it the same features in the same order."
            )
        out = np.empty((frame.height, self.width), np.float32)
        for place, name in enumerate(frame.columns):
            if first_row == 0:
                check_numbers(frame[name], NumberFormat())
            values = as_numbers(frame[name]).fill_null(float("nan")).to_numpy().astype(np.float64)
            good = np.abs(values) <= LARGEST
            out[:, place] = np.where(good, values, self.fill_values[place])
        return out

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a JSON file; :meth:`arrays` holds the rest."""
        held = None if self.encoder is None else self.encoder.to_json()
        return {"label": self.label, "id": self.id, "dropped": self.dropped, "encoder": held}

    def arrays(self) -> Arrays:
        """Arrays by name."""
        return {"fill": self.fill_values} if self.encoder is None else self.encoder.arrays()

    @classmethod
    def from_parts(cls, content: Any, arrays: Arrays) -> Encoding:
        """Rebuild an encoding from :meth:`to_json` and :meth:`arrays`; raises ValueError if something is wrong."""
        try:
            label, identity, held = content["label"], content["id"], content["encoder"]
            dropped = tuple(content.get("dropped", ()))  # earlier runs have none
            fill = np.asarray(arrays["fill"], dtype=np.float64) if held is None else None
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"The table's encoding is damaged: {error}. Fit the run again.") from None
        named = all(v is None or isinstance(v, str) for v in (label, identity, *dropped))
        if not named or (fill is not None and fill.ndim != 1):
            raise ValueError("The table's encoding is damaged: a field has the wrong type. Fit the run again.")
        encoder = None if held is None else TableEncoder.from_parts(held, arrays)
        if fill is not None and not np.isfinite(fill).all():
            raise ValueError("The table's encoding is damaged: a value is not finite. Fit the run again.")
        return cls(encoder, fill, label, identity, dropped)

    def save(self, folder: Path) -> None:
        """Write table.json and table.npz into a folder."""
        save_arrays(folder / _ARRAYS, self.arrays())
        write_text(folder / _FILE, json.dumps({"format": FORMAT, "encoding": self.to_json()}))

    @classmethod
    def load(cls, folder: Path) -> Encoding:
        """Read an encoding that :meth:`save` wrote; raises ValueError if something is missing or damaged."""
        file = folder / _FILE
        try:
            content = read_json(file)
        except FileNotFoundError:
            raise ValueError(f"{folder} is not a run folder: it has no {_FILE}.") from None
        except ValueError as error:
            raise ValueError(f"{error} Fit the run again.") from None
        if not isinstance(content, dict) or not isinstance(content.get("format"), int):
            raise ValueError(f"{file} is damaged. Fit the run again.")
        if content["format"] > FORMAT:
            raise ValueError(f"{folder} has format {content['format']}, newer than this version reads. Upgrade sobgnn.")
        if content["format"] < FORMAT:
            raise ValueError(f"{folder} was written by an older version of sobgnn. Fit the run again.")
        try:
            arrays = load_arrays(folder / _ARRAYS, ())
        except FileNotFoundError:
            raise ValueError(f"{folder} is damaged: it has no {_ARRAYS}. Fit the run again.") from None
        return cls.from_parts(content.get("encoding"), arrays)


def _unread(block: Block, X: Any) -> npt.NDArray[np.bool_]:
    """Which rows of features X have a picture of that block that cannot be read: it became the mean, 0 everywhere."""
    return np.asarray(abs(X[:, block.start : block.stop]).sum(axis=1) == 0)


def check_numbers(series: pl.Series, style: NumberFormat) -> None:
    """Raise if a column that must hold numbers holds something else in at least half of its filled cells."""
    if not is_text(series):
        import polars as pl

        if series.dtype.is_nested() or (series.dtype.is_temporal() and series.dtype != pl.Duration):
            raise ValueError(f"Column {series.name!r} must hold numbers, but holds {series.dtype}.")
        return
    text = text_values(series)
    marked = text.is_in(list(style.marks)).fill_null(False)
    wrong = (text.is_not_null() & ~marked & as_numbers(series, style).is_null()).arg_true()
    if wrong.len() and 2 * wrong.len() >= text.len() - text.null_count() - marked.sum():
        other = dataclasses.replace(style, decimal="," if style.decimal == "." else ".", plain=False)
        cells = text.gather(wrong)
        swapped = as_numbers(cells, other).is_not_null().arg_true()
        if 2 * swapped.len() > wrong.len():  # the others may be words for missing numbers
            sign = {".": "point", ",": "comma"}
            raise ValueError(
                f"Column {series.name!r} had a decimal {sign[style.decimal]} when the model was fitted, but has a "
                f"decimal {sign[other.decimal]} here, as in {shortened(cells[int(swapped[0])])}. Use the former."
            )
        unit = style.unit or style.currency
        raise ValueError(
            f"Column {series.name!r} must hold numbers{f' in {unit!r}' if unit else ''}, but row {int(wrong[0])} "
            f"(counted from 0) holds {shortened(cells[0])}. Correct it, or leave the cell empty."
        )


def check_dates(series: pl.Series, column: DateColumn) -> None:
    """Raise if a column's dates have day and month in the opposite order to the one that is read."""
    cell = column.swapped(series) if is_text(series) else None
    if cell is not None:
        raise ValueError(
            f"Column {series.name!r} has day and month in the opposite order to the model's, as in "
            f"{shortened(cell)}. Write the year first: 2024-12-31."
        )
