"""Files and folders of points: read at once for a fit, in batches for predictions."""

from __future__ import annotations

import contextlib
import csv
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import is_text, text_values
from sobgnn.tables.columns.names import clean_names, empty_notes, listed
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.encoding import Batch, Encoding
from sobgnn.tables.labels import parse_labels
from sobgnn.tables.pictures import find_pictures
from sobgnn.tables.predictions import Sheet, is_formula
from sobgnn.tables.reading.formats import find_layout
from sobgnn.tables.reading.npz import point_batches, read_points
from sobgnn.tables.reading.readers import SUFFIXES, file_kind, open_reader
from sobgnn.tables.reading.roles import (
    check_columns,
    check_id,
    filled_with_labels,
    find_id,
    find_label,
    id_notes,
    telling_notes,
)  # fmt: skip
from sobgnn.tables.table import Table

# What readers raise on damaged files, beside fastexcel's errors, and polars' panics, which are no Exception.
_DAMAGED = (
    pl.exceptions.PolarsError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError, NotImplementedError,
    csv.Error,
)  # fmt: skip


def file_stem(path: Path) -> str:
    """The file's name without its known suffix; for . and .. the folder's own name."""
    path = path if path.name.strip(".") else path.resolve()
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)]
    return path.stem


def read_table(
    path: Path,
    label: str | None = None,
    identity: str | None = None,
    drop: Sequence[str] = (),
    *,
    text: Sequence[str] = (),
    text_model: str | Path | None = "auto",
    image_model: str | Path | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    need_labels: bool = True,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Table:
    """The whole file or folder of pictures, encoded.

    Args:
        path: CSV, Parquet, Excel, JSON, NPZ or NPY file; or a folder of pictures whose subfolders are classes.
        label: Name of the label column (in NPZ: array); ``None`` detects it.
        identity: Name of the column of ids; ``None`` detects it, if there is one.
        drop: Columns to leave out.
        text: Columns that are text, whatever they look like.
        text_model: Name or folder of a text model, see :class:`~sobgnn.tables.TableEncoder`.
        image_model: Name or folder of an image model.
        encoding: Character encoding of a text file, such as ``"shift_jis"``; ``None`` detects it.
        sheet: Name of the sheet of an Excel file; ``None`` for the only one.
        need_labels: Whether a table without a label column is an error. Otherwise all codes are -1.
        seed: Seed of the encoder.
        progress: Takes a few words about how far a slow model of texts is.
    """
    with _one_line_errors(path):
        kind = file_kind(path, encoding, sheet)
        reader = None if kind == "npz" else open_reader(path, label, encoding=encoding, sheet=sheet, whole=True)
        _check_options(path, kind, {"--drop": drop, "--text": text, "--label": label, "--id": identity})
        if reader is None:
            return read_points(path, label, identity, need_labels)
        found: list[str] = []
        own: str | None
        if kind == "pictures":
            frame = reader.table()
            label, own = _folder_label(path, frame, need_labels), "image"
        else:
            label = find_label(reader.layout, label, path.name, need_labels)
            check_columns(reader.layout, label, identity, drop, text, path.name)
            frame = clean_names(reader.table())
            if not frame.height:
                raise ValueError(f"{path.name} has no rows.")
            own = identity
            if own is None:
                own, found = find_id(frame.drop([c for c in (label, *drop, *text) if c in frame.columns]))
            else:
                check_id(frame[own])
            found += [] if own is None else id_notes(frame[own])
        codes, classes, said = np.full(frame.height, -1), [], []  # type: tuple[Any, Any, list[str]]
        if label is not None:
            codes, classes, said = parse_labels(frame[label], label, begun=not need_labels)
        aside = {label: "labels"} if kind == "pictures" else {label: "labels", own: "ids"}
        rest = frame.drop([name for name in frame.columns if name in aside or name in drop])
        telling = filled_with_labels(rest, codes >= 0)
        rest = rest.drop(telling)
        if telling:
            found.append(f"Left out, filled almost only in labeled rows: {listed(telling)}.")
        found += telling_notes(rest, codes)
        from sobgnn.tables.encoder import TableEncoder  # imports scikit-learn: a wrong file is named before

        root = path if kind == "pictures" else path.parent
        encoder = TableEncoder(tuple(text), (), text_model, root, image_model, random_state=seed)
        encoder._progress = progress
        X = encoder.fit_transform(rest) if rest.width else None
        encoder._progress = None
        if X is None or not encoder.columns_:
            why: dict[Any, str] = dict.fromkeys((*drop, *telling), "left out") | aside
            if rest.width:  # the encoder has given names to columns without one
                why |= dict(zip(rest.columns, encoder.outcomes_.values(), strict=True))
            raise ValueError(
                f"No column is left to learn from: {listed([f'{name} ({why[name]})' for name in frame.columns])}. Give "
                "at least one column of numbers, categories or text."
            )
        encoding_of = Encoding(encoder, label, own, (*drop, *telling))
        if encoding_of.pictures is not None and own is None:
            encoding_of = replace(encoding_of, id=encoding_of.pictures.name)
        empty = encoding_of.empty(frame)
        found += empty_notes(int(empty.sum()), int(empty.argmax()))
        unread = encoding_of.unread_pictures(X) & (codes >= 0)
        if kind == "pictures" and unread.any():  # nothing can be learned from them
            codes = np.where(unread, -1, codes)
            said.append(f"Labels of pictures that cannot be read, not used: {int(unread.sum()):,}.")
        ids = None if encoding_of.id is None else _ids(frame[encoding_of.id])
        said += _formulas(classes, ids)
        notes = [*reader.layout.notes, *reader.late(), *found, *encoder.notes_, *said]
        return Table(X, codes, classes, encoding_of, ids, None, notes, frame, reader.layout.separator)


def check_readable(path: Path) -> None:
    """Raise if the file does not exist, or its name has no suffix that can be read."""
    if file_kind(path) == "pictures":
        find_pictures(path)


def file_sheet(path: Path, encoding: Encoding, characters: str | None = None) -> Sheet:
    """How a spreadsheet writes CSV where a file comes from; arguments as for :func:`batches`."""
    with _one_line_errors(path):
        if file_kind(path) != "csv":
            return encoding.sheet(",")
        return encoding.sheet(find_layout(path, expected=encoding.names, encoding=characters).separator)


def batches(path: Path, encoding: Encoding, characters: str | None = None, sheet: str | None = None) -> Iterator[Batch]:
    """The file's rows in order, in batches, encoded by ``encoding``; memory does not grow with the file.

    Excel and JSON files are read whole. ``characters`` is the character encoding of a text file, ``sheet`` the name of
    a sheet of an Excel file; ``None`` detects them.
    """
    with _one_line_errors(path):
        kind = file_kind(path, characters, sheet)
        if kind == "npz":
            yield from point_batches(path, encoding)
            return
        reader = open_reader(path, expected=encoding.names, encoding=characters, sheet=sheet)
        encoding.check_repeats(reader.layout)
        encoding = encoding.in_folder(path if kind == "pictures" else path.parent)
        row, said, renamed = 0, (), {}  # type: tuple[int, tuple[str, ...], dict[str, str]]
        for frame in reader.frames():
            named = clean_names(as_frame(frame))
            if row == 0:
                renamed = encoding.renamed(named.columns)
                ignored = encoding.ignored(named.rename(renamed).columns)
                left_out = reader.layout.notes if kind == "pictures" else []
                said = (*left_out, *_column_notes(renamed, ignored))
            named = named.rename(renamed, strict=False)
            batch = encoding.batch(named, row)
            ids = _ids(named[encoding.id]) if encoding.id in named.columns else None
            labels = _labels(named[encoding.label]) if encoding.label in named.columns else None
            if labels is not None and kind == "pictures":
                labels[encoding.unread_pictures(batch.X)] = None  # as when a model is fitted
            yield replace(batch, ids=ids, said=said, labels=labels)
            row += frame.height


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """Turn what readers raise on bad files into one ValueError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except UnicodeError as error:
        raise ValueError(
            f"{path.name} cannot be read: it is not in this character encoding. Name another with --encoding."
        ) from error
    except ValueError as error:
        if "\n" not in str(error):
            raise
        raise ValueError(" ".join(str(error).split())) from error
    except BaseException as error:
        damaged = any(kind.__name__ in ("FastExcelError", "PanicException") for kind in type(error).__mro__)
        if not damaged and not isinstance(error, _DAMAGED):
            raise
        raise ValueError(
            f"{path.name} cannot be read: it is damaged, cut off, or not what its name says. Copy or save it again."
        ) from error


def _check_options(path: Path, kind: str, options: Mapping[str, object]) -> None:
    """Raise if an option names a column, or an array, for a kind of file that has none."""
    refused = {"npz": ("--drop", "--text"), "pictures": tuple(options)}.get(kind, ())
    wrong = next((option for option in refused if options[option]), None)
    if wrong is not None:
        raise ValueError(f"{wrong} names a column of a table, but {str(path)!r} is no table. Leave {wrong} out.")


def _folder_label(path: Path, frame: pl.DataFrame, needed: bool) -> str | None:
    """The column of the names of folders, unless all pictures are in one."""
    folders = frame["label"].drop_nulls().n_unique()
    if needed and folders < 2:
        raise ValueError(
            f"The subfolders of {str(path)!r} are the classes of its pictures: at least two are needed, but "
            f"got {folders}. `sobgnn label` opens a page to label them."
        )
    return "label" if folders else None


def _ids(series: pl.Series) -> npt.NDArray[Any]:
    return _objects(text_values(series).fill_null(""))


def _labels(series: pl.Series) -> npt.NDArray[Any] | None:
    """The text of labels, to compare predictions with, [rows]; ``None`` if none of them has one, as lists."""
    text = text_values(series)
    none = not is_text(series) and text.null_count() == text.len() > series.null_count()
    return None if none else _objects(text)


def _objects(series: pl.Series) -> npt.NDArray[Any]:
    """The values as Python objects, [rows]."""
    return np.array([*series.to_list(), None], dtype=object)[:-1]  # None, so that no list is taken for a dimension


def _formulas(classes: Sequence[Any], ids: npt.NDArray[Any] | None) -> list[str]:
    count = sum(is_formula(str(value)) for value in classes)
    count += 0 if ids is None else sum(is_formula(value) for value in ids.tolist())
    if not count:
        return []
    return [f"Labels and ids that a spreadsheet would run as formulas are written with ' before them: {count:,}."]


def _column_notes(renamed: Mapping[str, str], ignored: Sequence[str]) -> Iterator[str]:
    """Which columns of a file for predictions were matched in spite of their capitals, and which are not used."""
    if renamed:
        pairs = [f"{column} as {name}" for column, name in renamed.items()]
        yield f"Columns whose names differ from the model's only in capitals were matched: {listed(pairs)}."
    if ignored:
        yield f"Columns that the model was not fitted with, ignored: {listed(ignored)}."
