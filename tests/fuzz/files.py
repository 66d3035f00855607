"""Hostile data files: made up from odd parts, then damaged."""

from __future__ import annotations

import csv
import gzip
import io
import json
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes, unicode_string_dtypes

ODD_BYTES = (
    b"\0", b'"', b"\xff\xfe", b"\n\n", b",,,,", b"nan", b"1e999", b"\r", b"-", b"\xf0\x9f\x8c\xb2", b"{", b"'", b'""',
    b"\\", b'\\"', b"\xef\xbb\xbf", b"\t", b";", b"|", b"sep=;\n", b"\x93NUMPY", b"PK\x03\x04", b"PAR1",
)  # fmt: skip
ODD_CELLS = [
    "nan", "NaN", "inf", "-inf", "1e999", "-1e999", "1e-999", "0x10", "1_000", "1.000,5", "1,5", "$5", "5%", "=1+1",
    "@x", "-", "+", "--", "''", '"', '""', '"a', 'a"', 'a"b', "☃", "[1,2,3]", "[1,2", "[]", "{'a':1}", "2024-02-30",
    "2024-01-01", "0000-00-00", "9999-12-31T25:61", "24:00", "12/31/99", "True", "false", "NULL", "None", "N/A", "?",
    "-1", "-1.0", "007", "1e5", "../../etc/passwd", "a.png", "http://x/y", "<b>x</b>", "\\", "١٢٣", "Ⅷ", "½", "",
    " ", "a\nb", "a\r\nb", "\0", "a\0", "\u202e", "\t", "\u0085", "\u2028", "\ud7ff", "9" * 400, "x" * 3000,
]  # fmt: skip
ODD_NAMES = [
    "", " ", "label", "y", "id", "a", "a ", "A", "a\nb", '"', "column_1", "0", "1.5", "x" * 500, "é", "=x", "\0",
]  # fmt: skip
# Malformed by thought, where chance would not get to it.
CHOSEN_TEXTS = (
    "", "\n", "a,label", "a,label\n", "a,label\n1,u\n", "a,label\n1,u\n2,u\n", "a,label\n,u\n,v\n", "label\nu\nv\n",
    "a,label\n1,u,9\n2,v,9,9\n", "a,a,label\n1,2,u\n3,4,v\n", "\ufeffa,label\n1,u\n2,v\n", 'a,label\n"1,u\n2,v\n',
    "a,label\n" + "1," * 5000 + "u\n", ",,\n1,2,3\n", "a,label\ninf,u\n-inf,v\nnan,u\n", "a,label\n1e400,u\n2,v\n",
    "1,2,3\n4,5,6\n", "a,label\n\u202e1,\0\n", "a,label\n" + "\n".join(f"{i},{i}" for i in range(60)),
)  # fmt: skip
HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999999999999, 2), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (2, 2), }",
    "{'descr': '<f8', 'fortran_order': 1, 'shape': (2,), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }",
    "{'descr': 'x', 'fortran_order': False, 'shape': (), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (65536, 65536), }",
    "(" * 100, "[" * 60, "{}", "1" * 100, "\0" * 50,
)  # fmt: skip

