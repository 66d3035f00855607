"""The rows that a user has: points and ids in Parquet or .npy files, and the labels of some ids."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import numpy.typing as npt
from fsspec.implementations.local import LocalFileSystem

from sobgnn.sharded.store import load_mapped, npy_header, read_rows

# Rows that are read at once.
_PART = 1 << 18
Array = npt.NDArray[Any]


class Source:
    """Files of rows, in the order of their names.

    Attributes:
        files: URL, number of rows and bytes of each file.
        points: The column of points in Parquet files; ``None``: all columns of numbers but the id.
        identity: The column of ids; ``None``: rows are numbered from 0.
        columns: The columns that are read, and their types as text.
        width: Columns of the points.
    """

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.files = [tuple(file) for file in about["files"]]
        self.points, self.identity = about["points"], about["identity"]
        self.columns, self.width = dict(about["columns"]), int(about["width"])

    @classmethod
    def of(cls, data: str | os.PathLike[str] | Sequence[Any], points: str | None, identity: str | None) -> Source:
        """Look at the headers of files: a pattern such as ``"s3://b/part-*.parquet"``, a folder, or a list of files."""
        found, first = [], None
        for url in _listed(data):
            files, path = fsspec.core.url_to_fs(url)
            size = int(files.info(path)["size"])
            try:
                rows, columns = _header(url)
            except FileNotFoundError:
                raise
            except PermissionError as error:
                raise ValueError(f"{url} may not be read: {error.strerror or error}.") from None
            except Exception as error:
                raise ValueError(
                    f"{url} is no whole .npy or Parquet file: {' '.join(str(error).split())[:200]}"
                ) from None
            if first is None:
                first = columns
                points, identity, columns = _chosen(url, columns, points, identity)
                own = cls({"files": [], "points": points, "identity": identity, "columns": columns, "width": 0})
            missing = [name for name, kind in own.columns.items() if columns.get(name) != kind]
            if missing:
                raise ValueError(
                    f"{url} has other columns than the first file: {missing[0]!r} is "
                    f"{columns.get(missing[0], 'missing')}, but {own.columns[missing[0]]} there."
                )
            found.append((url, rows, size))
        own.files = found
        filled = next((number for number, (_, rows, _) in enumerate(found) if rows), None)
        own.width = 0 if filled is None else len(own.read(filled, 0, 1)[1][0])
        return own

    def about(self) -> dict[str, Any]:
        """The attributes, as JSON."""
        return {name: getattr(self, name) for name in ("files", "points", "identity", "columns", "width")}

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(rows for _, rows, _ in self.files)

    def parts(self) -> list[tuple[int, int, int, int]]:
        """Pieces of files that are read at once: file, first and last row, and the number of its first row."""
        parts, before = [], 0
        for number, (url, rows, _) in enumerate(self.files):
            # A file of a bucket is read as a whole anyway if it is Parquet.
            step = _PART if _is_local(url) or url.endswith(".npy") else max(1, rows)
            parts += [(number, s, min(s + step, rows), before + s) for s in range(0, rows, step)]
            before += rows
        return parts

    def read(self, file: int, start: int, stop: int) -> tuple[Array, Array]:
        """Ids [M] and points [M, F] of rows of a file; raises if they are not finite numbers of one width."""
        url, rows, _ = self.files[file]
        before = sum(count for _, count, _ in self.files[:file])
        try:
            ids, points = self._read(url, start, stop)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{url} cannot be read: {' '.join(str(error).split())[:200]}") from None
        if len(points) != min(stop, rows) - start:
            raise ValueError(f"{url} is cut: it has fewer rows than its header says.")
        if self.width and points.shape[1:] != (self.width,):
            raise ValueError(f"{url} has points of {points.shape[1:]} columns, but the first file of {self.width}.")
        bad = np.flatnonzero(~np.isfinite(points).all(axis=1))
        if len(bad):
            raise ValueError(
                f"{url} has {len(bad)} of {len(points)} rows from {start} with NaN or infinity (first: row "
                f"{start + bad[0]}). Impute or drop them: neighbors are undefined there."
            )
        return np.arange(before + start, before + stop) if ids is None else ids, points

    def _read(self, url: str, start: int, stop: int) -> tuple[Array | None, Array]:
        import polars as pl

        files, path = fsspec.core.url_to_fs(url)
        if url.endswith(".npy"):
            if isinstance(files, LocalFileSystem):
                return None, np.asarray(load_mapped(path)[start:stop])
            with files.open(path, "rb") as file:
                return None, read_rows(file, start, stop)
        names = list(self.columns)
        if isinstance(files, LocalFileSystem):
            frame = pl.scan_parquet(path, glob=False).select(names).slice(start, stop - start).collect()
        else:
            with files.open(path, "rb") as file:
                frame = pl.read_parquet(file, columns=names).slice(start, stop - start)
        ids = None
        if self.identity is not None:
            column = frame[self.identity]
            if column.null_count():
                raise ValueError(f"column {self.identity!r} has blank ids")
            ids = column.to_numpy() if column.dtype.is_integer() else column.cast(pl.String).to_numpy().astype("U")
        if self.points is None:
            return ids, frame.drop(self.identity or [], strict=False).to_numpy().astype(np.float32)
        column = frame[self.points]
        if column.null_count():
            raise ValueError(f"column {self.points!r} has {column.null_count()} blank cells")
        if isinstance(column.dtype, pl.List):
            lengths = column.list.len().unique()
            if len(lengths) > 1:
                raise ValueError(f"column {self.points!r} has points of {lengths.min()} to {lengths.max()} numbers")
            column = column.list.to_array(int(lengths[0])) if len(lengths) else column
        return ids, column.to_numpy()


def _listed(data: Any) -> list[str]:
    """URLs or absolute paths of the files that are meant, sorted."""
    if isinstance(data, (str, os.PathLike)):
        files, path = fsspec.core.url_to_fs(os.fspath(data))
        local = isinstance(files, LocalFileSystem)
        if not any(sign in path for sign in "*?["):
            path = path.rstrip("/") + "/*" if files.isdir(path) else path
        try:
            names = sorted(files.glob(path)) if any(sign in path for sign in "*?[") else [path]
        except PermissionError as error:
            raise ValueError(f"{os.fspath(data)} may not be read: {error}.") from None
        names = [name for name in names if name.endswith((".npy", ".parquet"))]
        urls = [name if local else files.unstrip_protocol(name) for name in names]
    else:
        urls = [url for one in data for url in _listed(one)]
    if not urls:
        raise ValueError(f"There is no .npy or .parquet file {str(data)!r:.200}.")
    for url in urls:
        files, path = fsspec.core.url_to_fs(url)
        try:
            there = files.exists(path)
        except PermissionError as error:
            raise ValueError(f"{url} may not be read: {error}.") from None
        if not there:
            raise ValueError(f"There is no file {url!r}.")
    return urls


def _header(url: str) -> tuple[int, dict[str, str]]:
    """Number of rows, and the columns with their types."""
    import polars as pl

    files, path = fsspec.core.url_to_fs(url)
    with files.open(path, "rb") as file:
        if url.endswith(".npy"):
            shape, dtype = npy_header(file)
            if len(shape) != 2 or dtype.kind not in "fiu":
                raise ValueError(f"its array must be numbers [rows, columns], but is {dtype} {list(shape)}")
            whole = file.tell() + shape[0] * shape[1] * dtype.itemsize
            if int(files.info(path)["size"]) < whole:
                raise ValueError("it is cut")
            return shape[0], {"points": f"{shape[1]} columns"}
        scan = pl.scan_parquet(path, glob=False) if isinstance(files, LocalFileSystem) else pl.scan_parquet(file)
        columns = {name: str(kind) for name, kind in scan.collect_schema().items()}
        return int(scan.select(pl.len()).collect().item()), columns


def _chosen(
    url: str, columns: dict[str, str], points: str | None, identity: str | None
) -> tuple[str | None, str | None, dict[str, str]]:
    """The column of points, that of ids, and the columns that are read."""
    if url.endswith(".npy"):
        return None, None, columns
    for name in (points, identity):
        if name is not None and name not in columns:
            raise ValueError(f"{url} has no column {name!r:.60}, but {', '.join(columns):.200}.")
    identity = "id" if identity is None and "id" in columns else identity
    vectors = [name for name, kind in columns.items() if kind.startswith(("List", "Array"))]
    if points is None and len(vectors) == 1:
        points = vectors[0]
    numbers = [name for name, kind in columns.items() if kind.startswith(("Float", "Int", "UInt")) and name != identity]
    names = [points] if points is not None else numbers
    if not names or (points is None and len(vectors) > 1):
        raise ValueError(f"Name the column of points: {url} has {', '.join(columns):.200}.")
    return points, identity, {name: columns[name] for name in [*names, *([identity] if identity else [])]}


def _is_local(url: str) -> bool:
    return isinstance(fsspec.core.url_to_fs(url)[0], LocalFileSystem)


def read_labels(labels: Any, identity: str | None) -> tuple[list[Any], list[Any]]:
    """Ids and labels: of a CSV file, a frame with a column of ids and one of labels, or a mapping of id to label."""
    import polars as pl

    if isinstance(labels, Mapping):
        return list(labels.keys()), list(labels.values())
    if isinstance(labels, (str, os.PathLike)):
        if not Path(labels).is_file():
            raise ValueError(f"There is no file {os.fspath(labels)!r} of labels.")
        try:
            frame = pl.read_csv(Path(labels), infer_schema=False)
        except Exception as error:
            raise ValueError(f"{labels} is no CSV file: {' '.join(str(error).split())[:200]}") from None
    else:
        frame = labels if isinstance(labels, pl.DataFrame) else pl.from_pandas(labels)
    names = frame.columns
    own = next((name for name in (identity, "id", "row", names[0]) if name in names), names[0])
    others = [name for name in names if name != own]
    label = next((name for name in ("label", "y", "class", "target") if name in others), others[0] if others else None)
    if label is None or (len(others) > 1 and label not in ("label", "y", "class", "target")):
        raise ValueError(f"Labels need a column of ids and a column label, but have {', '.join(names):.200}.")
    return frame[own].to_list(), frame[label].to_list()


def as_ids(ids: Sequence[Any], like: Array) -> Array:
    """Ids of labels [L] in the type of the rows' ids."""
    if like.dtype.kind in "iu":
        try:
            return np.array([int(one) for one in ids], np.int64)
        except (ValueError, TypeError):
            wrong = next(one for one in ids if not str(one).lstrip("-").isdecimal())
            raise ValueError(f"Labels name the id {wrong!r:.60}, but ids of rows are whole numbers.") from None
    return np.array([str(one) for one in ids], "U")


def keys_of(ids: Array) -> npt.NDArray[np.uint64]:
    """A number for each id; whole numbers are their own, so that only texts can share one by chance."""
    if ids.dtype.kind in "iu":
        return ids.astype(np.int64).view(np.uint64)
    import polars as pl

    return pl.Series(ids.tolist(), dtype=pl.String).hash(seed=0).to_numpy().astype(np.uint64)
