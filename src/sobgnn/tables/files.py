"""Files and folders of points: read at once for a fit, in batches for predictions."""

from __future__ import annotations

import contextlib
import csv
import gzip
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sobgnn.runtime.files import check_regular
from sobgnn.tables.columns import clean_names, listed, shortened, text_values
from sobgnn.tables.conversion import as_frame
from sobgnn.tables.encoder import TableEncoder
from sobgnn.tables.encoding import Batch, Encoding
from sobgnn.tables.formats import find_layout
from sobgnn.tables.frames import csv_frames, parquet_frames, read_frame
from sobgnn.tables.labels import begun_labels, parse_labels
from sobgnn.tables.leaks import filled_with_labels, telling_notes
from sobgnn.tables.lines import line_frames
from sobgnn.tables.notes import empty_notes
from sobgnn.tables.npz import one_per_row, read_arrays, row_blocks, row_ids
from sobgnn.tables.pictures import SUFFIXES as PICTURE_SUFFIXES
from sobgnn.tables.pictures import UNREAD, folder_labels, left_out, list_pictures, unlabeled_notes
from sobgnn.tables.predictions import Sheet, is_formula
from sobgnn.tables.table import Table, from_arrays, graph_of

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (
    ".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".parquet", ".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz",
    ".npz", ".npy",
)  # fmt: skip
# What a name that cannot be read may end in, and the way out.
_HINTS = {
    (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods"): "Save the sheet as CSV.",
    (".json",): "Save it as JSON lines, one object per line (.jsonl), or as CSV.",
}
_PICTURES_AT_ONCE = 1024


def is_file_name(data: str) -> bool:
    """Whether DATA on the command line means a file or folder, and not the name of a data set."""
    return any(sign in data for sign in "./\\") or Path(data).exists()


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
    text_model: str | Path | None = None,
    image_model: str | Path | None = None,
    encoding: str | None = None,
    need_labels: bool = True,
    seed: int = 0,
) -> Table:
    """The whole file or folder of pictures, encoded.

    Args:
        path: CSV, Parquet, NPZ or NPY file, or JSON lines; or a folder of pictures whose subfolders are classes.
        label: Name of the label column (in NPZ: array); ``None`` detects it.
        identity: Name of the column of ids; ``None`` detects it, if there is one.
        drop: Columns to leave out.
        text: Columns that are text, whatever they look like.
        text_model: Folder of a text model, see :class:`~sobgnn.tables.TableEncoder`.
        image_model: File of an image model.
        encoding: Character encoding of a text file, such as ``"shift_jis"``; ``None`` detects it.
        need_labels: Whether a table without a label column is an error. Otherwise all codes are -1.
        seed: Seed of the encoder.
    """
    with _one_line_errors(path):
        kind = _kind(path)
        _check_encoding(path, kind, encoding)
        for option, model in (("--text-model", text_model), ("--image-model", image_model)):
            if model is not None and not Path(model).exists():
                raise ValueError(f"No such file: {str(model)!r}, given by {option}.")
        _check_columns_asked(path, kind, {"--drop": drop, "--text": text, "--label": label, "--id": identity})
        if kind == "npz":
            return _read_npz(path, label, identity, need_labels)
        asked, notes, separator = identity, [], ","  # type: tuple[str | None, list[str], str]
        if kind == "pictures":
            frame = _picture_frame(path)
            notes = left_out(path) + unlabeled_notes(frame["image"].to_list())
            folders = frame["label"].drop_nulls().n_unique()
            if need_labels and folders < 2:
                raise ValueError(
                    f"The subfolders of {str(path)!r} are the classes of its pictures: at least two are needed, but "
                    f"got {folders}. `sobgnn label` opens a page to label them."
                )
            label, identity = ("label" if folders else None), "image"
        else:
            frame, label, identity, notes, separator = read_frame(path, label, identity, drop, need_labels, encoding)
        if label is not None and (label == identity or label in drop):
            raise ValueError(f"Column {label!r} holds the labels, so it can be neither the id nor left out.")
        root = path if kind == "pictures" else path.parent
        if identity is not None and kind != "pictures":
            notes += _id_notes(frame[identity])
        aside = [n for n in (label, identity) if n is not None and not (kind == "pictures" and n == "image")]
        wrong = [name for name in text if name not in frame.columns or name in aside]
        if wrong:
            raise ValueError(f"--text names {wrong[0]!r}, but the columns of {path.name} are {listed(frame.columns)}.")
        codes, classes, said = np.full(frame.height, -1), [], []  # type: tuple[Any, Any, list[str]]
        if label is not None:
            codes, classes, said = (parse_labels if need_labels else begun_labels)(frame[label], label)
        encoder = TableEncoder(tuple(text), (), text_model, root, image_model, random_state=seed)
        dropped = [name for name in drop if name not in aside]
        rest = frame.drop([*aside, *dropped])
        told = filled_with_labels(rest, codes >= 0)
        if told:
            rest = rest.drop(told)
            notes.append(f"Left out, filled almost only in labeled rows: {listed(told)}.")
        notes += telling_notes(rest, codes)
        X = encoder.fit_transform(rest) if rest.width else None
        if X is None or not encoder.columns_:
            why: dict[Any, str] = dict.fromkeys((*dropped, *told), "left out") | {label: "labels", identity: "ids"}
            why |= encoder.outcomes_ if rest.width else {}
            columns = [f"{name} ({why[name]})" for name in frame.columns]
            raise ValueError(
                f"No column is left to learn from: {listed(columns)}. Give at least one column of numbers, categories "
                "or text."
            )
        made = Encoding(encoder, label, identity, (*dropped, *told))
        empty = made.empty(frame)
        notes += empty_notes(int(empty.sum()), int(empty.argmax()))
        if kind == "pictures":
            codes, lost = _without_unread(codes, made.unread_pictures(X))
            said += lost
        if made.pictures is not None and identity is None:
            identity = made.pictures.name
            made = replace(made, id=identity)
        ids = None if identity is None else _ids(frame[identity])
        if asked is not None and ids is not None and 2 * len(set(ids.tolist())) < len(ids):
            raise ValueError(
                f"--id names {asked!r}, but its {len(set(ids.tolist())):,} values do not identify {len(ids):,} rows."
            )
        said += _formulas(classes, ids)
        return Table(X, codes, classes, made, ids, None, notes + encoder.notes_ + said, frame, separator)