numbers = st.floats(-1e6, 1e6, width=32)
CELLS = (
    numbers.map("{:.3g}".format),
    st.integers(0, 9).map(str),
    st.sampled_from(["red", "blue", "green"]),
    st.lists(st.sampled_from(["ash", "birch", "is", "tall", "old"]), min_size=5, max_size=5).map(" ".join),
    st.dates().map(str),
    st.tuples(numbers, numbers).map("[{0[0]:.2f}, {0[1]:.2f}]".format),
    st.sampled_from(ODD_CELLS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)


@st.composite
def damaged(draw: Any, data: bytes) -> bytes:
    """Bytes with up to four injuries: cut, overwritten, repeated, removed, put in, turned around, a bit changed."""
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        to = min(len(data), at + draw(st.integers(1, 40)))
        put = draw(st.sampled_from(ODD_BYTES) | st.binary(max_size=40))
        bit = bytes([data[at] ^ 1 << draw(st.integers(0, 7))]) if at < len(data) else b""
        ways = (data[:at] + put + data[to:], data[:to] + data[at:], data[:at] + data[to:], data[:at] + put + data[at:],
                data[:at] + bit + data[at + 1 :], data[:at], data[at:] + data[:at])  # fmt: skip
        data = draw(st.sampled_from(ways))
    return data


@st.composite
def texts(draw: Any) -> tuple[str, bytes]:
    """CSV of columns of the kinds that tables have, with odd names, cells, rows, separators, ends and encodings."""
    if draw(st.integers(0, 9)) == 0:
        return "csv", draw(st.sampled_from(CHOSEN_TEXTS)).encode()
    rows = draw(st.sampled_from([0, 1, 2, 5, 12, 30]))
    kinds = draw(st.lists(st.sampled_from(CELLS), max_size=5))
    columns = [draw(st.lists(kind, min_size=rows, max_size=rows)) for kind in kinds]
    columns.append(draw(st.lists(st.sampled_from(["u", "v", ""]), min_size=rows, max_size=rows)))
    names = [f"c{number}" for number in range(len(kinds))] + ["label"]
    for _ in range(draw(st.integers(0, 2))):
        names[draw(st.integers(0, len(names) - 1))] = draw(st.sampled_from(ODD_NAMES))
        if rows:
            column = columns[draw(st.integers(0, len(columns) - 1))]
            column[draw(st.integers(0, rows - 1))] = draw(st.sampled_from(ODD_CELLS))
    records = [names, *map(list, zip(*columns, strict=True))][draw(st.sampled_from([0, 0, 0, 0, 1])) :]
    if records and draw(st.integers(0, 4)) == 0:
        row = draw(st.integers(0, len(records) - 1))
        records[row] = draw(st.sampled_from([records[row] * 2, records[row][:-1], []]))
    if draw(st.integers(0, 9)) == 0:
        lines = [json.dumps(dict(zip(names, record, strict=False))) for record in records[1:]]
        return "jsonl", "\n".join(lines).encode()
    file = io.StringIO()
    separator, end = draw(st.sampled_from(",,,;|\t")), draw(st.sampled_from(["\n", "\n", "\r\n", "\r", "\n\n"]))
    if draw(st.integers(0, 3)):
        csv.writer(file, delimiter=separator, lineterminator=end).writerows(records)
    else:  # nothing is quoted
        file.write(end.join(separator.join(record) for record in records))
    encoding = draw(st.sampled_from(["utf-8"] * 3 + ["utf-8-sig", "utf-16", "utf-16-le", "latin-1", "utf-32"]))
    suffix = draw(st.sampled_from(["csv", "csv", "csv", "txt", "csv.gz", "jsonl"])) if separator != "\t" else "tsv"
    return suffix, file.getvalue().encode(encoding, "replace")


odd_arrays = arrays(
    scalar_dtypes() | unicode_string_dtypes(max_len=3) | st.sampled_from([">f8", "longdouble", "S2", "f8,i4"]),
    array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=20),
)


