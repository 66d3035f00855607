"""JSON lines and records."""

from __future__ import annotations

import gzip
import json

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from sobgnn.tables import batches, file_stem, read_table
from sobgnn.tables.reading import formats

ROWS = [
    {
        "sku": f"A{i:04}",
        "price": 1.5 * i if i % 5 else None,
        "sold": i % 7,
        "stock": bool(i % 2),
        "maker": {"name": ("Ada", "Bob", "Cy")[i % 3], "since": 1990 + i % 11},
        "code": i if i % 9 else f"x{i}",
        "size": float("nan") if i == 3 else [i / 2, 1.0],
        "label": None if i % 3 else "uv"[i % 2],
    }
    for i in range(60)
]


def write(path, rows):
    """Rows as records or as lines, by the name of the file, with the marks and line ends of Windows in records."""
    lines = "\n".join(map(json.dumps, rows)) + "\n"
    text = "\ufeff" + json.dumps(rows, indent=1) if ".json." in f"{path.name}." else lines
    path.write_bytes(gzip.compress(text.encode()) if path.name.endswith(".gz") else text.encode())
    return path


@pytest.mark.parametrize("name", ["t.jsonl", "t.ndjson", "T.JSONL", "t.jsonl.gz", "t.json"])
def test_objects_become_features_as_parquet_does(tmp_path, name):
    keep = ("sku", "price", "sold", "stock", "maker", "label")
    rows = [{key: row[key] for key in keep} for row in ROWS]
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    expected = read_table(tmp_path / "t.parquet")
    table = read_table(write(tmp_path / name, rows))
    np.testing.assert_array_equal(table.X, expected.X)
    assert table.codes.tolist() == expected.codes.tolist()
    assert table.ids.tolist() == [row["sku"] for row in ROWS]
    assert {"maker.name", "maker.since"} <= table.encoding.names
    assert file_stem(tmp_path / name).lower() == "t"


@pytest.mark.parametrize("name", ["t.jsonl", "t.json"])
def test_blocks_give_the_whole_file_and_a_key_may_be_missing_anywhere(tmp_path, monkeypatch, name):
    rows = [{key: value for key, value in row.items() if value is not None} for row in ROWS]
    table = read_table(write(tmp_path / name, rows))
    monkeypatch.setattr(formats, "BLOCK_BYTES", 200)
    parts = list(batches(tmp_path / name, table.encoding))
    assert len(parts) > 5 or name == "t.json"  # which is read at once
    X = [part.X.toarray() if sp.issparse(part.X) else part.X for part in parts]
    np.testing.assert_array_equal(np.concatenate(X), table.X)
    assert [name for part in parts for name in part.ids] == [row["sku"] for row in ROWS]
    assert [label for part in parts for label in part.labels] == [row["label"] for row in ROWS]


def test_blank_lines_marks_and_line_ends_are_no_rows(tmp_path):
    text = "\ufeff" + "\r\n\r\n".join(json.dumps(row) for row in ROWS) + "\r\n\r\n"
    (tmp_path / "t.jsonl").write_bytes(text.encode())
    assert read_table(tmp_path / "t.jsonl").ids.tolist() == [row["sku"] for row in ROWS]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("t.jsonl", '{"a": 1, "y": 0}\n{"a": 2, "y": \n', "one JSON object per line, but line 2 is"),
        ("t.jsonl", '{"a": 1}\n\n[1, 2]\n', "but line 3 is"),
        ("t.jsonl", '[\n{"a": 1, "y": 0}\n]\n', "but line 1 is"),
        ("t.jsonl", "[" * 100_000, "but line 1 is"),
        ("t.jsonl", "", "no column named label|has no rows"),
        ("t.jsonl", "{}\n{}\n", "no column named label|has no rows"),
        ("t.jsonl", '{"y": {}}\n{"y": {}}\n', "."),
        ("t.json", '{"a": [1, 2]}', r"must hold a list of objects, .* but it holds '.*a.*'\.$"),
        ("t.json", '[{"a": 1}, 3]', r"must hold a list of objects, .* but item 1 is '3'\.$"),
        ("t.json", '{"a": 1}\n{"a": 2}\n', r"is not JSON: .* If it has one object per line, name it \.jsonl\.$"),
        ("t.json", "[{", "is not JSON"),
        ("t.json", "[]", "has no"),
        ("t.json", "[" * 100_000, "is not JSON"),
    ],
)
def test_a_damaged_file_is_refused_in_one_line(tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=said) as error:
        read_table(tmp_path / name)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300