def _check_columns_asked(path: Path, kind: str, options: Mapping[str, object]) -> None:
    """Raise if an option names a column, or an array, for a kind of file that has none."""
    refused = {"npz": ("--drop", "--text"), "pictures": tuple(options)}.get(kind, ())
    wrong = next((option for option in refused if options[option]), None)
    if wrong is not None:
        raise ValueError(f"{wrong} names a column of a table, but {str(path)!r} is no table. Leave {wrong} out.")


def _check_encoding(path: Path, kind: str, encoding: str | None) -> None:
    if encoding is not None and kind != "csv":
        raise ValueError(f"--encoding is for text files, but {str(path)!r} is not one. Leave it out.")


def check_readable(path: Path) -> None:
    """Raise if the file does not exist, or its name has no suffix that can be read."""
    _kind(path)


def file_sheet(path: Path, encoding: Encoding, characters: str | None = None) -> Sheet:
    """How a spreadsheet writes CSV where a file comes from; arguments as for :func:`batches`."""
    with _one_line_errors(path):
        if _kind(path) != "csv":
            return encoding.sheet(",")
        return encoding.sheet(find_layout(path, expected=encoding.names, encoding=characters).separator)


def batches(path: Path, encoding: Encoding, characters: str | None = None) -> Iterator[Batch]:
    """The file's rows in order, in batches, encoded by ``encoding``; memory does not grow with the file.

    ``characters`` is the character encoding of a text file; ``None`` detects it.
    """
    with _one_line_errors(path):
        kind = _kind(path)
        _check_encoding(path, kind, characters)
        if kind == "npz":
            yield from _npz_batches(path, encoding)
            return
        encoding = encoding.in_folder(path if kind == "pictures" else path.parent)
        readers = {"parquet": parquet_frames, "lines": line_frames, "pictures": _picture_frames}
        row, renamed = 0, {}  # type: tuple[int, dict[str, str]]
        said: tuple[str, ...] = tuple(left_out(path)) if kind == "pictures" else ()
        for frame in (
            readers[kind](path)
            if kind in readers
            else csv_frames(path, encoding.check_repeats, encoding.names, characters)
        ):
            named = clean_names(as_frame(frame))
            if row == 0:
                renamed = encoding.renamed(named.columns)
                said += (*_renamed_notes(renamed), *_ignored_notes(encoding.ignored(named.rename(renamed).columns)))
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
    import polars.exceptions

    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except (polars.exceptions.PolarsError, zipfile.BadZipFile, EOFError, NotImplementedError, csv.Error) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path.name} cannot be read: {reason[0][:200]}") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} cannot be read: its compressed data is damaged ({error}).") from error
    except UnicodeError as error:
        raise ValueError(f"{path.name} cannot be read: {str(error)[:120]}.") from None
    except ValueError as error:
        if "\n" not in str(error):
            raise
        raise ValueError(" ".join(str(error).split())) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # from polars, on some damaged files; not an Exception in Python
            raise
        raise ValueError(f"{path.name} cannot be read: {' '.join(str(error).split())[:160]}") from None


