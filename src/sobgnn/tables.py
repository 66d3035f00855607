"""CSV, Parquet and NPZ files: read whole to fit, in batches to predict; files written whole or not at all."""

from __future__ import annotations

import contextlib
import gzip
import os
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn.encoding import Column, Encoding, choose_encoding, clean_names, parse_labels, text_values
from sobgnn.frames import csv_frames, parquet_frames, read_frame
from sobgnn.npz import read_arrays, row_blocks

if TYPE_CHECKING:
    import polars as pl

SUFFIXES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npz")


@dataclass(frozen=True)
class Table:
    """Points and what is known of them.

    Args:
        X: Features [N, F], float32 or scipy sparse, finite.
        codes: int64 [N], the class of each row, -1 where it is unknown.
        classes: What the codes stand for: text, or whole numbers.
        encoding: How X came from the file.
        ids: One text per row, or ``None``.
        graph: A graph that came with the data, or ``None``.
        notes: Sentences about what the rules did.
    """

    X: Any
    codes: npt.NDArray[np.int64]
    classes: Sequence[str] | Sequence[int]
    encoding: Encoding
    ids: npt.NDArray[Any] | None = None
    graph: Any = None
    notes: list[str] = field(default_factory=list)

    def labels(self, codes: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """Labels for the estimator: whole numbers with -1, or text with None, where the code is -1."""
        if isinstance(self.classes[0], str):
            return np.array([*self.classes, None], dtype=object)[codes]
        return np.array([*self.classes, -1], dtype=np.int64)[codes]


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a file: the first row's number, features float32 [rows, F], and ids where there are."""

    first_row: int
    X: npt.NDArray[np.float32]
    ids: npt.NDArray[Any] | None


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


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when the block ends well, and not at all when it fails."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Name a file with --out.")
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_predictions(
    file: IO[bytes],
    classes: Sequence[Any],
    first_row: int,
    label: npt.NDArray[Any],
    probability: npt.NDArray[Any],
    ids: npt.NDArray[Any] | None,
    *,
    header: bool,
) -> None:
    """Append rows: row, id where there are ids, label, and ``probability_<class>`` for each class."""
    import polars as pl

    columns: dict[str, Any] = {"row": np.arange(first_row, first_row + len(label))}
    if ids is not None:
        columns["id"] = pl.Series(ids.tolist(), dtype=pl.String)
    columns["label"] = pl.Series([str(value) for value in label.tolist()], dtype=pl.String)
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


def from_arrays(
    X: Any,
    y: npt.NDArray[Any],
    *,
    label: str = "y",
    ids: npt.NDArray[Any] | None = None,
    class_names: Sequence[str] | None = None,
    graph: Any = None,
) -> Table:
    """Points [N, F] and labels [N] as a table: missing features filled with medians, classes by their names."""
    import polars as pl

    codes, classes, notes = parse_labels(pl.Series(label, y.tolist(), strict=False), label)
    if class_names is not None and not isinstance(classes[0], str) and int(classes[-1]) < len(class_names):
        named = [str(class_names[int(code)]) for code in classes]
        classes = named if len(set(named)) == len(named) else classes
    fill = np.zeros(X.shape[1])
    if not sp.issparse(X):
        X, fill, missing = _filled(X)
        if missing:
            notes.insert(0, f"Missing values filled with the feature's median: {missing:,}.")
    encoding = Encoding(tuple(Column(str(i), "number", float(f)) for i, f in enumerate(fill)), named=False)
    names = None if ids is None else np.array([str(value) for value in ids.tolist()], dtype=object)
    return Table(X, codes, classes, encoding, names, graph, notes)


def from_dataset(name: str) -> Table:
    """A data set by its name."""
    from sobgnn import datasets

    data = datasets.load(name)
    return from_arrays(data.X, data.y, class_names=data.class_names, graph=_graph(data.edge_index, data.X.shape[0]))


def _filled(X: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float64], int]:
    with np.errstate(over="ignore"):
        out = X.astype(np.float32)
    hole = ~np.isfinite(out)
    fill = np.zeros(X.shape[1])
    for column in range(X.shape[1]):
        known = out[~hole[:, column], column]
        fill[column] = float(np.median(known)) if known.size else 0.0
    rows, columns = np.nonzero(hole)
    out[rows, columns] = fill[columns]
    return out, fill, int(rows.size)


def _read_npz(path: Path, label: str | None, identity: str | None) -> Table:
    arrays = read_arrays(path, label or "y", identity)
    graph = _graph(arrays.edge_index, arrays.X.shape[0])
    return from_arrays(
        arrays.X, arrays.y, label=label or "y", ids=arrays.ids, class_names=arrays.class_names, graph=graph
    )


def _graph(edge_index: npt.NDArray[Any] | None, nodes: int) -> Any:
    if edge_index is None:
        return None
    from sobgnn.graph import Graph

    return Graph.from_edges(edge_index, num_nodes=nodes, symmetrize="union")


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
