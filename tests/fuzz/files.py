"""Hostile data files, each made from its seed alone: valid ones that were damaged, and ones that were made up."""

from __future__ import annotations

import gzip
import io
import zipfile
from typing import Any

import numpy as np
import polars as pl

SUFFIXES = ("csv", "tsv", "txt", "csv.gz", "parquet", "npz", "npy", "jsonl")
SHARES = (0.36, 0.06, 0.05, 0.05, 0.18, 0.2, 0.07, 0.03)
ODD_BYTES = [
    b"\0",
    b'"',
    b"\xff\xfe",
    b"\n\n",
    b",,,,",
    b"nan",
    b"1e999",
    b"\r",
    b"-",
    b"\xf0\x9f\x8c\xb2",
    b"{",
    b"'",
    b'""',
    b"\\",
    b'\\"',
    b"\xef\xbb\xbf",
    b"\t",
    b";",
    b"|",
    b"sep=;\n",
    b"\x93NUMPY",
    b"PK\x03\x04",
    b"PAR1",
]
ODD_CELLS = [
    "",
    " ",
    "nan",
    "NaN",
    "inf",
    "-inf",
    "1e999",
    "-1e999",
    "1e-999",
    "9" * 400,
    "0x10",
    "1_000",
    "1.000,5",
    "1,5",
    "$5",
    "5%",
    "=1+1",
    "@x",
    "-",
    "+",
    "--",
    "''",
    '"',
    '""',
    '"a',
    'a"',
    'a"b',
    "a\nb",
    "a\r\nb",
    "\0",
    "a\0",
    "\u202e",
    "☃",
    "🌲" * 50,
    "x" * 3000,
    "[1,2,3]",
    "[1,2",
    "[]",
    "{'a':1}",
    "2024-02-30",
    "2024-01-01",
    "0000-00-00",
    "9999-12-31T25:61",
    "24:00",
    "12/31/99",
    "True",
    "false",
    "NULL",
    "None",
    "N/A",
    "?",
    "-1",
    "-1.0",
    "007",
    "1e5",
    "../../etc/passwd",
    "a.png",
    "http://x/y",
    "<b>x</b>",
    "\\",
    "\t",
    "\u0085",
    "\u2028",
    "\ud7ff",
    "١٢٣",
    "Ⅷ",
    "½",
]
ODD_NAMES = [
    "",
    " ",
    "label",
    "y",
    "id",
    "a",
    "a ",
    "A",
    "a\nb",
    '"',
    "column_1",
    "0",
    "1.5",
    "x" * 500,
    "é",
    "=x",
    "\0",
]


def npz(**arrays: Any) -> bytes:
    """The bytes of an NPZ file."""
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


# Malformed by thought, where chance would not get to it.
CSV = [
    b"",
    b"\n",
    b"a,label",
    b"a,label\n",
    b"a,label\n1,u\n",
    b"a,label\n1,u\n2,u\n",
    b"a,label\n,u\n,v\n",
    b"a,label\n1,u,9\n2,v,9,9\n",
    b"label\nu\nv\n",
    b"a,a,label\n1,2,u\n3,4,v\n",
    b"\xef\xbb\xbfa,label\n1,u\n2,v\n",
    b'a,label\n"1,u\n2,v\n',
    b"a,label\n" + b"1," * 5000 + b"u\n",
    b",,\n1,2,3\n",
    b"a,label\ninf,u\n-inf,v\nnan,u\n",
    b"a,label\n1e400,u\n2,v\n",
    b"1,2,3\n4,5,6\n",
    b"PK\x03\x04",
    "a,label\n\u202e1,\u0000\n".encode(),
    b"a,label\n" + b"\n".join(b"%d,%d" % (i, i) for i in range(60)),
]
NPZ = [
    npz(X=np.zeros((0, 3)), y=np.zeros(0, int)),
    npz(X=np.zeros((5, 0)), y=np.arange(5)),
    npz(X=np.zeros(5), y=np.arange(5)),
    npz(X=np.zeros((5, 2), complex), y=np.arange(5)),
    npz(X=np.full((5, 2), np.nan), y=np.array([0, 1, 0, 1, -1])),
    npz(X=np.zeros((5, 2)), y=np.zeros(4, int)),
    npz(X=np.zeros((5, 2)), y=np.zeros((5, 2))),
    npz(X=np.zeros((5, 2)), z=np.zeros(5)),
    npz(y=np.zeros(5)),
    npz(X=np.array([["a", "b"]] * 5), y=np.array([0, 1, 0, 1, 0])),
    npz(X=np.ones((2, 2), dtype="M8[s]"), y=np.array([0, 1])),
    npz(
        X_data=np.ones(3),
        X_indices=np.array([0, 9, 1]),
        X_indptr=np.array([0, 2, 3]),
        X_shape=np.array([2, 2]),
        y=[0, 1],
    ),
    npz(X=np.eye(4), y=np.array([0, 1, 0, 1]), edge_index=np.array([[0, 9], [9, 0]])),
    b"\x93NUMPY\x01\x00",
    b"",
    b"PK\x05\x06" + b"\0" * 18,
]
# Cases of the first seeds.
CHOSEN = [
    *(("csv", data) for data in CSV),
    *(("npz", data) for data in NPZ),
    *(("parquet", data) for data in (b"", b"PAR1", b"PAR1PAR1")),
]


