"""CSV, Parquet and NPZ files: read whole to fit, in batches to predict; files written whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.tables.encoding import Encoding, choose_encoding, clean_names, parse_labels, text_values
from sobgnn.tables.frames import csv_frames, parquet_frames, read_frame
from sobgnn.tables.npz import read_arrays, row_blocks
from sobgnn.tables.table import Batch, Table, from_arrays, graph_of

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npz")


def is_file_name(data: str) -> bool:
    """Whether DATA on the command line means a file, and not the name of a data set."""
    return data.lower().endswith(SUFFIXES) or Path(data).exists()


def file_stem(path: Path) -> str:
    """The file's name without its known suffix."""
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        if path.name.lower().endswith(suffix):
            return path.name[: -len(suffix)]
    return path.stem


def read_table(path: Path, label: str | None = None, identity: str | None = None, drop: Sequence[str] = ()) -> Table:
    """The whole file, encoded. ``label`` and ``identity`` name columns (in NPZ: arrays)."""
    with _one_line_errors(path):
        if _kind(path) == "npz":
            return _read_npz(path, label, identity)
        frame, label, identity = read_frame(path, label, identity, drop)
        notes = []
        if identity is not None:
            notes.append(f"Rows are named by column {identity!r}.")
        encoding, more = choose_encoding(frame, label, identity, drop)
        codes, classes, labels_said = parse_labels(frame[label], label)
        ids = None if identity is None else _ids(frame[identity])
        return Table(encoding.features(frame), codes, classes, encoding, ids, None, notes + more + labels_said)


def check_readable(path: Path) -> None:
    """Raise where the file is not there, or its name is of no kind that can be read."""
    if not path.exists():
        raise ValueError(f"There is no file {str(path)!r}.")
    _kind(path)


def batches(path: Path, encoding: Encoding) -> Iterator[Batch]:
    """The file's rows in order, some at a time, encoded as ``encoding`` says; memory does not grow with the file."""
    with _one_line_errors(path):
        kind = _kind(path)
        if kind == "npz":
            yield from _npz_batches(path, encoding)
            return
        row = 0
        for frame in csv_frames(path) if kind == "csv" else parquet_frames(path):
            X = encoding.features(frame, row)
            named = clean_names(frame)
            ids = _ids(named[encoding.id]) if encoding.id in named.columns else None
            yield Batch(row, X, ids)
            row += frame.height


def write_predictions(
    file: IO[bytes],
    classes: Sequence[Any],
    first_row: int,
    label: npt.NDArray[Any],
    probability: npt.NDArray[Any],
    ids: npt.NDArray[Any] | None,
    *,
    header: bool,
    extra: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Append rows: row, id where there are ids, label, columns of ``extra``, ``probability_<class>`` for each class."""
    import polars as pl

    columns: dict[str, Any] = {"row": np.arange(first_row, first_row + len(label))}
    if ids is not None:
        columns["id"] = pl.Series(ids.tolist(), dtype=pl.String)
    columns["label"] = pl.Series([str(value) for value in label.tolist()], dtype=pl.String)
    columns |= {name: pl.Series(list(values), dtype=pl.String) for name, values in (extra or {}).items()}
    for index, name in enumerate(classes):
        columns[f"probability_{name}"] = probability[:, index].astype(np.float64)
    pl.DataFrame(columns).write_csv(file, include_header=header, float_precision=6)


@contextlib.contextmanager
def _one_line_errors(path: Path) -> Iterator[None]:
    """What readers raise on bad files, as one ValueError that names the file."""
    import polars.exceptions

    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"There is no file {str(path)!r}.") from None
    except (polars.exceptions.PolarsError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path.name} cannot be read: {reason[0][:200]}") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path.name} cannot be read: its compressed data is damaged ({error}).") from error
    except UnicodeDecodeError:
        raise ValueError(f"{path.name} cannot be read: it is not UTF-8 text.") from None


def _kind(path: Path) -> str:
    name = path.name.lower().removesuffix(".gz")
    if path.is_dir():
        raise ValueError(f"{str(path)!r} is a folder. Give a CSV, Parquet or NPZ file.")
    for suffix, kind in ((".csv", "csv"), (".tsv", "csv"), (".parquet", "parquet"), (".npz", "npz")):
        if name.endswith(suffix):
            return kind
    raise ValueError(f"The file's name must end in {', '.join(SUFFIXES)}, but got {path.name!r}.")


def _ids(series: pl.Series) -> npt.NDArray[Any]:
    return np.array(text_values(series).fill_null("").to_list(), dtype=object)


def _read_npz(path: Path, label: str | None, identity: str | None) -> Table:
    arrays = read_arrays(path, label or "y", identity)
    graph = graph_of(arrays.edge_index, arrays.X.shape[0])
    return from_arrays(
        arrays.X, arrays.y, label=label or "y", ids=arrays.ids, class_names=arrays.class_names, graph=graph
    )


def _npz_batches(path: Path, encoding: Encoding) -> Iterator[Batch]:
    if any(column.kind != "number" for column in encoding.columns):
        raise ValueError(
            "The model was fitted on text columns, which an array does not have. Give a CSV or Parquet file."
        )
    fill = np.array([column.fill for column in encoding.columns], dtype=np.float32)
    row = 0
    for block in row_blocks(path):
        if block.shape[1] != len(fill):
            raise ValueError(f"The model was fitted on {len(fill)} features, but X has {block.shape[1]}.")
        with np.errstate(over="ignore"):
            X = block.astype(np.float32)
        if not sp.issparse(X):
            X = np.where(np.isfinite(X), X, fill)
        yield Batch(row, X, None)
        row += block.shape[0]
