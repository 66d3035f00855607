"""The encoding of a file: everything needed to encode and check another file in the same way."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl
import scipy.sparse as sp

from sobgnn._system.arrays import load_arrays, save_arrays
from sobgnn._system.files import check_inside, read_signed, write_signed
from sobgnn.tables.columns.base import Arrays, Cells, Column, Mask, dense, empty_rows
from sobgnn.tables.columns.category import CategoryColumn
from sobgnn.tables.columns.date import DateColumn
from sobgnn.tables.columns.names import clean_names, label_names, shortened
from sobgnn.tables.columns.number import NumberColumn, check_numbers
from sobgnn.tables.columns.number_format import NumberFormat, parse_numbers
from sobgnn.tables.columns.picture import PictureColumn
from sobgnn.tables.columns.text import MeaningColumn
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.meaning import ImageModel, TextModel
from sobgnn.tables.predictions import Sheet
from sobgnn.tables.reading.formats import Layout

if TYPE_CHECKING:
    from sobgnn.tables.encoder import TableEncoder

FORMAT = 7
_FILE, _ARRAYS = "table.json", "table.npz"


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file, and what was found in them; ``None``: not known."""

    first_row: int
    X: Any  # features float32 [rows, F]
    ids: npt.NDArray[Any] | None  # texts
    # By column, the number of cells that are filled but count as blank: not a number, date, picture or known category.
    unread: Counter[str] = field(default_factory=Counter)
    beyond: Mask | None = None  # rows with a number far beyond the fitted ones, or entirely empty
    # By column, the number of cells that are blank or unreadable in columns that had none when the model was fitted, or
    # hold a category that was never seen.
    gaps: Counter[str] = field(default_factory=Counter)
    gappy: Mask | None = None  # rows with a gap, with a number that lacks its unit, or entirely empty
    unsigned: Counter[str] = field(default_factory=Counter)  # by column, the number of numbers that lack their unit
    said: tuple[str, ...] = ()  # sentences about the file
    labels: npt.NDArray[Any] | None = None  # the text of the label column, if there is one; None where it is blank
    empty: Mask | None = None  # rows that are entirely empty


@dataclass(frozen=True, eq=False)
class ArrayEncoder:
    """Arrays of unnamed features, which are unchanged but for missing values.

    Args:
        fill: The replacement for missing values of each feature, [F].
    """

    columns_: ClassVar[tuple[Column, ...]] = ()
    slices_: ClassVar[dict[str, slice]] = {}
    fill: npt.NDArray[np.float64]

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.fill)

    def to_parts(self) -> tuple[None, Arrays]:
        """No plain values, and arrays by name."""
        return None, {"fill": self.fill}

    def with_picture_folder(self, folder: Path) -> ArrayEncoder:
        """The same encoder: it has no pictures."""
        return self

    def with_models(self, text_model: str | Path | None = None, image_model: str | Path | None = None) -> ArrayEncoder:
        """The same encoder; raises ValueError if a model is given."""
        if text_model is not None or image_model is not None:
            raise ValueError("It was fitted on arrays, which need no model. Leave --text-model and --image-model out.")
        return self

    def from_array(self, X: Any) -> Any:
        """Features float32 [rows, F] of an array, dense or sparse."""
        _check_width(X, len(self.fill))
        with np.errstate(over="ignore"):
            X = X.astype(np.float32)
        return X if sp.issparse(X) else np.where(np.isfinite(X), X, self.fill.astype(np.float32))

    def from_frame(self, frame: pl.DataFrame, check: bool) -> Any:
        """Features of the columns of a table, in their order; ``check`` raises if one does not hold numbers."""
        if frame.width != len(self.fill):
            raise ValueError(
                f"The model was fitted on {len(self.fill)} unnamed features, but the file has {frame.width} "
                "columns besides label and id. Give it the same features in the same order."
            )
        columns = [(series, parse_numbers(series)) for series in frame.get_columns()]
        for series, cells in columns if check else ():
            check_numbers(series, cells, NumberFormat())
        return self.from_array(np.stack([cells.values for _, cells in columns], axis=1))


