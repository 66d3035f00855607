"""CSV and Parquet files as polars tables: whole, or some rows at a time."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from sobgnn.tables.encoding import BLANKS, clean_names, label_names, shortened

if TYPE_CHECKING:
    import polars as pl

_BLOCK_BYTES = 8 * 2**20
_HEADER_BYTES = 16 * 2**20
_BATCH_CELLS = 4 * 2**20


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.name.lower().endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _header(path: Path) -> tuple[bytes, str]:
    """The first line and the separator: of comma, semicolon and tab the one it holds most."""
    with _open(path) as file:
        line = file.readline(_HEADER_BYTES)
    if not line.strip():
        raise ValueError(f"{path.name} is empty. Its first line must name the columns.")
    if b"\0" in line:
        raise ValueError(f"{path.name} is not a CSV file: its first line holds zero bytes.")
    separator = max(",;\t", key=lambda s: line.count(s.encode()))
    line.decode()
    return line, separator


def _parse_csv(source: Any, separator: str, **options: Any) -> pl.DataFrame:
    import polars as pl

    frame = pl.read_csv(source, separator=separator, null_values=list(BLANKS), glob=False, **options)
    if frame.width < 2 or not frame.height:
        return frame
    return frame.filter(~pl.all_horizontal(pl.all().is_null()))  # blank lines are no rows


def read_frame(
    path: Path, label: str | None, identity: str | None, drop: Sequence[str]
) -> tuple[pl.DataFrame, str, str | None]:
    """The table with cleaned names, and the names of its label and id columns.

    An id column is taken by its name, id, where none is given and no value repeats.
    """
    import polars as pl

    separator = ","
    if not is_parquet(path):
        line, separator = _header(path)
        columns = _parse_csv(line, separator, infer_schema=False).columns
        if len(columns) > 1 and all(_is_number(name.strip()) for name in columns):
            raise ValueError(f"The first line of {path.name} holds numbers only. It must name the columns.")
    else:
        columns = list(pl.read_parquet_schema(path))
    label = _find_label(columns, label, path.name)
    for name, option in [(identity, "--id"), *((name, "--drop") for name in drop)]:
        if name is not None and name not in [column.strip() for column in columns]:
            raise ValueError(f"{option} names {name!r}, but the columns of {path.name} are {_some(columns)}.")
    if is_parquet(path):
        frame = clean_names(pl.read_parquet(path))
    else:
        # Labels and ids stay as written: 007 is not 7, and 1.10 is not 1.1.
        as_text = {c: pl.String for c in columns if c.strip() in (label, identity) or c.strip().lower() == "id"}
        source: Any = path
        if path.name.lower().endswith(".gz"):
            with _open(path) as file:
                source = file.read()
        frame = clean_names(_parse_csv(source, separator, infer_schema_length=None, schema_overrides=as_text))
    if not frame.height:
        raise ValueError(f"{path.name} has no rows.")
    if identity is None:
        found = [c for c in frame.columns if c.lower() == "id" and c != label and c not in drop]
        if found and frame[found[0]].n_unique() == frame.height:
            identity = found[0]
    return frame, label, identity


def is_parquet(path: Path) -> bool:
    """Whether the name says Parquet."""
    return path.name.lower().endswith(".parquet")


def _find_label(columns: Sequence[str], label: str | None, file: str) -> str:
    if label is not None:
        if label not in [column.strip() for column in columns]:
            raise ValueError(f"--label names {label!r}, but the columns of {file} are {_some(columns)}.")
        return label
    found = label_names(columns)
    if not found:
        raise ValueError(
            f"{file} has no column named label, y, class or target (it has {_some(columns)}). "
            "Name the label column with --label."
        )
    return found[0].strip()


def csv_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Tables of whole lines, all columns as text, from blocks of the file."""
    header, separator = _header(path)
    if not header.endswith(b"\n"):
        return
    with _open(path) as file:
        file.readline()
        rest = b""
        while True:
            block = file.read(_BLOCK_BYTES)
            data = rest + block
            cut = _last_line_end(data) if block else len(data)
            rest = data[cut:]
            if data[:cut].strip():
                yield _parse_csv(io.BytesIO(header + data[:cut]), separator, infer_schema=False)
            if not block:
                return


def _last_line_end(data: bytes) -> int:
    """Where the last line ends whose quotes are closed; 0 if none does.

    ``data`` begins outside quotes, so a line end is outside quotes when an even number of them precedes it.
    """
    end = data.rfind(b"\n") + 1
    quotes = data.count(b'"', 0, end)
    while end and quotes % 2:
        before = data.rfind(b"\n", 0, end - 1) + 1
        quotes -= data.count(b'"', before, end)
        end = before
    return end


def parquet_frames(path: Path) -> Iterator[pl.DataFrame]:
    """Tables of consecutive rows; polars skips the row groups that a slice does not touch."""
    import polars as pl

    scan = pl.scan_parquet(path, glob=False)
    width = max(1, len(pl.read_parquet_schema(path)))
    total = int(scan.select(pl.len()).collect().item())
    step = max(1, _BATCH_CELLS // width)
    for first in range(0, total, step):
        yield scan.slice(first, step).collect()


def _some(columns: Sequence[str]) -> str:
    return ", ".join(shortened(c.strip()) for c in columns[:8]) + (", …" if len(columns) > 8 else "")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