def _kind(path: Path) -> str:
    if path.is_dir():
        if not list_pictures(path):
            unread = " ".join(left_out(path))
            hint = unread or "Give a CSV, Parquet or NPZ file, or JSON lines."
            raise ValueError(
                f"{str(path)!r} is a folder without pictures{' that can be read' if unread else ''}. {hint}"
            )
        return "pictures"
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}.")
    check_regular(path)
    name = path.name.lower()
    known = {
        ".csv": "csv", ".tsv": "csv", ".txt": "csv", ".jsonl": "lines", ".ndjson": "lines", ".parquet": "parquet",
        ".npz": "npz", ".npy": "npz",
    }  # fmt: skip
    for suffix, kind in known.items():
        if (name.removesuffix(".gz") if kind in ("csv", "lines") else name).endswith(suffix):
            return kind
    if name.endswith((*PICTURE_SUFFIXES, *UNREAD)):
        raise ValueError(f"Pictures are given as a folder, but got the file {path.name!r}. Put it into a folder.")
    hint = next((f" {said}" for ends, said in _HINTS.items() if name.endswith(ends)), "")
    raise ValueError(f"The file's name must end in {', '.join(SUFFIXES)}, but got {path.name!r}.{hint}")


def _ids(series: pl.Series) -> npt.NDArray[Any]:
    return _objects(text_values(series).fill_null(""))


def _labels(series: pl.Series) -> npt.NDArray[Any] | None:
    """The text of labels, to compare predictions with, [rows]; ``None`` if they cannot be text, such as lists."""
    import polars.exceptions

    try:
        return _objects(text_values(series))
    except polars.exceptions.PolarsError:
        return None


def _id_notes(series: pl.Series) -> list[str]:
    """Which column names the rows, and how many rows share their name with another."""
    known = text_values(series).drop_nulls()
    repeated = known.filter(known.is_duplicated())
    shared = (
        f" {repeated.len():,} rows share theirs with others, such as {shortened(repeated[0])}."
        if repeated.len()
        else ""
    )
    return [f"Rows are named by column {series.name!r}.{shared}"]


def _objects(series: pl.Series) -> npt.NDArray[Any]:
    """The values as Python objects, [rows]."""
    return np.array([*series.to_list(), None], dtype=object)[:-1]  # None, so that no list is taken for a dimension


def _without_unread(
    codes: npt.NDArray[np.int64], unread: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Codes without those of pictures that cannot be read, from which nothing can be learned, and a sentence."""
    lost = int((unread & (codes >= 0)).sum())
    if not lost:
        return codes, []
    return np.where(unread, -1, codes), [f"Labels of pictures that cannot be read, not used: {lost:,}."]


def _formulas(classes: Sequence[Any], ids: npt.NDArray[Any] | None) -> list[str]:
    count = sum(is_formula(str(value)) for value in classes)
    count += 0 if ids is None else sum(is_formula(value) for value in ids.tolist())
    if not count:
        return []
    return [f"Labels and ids that a spreadsheet would run as formulas are written with ' before them: {count:,}."]


def _renamed_notes(renamed: Mapping[str, str]) -> list[str]:
    if not renamed:
        return []
    pairs = [f"{column} as {name}" for column, name in renamed.items()]
    return [f"Columns whose names differ from the model's only in capitals were matched: {listed(pairs)}."]


def _ignored_notes(columns: Sequence[str]) -> list[str]:
    return [f"Columns that the model was not fitted with, ignored: {listed(columns)}."] if columns else []


def _picture_frame(folder: Path) -> pl.DataFrame:
    import polars as pl

    names = list_pictures(folder)
    return pl.DataFrame({"image": names, "label": pl.Series(folder_labels(names), dtype=pl.String)})


def _picture_frames(folder: Path) -> Iterator[pl.DataFrame]:
    frame = _picture_frame(folder)
    for first in range(0, frame.height, _PICTURES_AT_ONCE):
        yield frame.slice(first, _PICTURES_AT_ONCE)


def _read_npz(path: Path, label: str | None, identity: str | None, need_labels: bool) -> Table:
    held = read_arrays(path, label or "y", identity, need_labels)
    graph = graph_of(held.edge_index, held.X.shape[0])
    return from_arrays(
        held.X,
        held.y,
        label=label or "y",
        ids=held.ids,
        id_name=identity,
        class_names=held.class_names,
        graph=graph,
        need_labels=need_labels,
    )


def _npz_batches(path: Path, encoding: Encoding) -> Iterator[Batch]:
    if any(column.kind != "number" for column in encoding.columns):
        raise ValueError(
            "The model was fitted on columns that are not all numbers, which an array does not have. "
            "Give a CSV or Parquet file."
        )
    ids = None if encoding.id is None else row_ids(path, encoding.id)
    row, name = 0, str(encoding.id)
    for block in row_blocks(path):
        rows = block.shape[0]
        own = None if ids is None else one_per_row(ids[row : row + rows], name, rows)
        yield replace(encoding.array_batch(block, row), ids=own)
        row += rows
    if ids is not None:
        one_per_row(ids, name, row)