def data_file(seed: int) -> tuple[str, bytes]:
    """The suffix and the bytes of a hostile file."""
    if seed < len(CHOSEN):
        return CHOSEN[seed]
    draw = np.random.default_rng([seed, 1])
    suffix = str(draw.choice(SUFFIXES, p=SHARES))
    if suffix in ("npz", "npy"):
        data = _npz(draw) if suffix == "npz" else _array(_odd_array(draw))
    elif suffix == "parquet":
        data = _parquet(draw)
    else:
        data = _text(draw, "\t" if suffix == "tsv" else str(draw.choice([",", ",", ",", ";", "|", "\t"])))
        if suffix == "jsonl":
            data = b"\n".join(b'{"a": %d, "label": "%d"}' % (i, i % 2) for i in range(9))
    if draw.random() < 0.5:
        data = damaged(data, draw)
    if suffix == "csv.gz" and draw.random() < 0.9:
        data = gzip.compress(data)
        data = damaged(data, draw) if draw.random() < 0.3 else data
    return suffix, data


def damaged(data: bytes, draw: np.random.Generator) -> bytes:
    """Bytes with one to four injuries: cut, overwritten, repeated, removed, put in, turned around."""
    for _ in range(int(draw.integers(1, 5))):
        at = int(draw.integers(0, len(data) + 1))
        to = min(len(data), at + int(draw.integers(1, 40)))
        kind = draw.integers(0, 7)
        if kind == 0 and draw.random() < 0.5:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + bytes(draw.integers(0, 256, to - at, dtype=np.uint8)) + data[to:]
        elif kind == 2:
            data = data[:to] + data[at:]
        elif kind == 3:
            data = data[:at] + data[to:]
        elif kind == 4:
            data = data[:at] + ODD_BYTES[int(draw.integers(len(ODD_BYTES)))] + data[at:]
        elif kind == 5 and draw.random() < 0.3:
            data = data[at:] + data[:at]
        elif at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << int(draw.integers(8)))]) + data[at + 1 :]
    return data


def _cells(draw: np.random.Generator, rows: int) -> list[str]:
    """A column of one of the kinds that tables have."""
    kind = draw.integers(0, 8)
    if kind == 0:
        return [f"{value:.3g}" for value in draw.normal(size=rows) * 10.0 ** draw.integers(-5, 6)]
    if kind == 1:
        return [str(value) for value in draw.integers(0, 9, rows)]
    if kind == 2:
        return [str(value) for value in draw.choice(["red", "blue", "green"], rows)]
    if kind == 3:
        return [" ".join(draw.choice(["ash", "birch", "is", "tall", "old", "green"], 6)) for _ in range(rows)]
    if kind == 4:
        return [
            f"2024-{m:02d}-{d:02d}" for m, d in zip(draw.integers(1, 13, rows), draw.integers(1, 29, rows), strict=True)
        ]
    if kind == 5:
        return [f"r{i}" for i in range(rows)]
    if kind == 6:
        return [f"[{a:.2f}, {b:.2f}]" for a, b in draw.normal(size=(rows, 2))]
    return [str(ODD_CELLS[int(i)]) for i in draw.integers(0, len(ODD_CELLS), rows)]


