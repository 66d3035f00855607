from __future__ import annotations

import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sobgnn.paper.protocol.results import Record, Writer, read

ONE = Record("table1", "search", "toy", "10%", "GCN", "", 0, {"lr": 0.1}, 0, 0.5, None, 3, 9, 1, 0.1)


def write(path: Path, *records: Record) -> None:
    writer = Writer(path)
    writer.append(records)
    writer.close()


def test_records_are_whole_and_on_the_disk_when_append_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[bytes] = []
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append((tmp_path / "a.jsonl").read_bytes()))
    writer = Writer(tmp_path / "a.jsonl")
    writer.append([ONE, replace(ONE, seed=1)])
    before_closing = list(flushed)
    writer.close()
    assert before_closing
    assert before_closing[-1] == (tmp_path / "a.jsonl").read_bytes()
    assert before_closing[-1].count(b"\n") == 2


def test_a_last_line_torn_anywhere_is_left_out_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    two = replace(ONE, seed=1)
    write(path, ONE, two)
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for cut in range(first, len(whole), 5):
        path.write_bytes(whole[:cut])
        assert list(read(path)) == [ONE]
        write(path, two)
        assert path.read_bytes() == whole


def test_a_file_torn_in_its_first_line_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"study":"tab')
    write(path, ONE)
    assert list(read(path)) == [ONE]


def test_a_folder_is_read_whole_compressed_files_too_and_each_key_once(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", ONE)
    write(tmp_path / "b.jsonl", replace(ONE, validation_accuracy=0.9), replace(ONE, seed=1))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress((tmp_path / "b.jsonl").read_bytes()))
    (tmp_path / "b.jsonl").unlink()
    assert list(read(tmp_path)) == [ONE, replace(ONE, seed=1)]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, ONE)
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(ValueError, match=r"a\.jsonl, line 1"):
        list(read(path))


def test_lines_of_earlier_versions_without_measures_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    write(path, ONE)
    path.write_bytes(path.read_bytes().replace(b',"measures":{}', b""))
    assert list(read(path)) == [ONE]
