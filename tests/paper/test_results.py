from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sobgnn.paper.results import Record, append, read

ONE = Record("table1", "search", "toy", "10%", "GCN", "", 0, {"lr": 0.1}, 0, 0.5, None, 3, 9, 1, 0.1)


def test_records_are_whole_and_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append((tmp_path / "a.jsonl").read_bytes()))
    append(tmp_path / "a.jsonl", [ONE, replace(ONE, seed=1)])
    assert flushed[-1] == (tmp_path / "a.jsonl").read_bytes()
    assert flushed[-1].count(b"\n") == 2


def test_a_last_line_torn_anywhere_is_left_out_and_mended(tmp_path: Path) -> None:
    path, two = tmp_path / "a.jsonl", replace(ONE, seed=1)
    append(path, [ONE, two])
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole), 5):
        path.write_bytes(whole[:cut])
        assert list(read(path)) == [ONE]
        append(path, [two])
        assert path.read_bytes() == whole
    path.write_bytes(whole[:9])
    append(path, [ONE])
    assert list(read(path)) == [ONE]


def test_a_folder_is_read_whole_compressed_files_too_and_each_key_once(tmp_path: Path) -> None:
    append(tmp_path / "a.jsonl", [ONE])
    append(tmp_path / "b.jsonl", [replace(ONE, validation_accuracy=0.9), replace(ONE, seed=1)])
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "b.jsonl").read_bytes()))
    (tmp_path / "b.jsonl").unlink()
    assert list(read(tmp_path)) == [ONE, replace(ONE, seed=1)]


def test_a_damaged_line_is_named_and_one_without_the_newer_fields_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, [ONE])
    line = path.read_bytes()
    path.write_bytes(b"{}\n" + line)
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1"):
        list(read(path))
    path.write_bytes(line.replace(b',"measures":{}', b""))
    assert list(read(path)) == [ONE]