@dataclass(frozen=True, eq=False)
class Encoding:
    """How rows became features."""

    encoder: TableEncoder | ArrayEncoder  # fitted on a table, pictures or an array
    label: str | None = None  # name of the label column, which a file for prediction may have or lack
    id: str | None = None  # name of the column that identifies rows
    dropped: tuple[str, ...] = ()  # columns that the model must not see

    @property
    def named(self) -> bool:
        """Whether features have names from the file. Arrays have none: their columns are matched by position."""
        return not isinstance(self.encoder, ArrayEncoder)

    @property
    def columns(self) -> Sequence[Column]:
        """The columns that features are made of; none for arrays."""
        return self.encoder.columns_

    @property
    def names(self) -> frozenset[str]:
        """Names of :attr:`columns`."""
        return frozenset(column.name for column in self.columns)

    @property
    def slices(self) -> dict[str, slice]:
        """The features of each column, by name; none for arrays."""
        return self.encoder.slices_

    @property
    def width(self) -> int:
        """Number of features."""
        return self.encoder.n_features_out_

    @property
    def advice(self) -> str:
        """What to type for texts to be compared by their meaning, if they are not and it may help."""
        return getattr(self.encoder, "advice_", "")

    @cached_property
    def pictures(self) -> PictureColumn | None:
        """The column that names pictures, if there is one."""
        return next((column for column in self.columns if isinstance(column, PictureColumn)), None)

    @property
    def _fitted_names(self) -> set[str | None]:
        """All columns of the fitted file."""
        own = [] if isinstance(self.encoder, ArrayEncoder) else self.encoder.feature_names_in_.tolist()
        return {self.label, self.id, *self.dropped, *own, *self.names}

    def sheet(self, separator: str) -> Sheet:
        """How a spreadsheet writes CSV where a file with these columns and this separator comes from.

        Decimal commas, or semicolons without any fraction, mean a language that writes 0,5 between semicolons.
        """
        numbers = [column for column in self.columns if isinstance(column, NumberColumn)]
        if any(column.style.decimal == "," for column in numbers):
            return Sheet(";", ",")
        # The median of integers may be halfway between two.
        ends = ((column.low, column.high, 2 * column.fill) for column in numbers)
        whole = all(float(value).is_integer() for values in ends for value in values)
        return Sheet(";", "," if whole else ".") if separator == ";" else Sheet()

    def in_folder(self, folder: Path) -> Encoding:
        """The same encoding for pictures under another folder."""
        return dataclasses.replace(self, encoder=self.encoder.with_picture_folder(folder))

    def features_of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The columns of a fitted table that are features: without labels, ids and columns that were left out."""
        aside = {self.label, self.id, *self.dropped} - self.names
        return as_frame(frame.drop([name for name in frame.columns if name in aside]))

    def judged_on(self, rows: pl.DataFrame) -> Encoding:
        """The same encoding; blank cells are gaps in columns without blanks in ``rows``, the labeled rows."""
        if isinstance(self.encoder, ArrayEncoder) or not rows.height:
            return self
        return dataclasses.replace(self, encoder=self.encoder.judged_on(self.features_of(rows)))

    def renamed(self, columns: Sequence[str]) -> dict[str, str]:
        """New names for columns that match a missing column except for capitals, if exactly one does."""
        label = self.label if self.named else None
        missing = [name for name in (*self.names, self.id, label) if name is not None and name not in columns]
        spare = [column for column in columns if column not in self.names]
        meant = {name: [c for c in spare if c.casefold() == name.casefold()] for name in sorted(set(missing))}
        alone = Counter(name.casefold() for name in meant)
        return {c[0]: name for name, c in meant.items() if len(c) == 1 and alone[name.casefold()] == 1}

    def ignored(self, columns: Sequence[str]) -> list[str]:
        """Columns that the file for fitting did not have, so that nothing was learned from them; none for arrays."""
        return [name for name in columns if self.named and name not in self._fitted_names]

    def check_repeats(self, layout: Layout) -> None:
        """Raise if a file repeats a column that the model was fitted with once."""
        for column, name in layout.repeats.items():
            if self.named and name in {self.id, *self.names} and column not in self._fitted_names:
                raise ValueError(
                    f"The file has more columns {shortened(name)} than the model was fitted with. Rename the others, "
                    "or remove them."
                )

    def batch(self, frame: pl.DataFrame, first_row: int = 0) -> Batch:
        """Rows of a file with this encoding's columns, encoded and checked; every cell is parsed once.

        Raises if at least half of the cells of a numeric column are not numbers, because another column then has its
        name, if dates have day and month swapped, and if more than half of the pictures cannot be read. Only the
        file's first rows are checked. ``first_row`` is the table's position in its file; ids and labels are not read.
        """
        frame = clean_names(frame)
        empty = self.empty(frame)
        if isinstance(self.encoder, ArrayEncoder):
            own = frame.drop(self.id or (), *label_names(frame.columns), strict=False)
            X = self.encoder.from_frame(own, check=first_row == 0)
            return Batch(first_row, X, None, beyond=empty, gappy=empty_rows(own), empty=empty)
        frame = self.encoder.with_all_columns(frame)
        cells = self.encoder.parse(frame)
        for column in self.columns if first_row == 0 else ():
            column.check(frame[column.name], cells[column.name])
        X = self.encoder.encode(cells, frame.height)
        gaps, gappy = self.gaps(frame, cells)
        unread = Counter({name: int((held.filled & ~held.read).sum()) for name, held in cells.items()})
        unsigned: Counter[str] = Counter()
        beyond = empty
        for column in self.columns:
            if isinstance(column, NumberColumn):
                bare = column.unsigned(cells[column.name])
                unsigned[f"{column.name} without {column.style.sign}"] = int(bare.sum())
                beyond, gappy = beyond | column.beyond(cells[column.name]), gappy | bare
        if self.pictures is not None:
            unseen, name = self.unread_pictures(X), self.pictures.name
            beyond, unread[name] = beyond | unseen, int(unseen.sum())
            if first_row == 0 and 2 * unread[name] > frame.height:
                why = self.pictures.reason(frame[name][int(unseen.argmax())])
                raise ValueError(f"{unread[name]:,} of the first {frame.height:,} pictures cannot be read{why}")
        return Batch(first_row, X, None, +unread, beyond, gaps, gappy, +unsigned, empty=empty)

    def array_batch(self, block: Any, first_row: int = 0) -> Batch:
        """Rows of an array, dense or sparse, with the features of this encoding in their order."""
        if not isinstance(self.encoder, ArrayEncoder):
            _check_width(block, len(self.columns))
            names = [column.name for column in self.columns]
            return self.batch(as_frame(dict(zip(names, dense(block).T, strict=True))), first_row)
        # In a sparse array, entries that are not stored are 0.
        empty = np.zeros(block.shape[0], bool) if sp.issparse(block) else ~np.isfinite(block).any(axis=1)
        return Batch(first_row, self.encoder.from_array(block), None, beyond=empty, gappy=empty, empty=empty)

    def unread_pictures(self, X: Any) -> Mask:
        """Which rows of features X have a picture that cannot be read, [rows]: it became the mean, 0 everywhere."""
        if self.pictures is None:
            return np.zeros(X.shape[0], dtype=bool)
        return np.asarray(abs(X[:, self.slices[self.pictures.name]]).sum(axis=1) == 0)

    def outside(self, X: Any) -> Counter[str]:
        """For each column, how many rows of features X have a number or date outside the fitted range."""
        count: Counter[str] = Counter()
        for column in self.columns:
            if not isinstance(column, NumberColumn | DateColumn) or not getattr(column, "number", True):
                continue
            held = X[:, [self.slices[column.name].start]]
            value = dense(held)[:, 0] / column.factor
            most = column.clip if isinstance(column, NumberColumn) else 1e4
            low, high = np.clip((np.array([column.low, column.high]) - column.center) / column.scale, -most, most)
            slack = 1e-4 * (high - low) + 1e-6  # features are rounded to float32
            count[column.name] = int(((value < low - slack) | (value > high + slack)).sum())
        return +count

    def empty(self, frame: pl.DataFrame) -> Mask:
        """Which rows have only blank cells, except for the label, [rows]."""
        return empty_rows(frame.drop(self.label, strict=False) if self.label is not None else frame)

    def gaps(self, frame: pl.DataFrame, cells: dict[str, Cells] | None = None) -> tuple[Counter[str], Mask]:
        """Cells that the model has not learned.

        These are categories that were never seen, and cells that are blank or not read in columns where none was when
        the model was fitted. ``cells`` are those of the table, if they are parsed already.

        Returns:
            How many each such column has, and which rows have one or are empty, [rows].
        """
        cells = cells or {column.name: column.parse(frame[column.name]) for column in self.columns}
        count: Counter[str] = Counter()
        gappy = empty_rows(frame.select([name for name in frame.columns if name in self.names]))
        for column in self.columns:
            held = cells[column.name]
            if column.complete:
                gap = ~column.known(held)
            elif isinstance(column, CategoryColumn):  # blank cells were learned, but not a category never seen
                gap = held.filled & ~held.read
            else:
                continue
            count[column.name] = int(gap.sum())
            gappy |= gap
        return +count, gappy

    def to_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Plain values, for a JSON file, and arrays by name."""
        content, arrays = self.encoder.to_parts()
        return {"label": self.label, "id": self.id, "dropped": self.dropped, "encoder": content}, arrays

    @classmethod
    def from_parts(cls, content: Any, arrays: Arrays) -> Encoding:
        """Rebuild an encoding from :meth:`to_parts`; raises ValueError if something is wrong."""
        from sobgnn.tables.encoder import TableEncoder

        try:
            label, identity, held, dropped = (content[key] for key in ("label", "id", "encoder", "dropped"))
            if not all(name is None or isinstance(name, str) for name in (label, identity, *dropped)):
                raise ValueError("a name is no text")
            fill = None if held is not None else np.asarray(arrays["fill"], dtype=np.float64)
            if fill is not None and (fill.ndim != 1 or not np.isfinite(fill).all()):
                raise ValueError("a value is not finite")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"The table's encoding is damaged: {error}. Fit the run again.") from None
        encoder = TableEncoder.from_parts(held, arrays) if fill is None else ArrayEncoder(fill)
        return cls(encoder, label, identity, tuple(dropped))

    def save(self, folder: Path) -> None:
        """Write table.json and table.npz into a folder."""
        content, arrays = self.to_parts()
        save_arrays(folder / _ARRAYS, arrays)
        write_signed(folder / _FILE, {"format": FORMAT, "encoding": content}, folder / _ARRAYS)

    @classmethod
    def load(
        cls, folder: Path, *, text_model: str | Path | None = None, image_model: str | Path | None = None
    ) -> Encoding:
        """Read an encoding that :meth:`save` wrote, and give it the models that it needs.

        No other file is opened: an encoding names no path. Raises ValueError if something is missing or damaged.
        """
        for name in (_FILE, _ARRAYS):
            check_inside(folder / name, folder)
        try:
            content = read_signed(folder / _FILE, folder / _ARRAYS, FORMAT)
        except FileNotFoundError as error:
            name = Path(error.filename).name
            what = "is not a run folder" if name == _FILE else "is damaged"
            raise ValueError(f"{folder} {what}: it has no {name}.") from None
        except ValueError as error:
            raise ValueError(f"{error} Fit the run again.") from None
        made = cls.from_parts(content.get("encoding"), load_arrays(folder / _ARRAYS, (), ours=True))
        try:
            return dataclasses.replace(made, encoder=made.encoder.with_models(text_model, image_model))
        except ValueError as error:
            raise ValueError(f"{folder} cannot be used: {error}") from None

    def models(self) -> dict[str, TextModel | ImageModel | None]:
        """The models that columns are encoded by, opened: of texts, and of pictures."""
        texts = next((column.opened for column in self.columns if isinstance(column, MeaningColumn)), None)
        return {"text_model": texts, "image_model": None if self.pictures is None else self.pictures.opened}


def _check_width(X: Any, width: int) -> None:
    if X.shape[1] != width:
        raise ValueError(f"The model was fitted on {width} features, but X has {X.shape[1]}.")