def _text(draw: np.random.Generator, separator: str) -> bytes:
    rows, width = int(draw.choice([0, 1, 2, 5, 12, 30])), int(draw.integers(0, 6))
    table = [_cells(draw, rows) for _ in range(width)] + [[str(c) for c in draw.choice(["u", "v", ""], rows)]]
    names = [f"c{i}" for i in range(width)] + ["label"]
    for _ in range(int(draw.integers(0, 4))):  # odd names, cells and rows
        if draw.random() < 0.3:
            names[int(draw.integers(len(names)))] = ODD_NAMES[int(draw.integers(len(ODD_NAMES)))]
        elif rows:
            table[int(draw.integers(len(table)))][int(draw.integers(rows))] = ODD_CELLS[
                int(draw.integers(len(ODD_CELLS)))
            ]
    records = (
        [names, *map(list, zip(*table, strict=True))]
        if draw.random() < 0.95
        else list(map(list, zip(*table, strict=True)))
    )
    quoted = draw.random() < 0.7
    lines = []
    for record in records:
        if draw.random() < 0.03:
            record = record[: int(draw.integers(0, len(record) + 1))] if draw.random() < 0.5 else record * 2
        cells = record
        if quoted:
            cells = [
                '"' + c.replace('"', '""') + '"' if any(s in c for s in (separator, '"', "\n")) else c for c in record
            ]
        lines.append(separator.join(cells))
    end = str(draw.choice(["\n", "\n", "\r\n", "\r", "\n\n"]))
    text = end.join(lines) + (end if draw.random() < 0.8 else "")
    return text.encode(
        str(draw.choice(["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1", "utf-32"])),
        "replace",
    )


def _odd_array(draw: np.random.Generator, rows: int | None = None) -> Any:
    rows = int(draw.choice([0, 1, 2, 6, 20])) if rows is None else rows
    width = int(draw.choice([0, 1, 2, 3, 40]))
    values = draw.normal(size=(rows, width)) * 10.0 ** float(draw.integers(-320, 300) if draw.random() < 0.2 else 0)
    kind = draw.integers(0, 16)
    if kind == 0 and values.size:
        values[draw.random(values.shape) < 0.5] = draw.choice([np.nan, np.inf, -np.inf, 1e308])
    choices: list[Any] = [
        values,
        values.astype(np.float32),
        np.round(values).clip(-1e9, 1e9).astype(np.int64),
        values > 0,
        values.clip(-6e4, 6e4).astype(np.float16),
        values.astype(">f8"),
        values + 1j,
        values.astype(str),
        values[:, :1].ravel(),
        values.reshape(rows, width, 1),
        np.asfortranarray(values),
        np.zeros((rows, width), "M8[s]"),
        np.zeros(rows, [("a", "f8"), ("b", "i4")]),
        values.astype(np.longdouble),
        np.full((rows, width), 3, np.uint64),
        np.zeros((rows, width), "V3"),
    ]
    return choices[int(draw.integers(len(choices)))] if draw.random() < 0.6 else values


def _array(values: Any) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asanyarray(values), allow_pickle=False)
    return out.getvalue()


