"""Fifty messy files and what each of them becomes."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn.tables import batches, read_table

NUMBERS = [1.5, -2.25, 1000.75, 12.0, 0.5, 33.0]
LABELS = ["u", "v", "u", "v", "u", "v"]
PEOPLE = "ABCDEF"


def rows(cells, separator=",", header="x", label="label", end="\n", labels=LABELS):
    """A file of one column and labels."""
    lines = [f"{header}{separator}{label}"] + [f"{c}{separator}{y}" for c, y in zip(cells, labels, strict=True)]
    return end.join(lines) + end


def german(values, digits=2):
    return [f"{v:,.{digits}f}".translate(str.maketrans(",.", ".,")) for v in values]


def us(values):
    return [f"{v:,.2f}" for v in values]


def days(pattern):
    import datetime as dt

    return [
        (dt.datetime(2024, 1, 28, 9, 30) + dt.timedelta(days=17 * i, hours=3 * i)).strftime(pattern) for i in range(6)
    ]


LONG = [
    "the server is down again today", "please send me my invoice now", "a refund for the broken cable",
    "my login does not work at all", "the router lost its network cable", "is the invoice paid by bank",
]  # fmt: skip
MANY = [f"{name} {i}" for i in range(15) for name in ("Anna", "Berta", "Cäsar")]
TWO = ["u", "v", "u"] * 15

# title: (bytes, {column: outcome or the numbers it holds}, what a note says or None)
FILES = {
    "plain": (rows(NUMBERS), {"x": NUMBERS}, None),
    "semicolons and decimal commas": (rows(german(NUMBERS), ";"), {"x": NUMBERS}, "semicolons"),
    "tabs": (rows(NUMBERS, "\t"), {"x": NUMBERS}, "tabs"),
    "vertical bars": (rows(NUMBERS, "|"), {"x": NUMBERS}, "vertical bars"),
    "commas inside quotes": (rows([f'"{c}"' for c in us(NUMBERS)]), {"x": NUMBERS}, None),
    "decimal commas inside quotes": (rows([f'"{c}"' for c in german(NUMBERS)]), {"x": NUMBERS}, "decimal commas"),
    "single quotes": (rows([f"'{c}'" for c in us(NUMBERS)]), {"x": NUMBERS}, None),
    "UTF-8 with a mark": (b"\xef\xbb\xbf" + rows(NUMBERS).encode(), {"x": NUMBERS}, "byte order mark"),
    "UTF-16": (rows(german(NUMBERS), ";", "größe").encode("utf-16"), {"größe": NUMBERS}, "UTF-16"),
    "UTF-16 big-endian": (b"\xfe\xff" + rows(NUMBERS).encode("utf-16-be"), {"x": NUMBERS}, "UTF-16"),
    "UTF-16 without a mark": (rows(NUMBERS, "\t").encode("utf-16-le"), {"x": NUMBERS}, "without a byte order mark"),
    "Latin-1": (rows(german(NUMBERS), ";", "größe").encode("latin-1"), {"größe": NUMBERS}, "Latin-1"),
    "Windows-1252": (rows([f"{c} €" for c in german(NUMBERS)], ";").encode("cp1252"), {"x": NUMBERS}, "Windows-1252"),
    "lines of old Macs": (rows(NUMBERS, end="\r"), {"x": NUMBERS}, None),
    "lines of Windows": (rows(NUMBERS, end="\r\n"), {"x": NUMBERS}, None),
    "no line end at the end": (rows(NUMBERS)[:-1], {"x": NUMBERS}, None),
    "blank lines at the end": (rows(NUMBERS) + "\n\n\n", {"x": NUMBERS}, None),
    "a line that names the separator": ("sep=;\n" + rows(german(NUMBERS), ";"), {"x": NUMBERS}, None),
    "a title above the header": ("Export of 2024\n\n" + rows(NUMBERS), {"x": NUMBERS}, "above the header"),
    "spaces around names and cells": (rows([f"  {v} " for v in NUMBERS], " , "), {"x": NUMBERS}, None),
    "a line break in a name": (rows(NUMBERS, header='"size\nin m"'), {"size\nin m": NUMBERS}, None),
    "a separator in a name": (rows(NUMBERS, header='"a,b"'), {"a,b": NUMBERS}, None),
    "a column without a name": (rows(NUMBERS, header=""), {"column_1": NUMBERS}, None),
    "row names as R writes them": (
        "x,label\n" + "".join(f"r{i},{v},{y}\n" for i, (v, y) in enumerate(zip(NUMBERS, LABELS, strict=True))),
        {"x": NUMBERS}, "called 'row name'",
    ),
    "a separator at the end of rows": (
        "label,x\n" + "".join(f"{y},{v},\n" for v, y in zip(NUMBERS, LABELS, strict=True)), {"x": NUMBERS}, None,
    ),
    "a comment with a comma": (
        "# made by foo, bar\nz,x,label\n" + "".join(f"7,{v},{y}\n" for v, y in zip(NUMBERS, LABELS, strict=True)),
        {"x": NUMBERS}, "above the header",
    ),
    "names twice": ("x,x,label\n" + "".join(f"{v},{v * 2},{y}\n" for v, y in zip(NUMBERS, LABELS, strict=True)),
                    {"x": NUMBERS, "x_2": NUMBERS}, "numbered: x_2"),
    "US thousands": (rows(us(NUMBERS), ";"), {"x": NUMBERS}, None),
    "Swiss thousands": (rows([f"{v:,.2f}".replace(",", "'") for v in NUMBERS]), {"x": NUMBERS}, None),
    "French thousands": (rows([f"{v:,.2f}".replace(",", "\u202f").replace(".", ",") for v in NUMBERS], ";"),
                         {"x": NUMBERS}, "decimal commas"),
    "currency before": (rows([f'"${c}"' for c in us(np.abs(NUMBERS))]), {"x": np.abs(NUMBERS)}, "unit '$'"),
    "currency after": (rows([f"{c} EUR" for c in german(NUMBERS)], ";"), {"x": NUMBERS}, "unit 'EUR'"),
    "percent": (rows([f"{v}%" for v in NUMBERS]), {"x": NUMBERS}, "unit '%'"),
    "units": (rows([f"{v} kg" for v in NUMBERS]), {"x": NUMBERS}, "unit 'kg'"),
    "accountants' negatives": (rows([f"({-v})" if v < 0 else v for v in NUMBERS]), {"x": NUMBERS}, None),
    "minus behind": (rows([f"{-v}-" if v < 0 else v for v in NUMBERS]), {"x": NUMBERS}, None),
    "typographic minus": (rows([str(v).replace("-", "−") for v in NUMBERS]), {"x": NUMBERS}, None),
    "exponents": (rows([f"{v:e}" for v in NUMBERS]), {"x": NUMBERS}, None),
    "infinities": (rows([*NUMBERS[:4], "inf", "-inf"]), {"x": [*NUMBERS[:4], 6.75, 6.75]}, "2 infinite"),
    "sentinels": (rows([3, 4, 5, 6, -999, -999]), {"x": [3, 4, 5, 6, 4.5, 4.5]}, "-999 treated as blank 2 times"),
    "blanks of all sorts": (rows([*NUMBERS[:4], "NA", "?"]), {"x": [*NUMBERS[:4], 6.75, 6.75]}, "median: x (2 cells)"),
    "one word among numbers": (
        rows([*range(14), "unknown"], labels=["u", "v", "u"] * 5), {"x": [*range(14), 6.5]}, "'unknown'"),
    "ISO dates": (rows(days("%Y-%m-%d")), {"x": "date"}, "Dates"),
    "ISO dates with times and zone": (rows(days("%Y-%m-%dT%H:%M:%SZ")), {"x": "date"}, "Dates"),
    "German dates": (rows(days("%d.%m.%Y %H:%M"), ";"), {"x": "date"}, "Dates"),
    "US dates": (rows(days("%m/%d/%Y %I:%M %p")), {"x": "date"}, "Dates"),
    "months by name": (rows([f'"{d}"' for d in days("%b %d, %Y")]), {"x": "date"}, "Dates"),
    "days as whole numbers": (rows(days("%Y%m%d")), {"x": "date"}, "Dates"),
    "times of the day": (rows(days("%H:%M")), {"x": "date"}, "Dates"),
    "categories": (rows(["red", "blue", "red", "?", "blue", "red"]), {"x": "categories"}, "One-hot encoded: x (3 f"),
    "lists": (
        rows(["a; b; c", "b; c", "a", "c; a", "b", "a; b", "c; b", "b; a", "c"] * 5, labels=TWO),
        {"x": "categories"}, None),
    "many lists": (
        rows([f"{a}|{b}|{c}" for a in "pqrs" for b in "uvwx" for c in "klm"][:45], labels=TWO), {"x": "set"}, "Lists"),
    "long text": (
        rows([f'"{t}, {i}"' for i, t in enumerate(LONG * 8)], labels=["u", "v", "u"] * 16), {"x": "text"}, "words"),
    "names": (rows(MANY, labels=TWO), {"x": "short text"}, "characters"),
    "vectors as text": (rows([f'"[{v}, {2 * v}, 1]"' for v in NUMBERS]), {"x": "vectors"}, "Vectors"),
    "a stray quote": (
        rows([*range(14), '"33'], labels=["u", "v", "u"] * 5), {"x": [*range(14), 6.5]}, "Unclosed quotes"),
    "rows of blanks": (rows(NUMBERS).replace("12.0,v", ",").replace("0.5,u", ""),
                       {"x": [1.5, -2.25, 1000.75, 17.25, 17.25, 33]}, "mean nothing: 2 (first: row 3)"),
    "too many cells in a row": (rows(NUMBERS).replace("12.0,v", "12.0,v,7"), {"x": NUMBERS}, "more cells than columns"),
    "no header": ("".join(f"{v},{2 * v},{y}\n" for v, y in zip(NUMBERS, LABELS, strict=True)),
                  {"column_1": NUMBERS, "column_2": NUMBERS}, "first line holds data"),
    "zipped": (gzip.compress(rows(NUMBERS).encode()), {"x": NUMBERS}, None),
}  # fmt: skip


@pytest.mark.parametrize("title", FILES)
def test_messy_files_become_what_they_mean(title, tmp_path):
    content, expected, said = FILES[title]
    path = tmp_path / ("t.csv.gz" if title == "zipped" else "t.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    extra = {"label": "column_3"} if title == "no header" else {}
    table = read_table(path, **extra)
    encoder = table.encoding.encoder
    for name, meaning in expected.items():
        if isinstance(meaning, str):
            assert encoder.outcomes_[name] == meaning
        else:
            assert encoder.outcomes_[name] == "number"
            found, want = table.X[:, encoder.slices_[name].start], np.asarray(meaning, float)
            want = (want - want.mean()) / want.std()
            np.testing.assert_allclose((found - found.mean()) / found.std(), want, atol=2e-3)
    assert list(encoder.slices_) == list(expected)
    assert len(table.classes) == 2
    assert table.classes == ["u", "v"]
    notes = " ".join(table.notes)
    assert said is None or said in notes, notes
    parts = [b.X.toarray() if sp.issparse(b.X) else b.X for b in batches(path, table.encoding)]
    np.testing.assert_allclose(np.concatenate(parts), table.X, atol=1e-6)