def npy(values: Any, header: str = "") -> bytes:
    """The bytes of an NPY file, of any header."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asanyarray(values), allow_pickle=False)
    if not header:
        return file.getvalue()
    body = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + file.getvalue()[-64:]


@st.composite
def archives(draw: Any) -> tuple[str, bytes]:
    """NPZ or NPY files of arrays that do not fit together, of odd kinds, or with forged headers."""
    if draw(st.integers(0, 4)) == 0:
        return "npy", npy(draw(odd_arrays), draw(st.sampled_from(["", "", *HEADERS])))
    rows = draw(st.sampled_from([1, 2, 6, 20, 20]))
    values = np.random.default_rng(draw(st.integers(0, 9))).normal(size=(rows, 3))
    labels = np.arange(rows) % 2
    odd_labels = [labels - 1, np.array(["u", "v"])[labels], values[:, 0], labels * np.nan, labels * 0, np.r_[labels, 0],
                  labels[:, None], labels > 0, labels * 2**60, labels.astype("M8[D]"), labels * 1j, np.array(3),
                  np.array([b"a", b"b"])[labels]]  # fmt: skip
    entries: dict[str, Any] = {
        "X": draw(st.just(values) | odd_arrays),
        "y": draw(st.just(labels) | st.sampled_from(odd_labels)),
    }
    if draw(st.integers(0, 3)) == 0:
        del entries["X"]
        shapes = [[3, 4], [3, -4], [2**40, 2**40], [3], [1.5, 2]]
        entries |= {"X_data": np.ones(3), "X_indices": draw(arrays(int, 3, elements=st.integers(-1, 4)))}
        entries |= {"X_indptr": np.array([0, 1, 3, 3][: draw(st.integers(1, 4))])}
        entries["X_shape"] = np.array(draw(st.sampled_from(shapes)))
    if draw(st.integers(0, 3)) == 0:
        pairs = draw(arrays(int, (2, 8), elements=st.integers(-1, rows + 1)))
        entries["edge_index"] = draw(st.sampled_from([pairs, pairs.astype(float), pairs.T, np.zeros((2, 0), int)]))
        entries["class_names"] = np.array(["a", "b", "c"][: draw(st.integers(0, 3))])
    if draw(st.integers(0, 9)) == 0:
        del entries[draw(st.sampled_from(sorted(entries)))]
    file = io.BytesIO()
    draw(st.sampled_from([np.savez, np.savez_compressed]))(file, **entries)
    return "npz", file.getvalue()


@st.composite
def parquets(draw: Any) -> tuple[str, bytes]:
    """Parquet files with columns of every type."""
    rows = draw(st.sampled_from([0, 1, 2, 12, 30]))
    values = np.random.default_rng(0).normal(size=rows)
    whole = (values * 1000).astype(np.int64)
    words = np.array(["a", "b", ""])[np.arange(rows) % 3]
    choices: list[Any] = [
        pl.Series(values), pl.Series(values > 0), pl.Series([list(values[:3])] * rows, dtype=pl.List(pl.Float64)),
        pl.Series([{"a": 1}] * rows, dtype=pl.Struct({"a": pl.Int64})), pl.Series([b"x"] * rows, dtype=pl.Binary),
        pl.Series([None] * rows), pl.Series(np.full(rows, np.inf)), pl.Series([None, *values[1:]][:rows]),
        pl.Series(whole).cast(pl.Datetime), pl.Series(whole).cast(pl.Duration), pl.Series(np.abs(whole)).cast(pl.Time),
        pl.Series(words, dtype=pl.String).cast(pl.Categorical), pl.Series(values.round(2)).cast(pl.Decimal(20, 4)),
        pl.Series([[["a"]]] * rows, dtype=pl.List(pl.List(pl.String))), pl.Series(np.full(rows, 2**63, np.uint64)),
        pl.Series((ODD_CELLS * 9)[:rows], dtype=pl.String),
    ]  # fmt: skip
    columns = {f"c{i}": series for i, series in enumerate(draw(st.lists(st.sampled_from(choices), max_size=4)))}
    columns["label"] = draw(st.just(pl.Series(words, dtype=pl.String)) | st.sampled_from(choices))
    columns |= {draw(st.sampled_from(ODD_NAMES)): pl.Series(values)} if draw(st.booleans()) else {}
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return "parquet", file.getvalue()


@st.composite
def data_files(draw: Any) -> tuple[str, bytes]:
    """The suffix and the bytes of a hostile file."""
    suffix, data = draw(texts() | archives() | parquets())
    data = draw(damaged(data)) if draw(st.booleans()) else data
    if suffix == "csv.gz":
        data = draw(damaged(gzip.compress(data))) if draw(st.booleans()) else gzip.compress(data)
    return suffix, data