def _npz(draw: np.random.Generator) -> bytes:
    rows = int(draw.choice([1, 2, 6, 20, 20, 20]))
    entries: dict[str, Any] = {"X": draw.normal(size=(rows, 3)) if draw.random() < 0.6 else _odd_array(draw, rows)}
    labels: list[Any] = [
        draw.integers(0, 2, rows),
        draw.integers(-1, 3, rows),
        draw.choice(["u", "v"], rows),
        draw.normal(size=rows),
        np.full(rows, np.nan),
        np.zeros(rows, int),
        draw.integers(0, 2, rows + 1),
        draw.integers(0, 2, (rows, 1)),
        draw.integers(0, 2, rows).astype(bool),
        np.arange(rows) * 2**60,
        np.zeros(rows, "M8[D]"),
        np.zeros(rows, complex),
        np.array(3),
        draw.choice([b"a", b"b"], rows),
    ]
    entries["y"] = labels[0] if draw.random() < 0.5 else labels[int(draw.integers(len(labels)))]
    if draw.random() < 0.2:
        entries["class_names"] = np.array(["a", "b", "c"][: int(draw.integers(0, 4))])
    if draw.random() < 0.2:
        pairs = draw.integers(0, rows if draw.random() < 0.5 else rows + 3, (2, 8))
        entries["edge_index"] = [pairs, pairs.astype(float), pairs.T, pairs - 1, np.zeros((2, 0), int)][
            int(draw.integers(5))
        ]
    if draw.random() < 0.2:
        entries.pop("X")
        entries |= {
            "X_data": np.ones(3),
            "X_indices": draw.integers(-1, 5, 3),
            "X_indptr": np.array([0, 1, 3, 3][: int(draw.integers(1, 5))]),
        }
        entries["X_shape"] = [
            np.array([3, 4]),
            np.array([3, -4]),
            np.array([2**40, 2**40]),
            np.array([3]),
            np.array([1.5, 2]),
        ][int(draw.integers(5))]
    if draw.random() < 0.1:
        entries.pop(list(entries)[int(draw.integers(len(entries)))])
    out = io.BytesIO()
    method = int(draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]))
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, values in entries.items():
            data = _array(values)
            if draw.random() < 0.1:
                data = _odd_header(data, draw)
            archive.writestr(f"{name}.npy", data)
            if draw.random() < 0.03:
                archive.writestr("notes.txt", "x")
    packed = bytearray(out.getvalue())
    if draw.random() < 0.05:  # marked as encrypted
        packed[6] |= 1
        at = packed.find(b"PK\x01\x02")
        packed[at + 8] |= 1
    return bytes(packed)


def _odd_header(data: bytes, draw: np.random.Generator) -> bytes:
    text = [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 22 + ", 2), }",
        "(" * 100,
        "[" * 60,
        "{}",
        "1" * 100,
        "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }",
        "{'descr': '<f8', 'fortran_order': 1, 'shape': (2,), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }",
        "{'descr': 'x', 'fortran_order': False, 'shape': (), }",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (65536, 65536), }",
        "\0" * 50,
    ][int(draw.integers(11))]
    body = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + data[-64:]


def _parquet(draw: np.random.Generator) -> bytes:
    rows = int(draw.choice([0, 1, 2, 12, 30]))
    columns: dict[str, Any] = {}
    values = draw.normal(size=rows)
    for number in range(int(draw.integers(0, 5))):
        choices: list[Any] = [
            pl.Series(values),
            pl.Series(values > 0),
            pl.Series([list(values[:3])] * rows, dtype=pl.List(pl.Float64)),
            pl.Series([{"a": 1}] * rows, dtype=pl.Struct({"a": pl.Int64})),
            pl.Series([b"x"] * rows, dtype=pl.Binary),
            pl.Series([None] * rows),
            pl.Series(values * 1e308 * 10),
            pl.Series([None, *values[1:]][:rows], dtype=pl.Float32),
            pl.Series((values * 1000).astype(np.int64)).cast(pl.Datetime),
            pl.Series((values * 100).astype(np.int64)).cast(pl.Duration),
            pl.Series(draw.choice(["a", "b", ""], rows), dtype=pl.String).cast(pl.Categorical),
            pl.Series([[["a"]]] * rows, dtype=pl.List(pl.List(pl.String))),
            pl.Series(np.abs(values * 1000).astype(np.int64)).cast(pl.Time),
            pl.Series(values.round(2)).cast(pl.Decimal(20, 4)),
            pl.Series(_cells(draw, rows), dtype=pl.String),
            pl.Series(draw.integers(0, 2**63, rows, dtype=np.uint64)),
        ]
        columns[f"c{number}"] = choices[int(draw.integers(len(choices)))]
    if draw.random() < 0.9:
        columns["label"] = pl.Series(draw.choice(["u", "v"], rows), dtype=pl.String)
        if draw.random() < 0.1 and columns:
            columns["label"] = next(iter(columns.values()))
    if draw.random() < 0.1:
        columns[ODD_NAMES[int(draw.integers(len(ODD_NAMES)))]] = pl.Series(values)
    out = io.BytesIO()
    pl.DataFrame(columns).write_parquet(out)
    return out.getvalue()
