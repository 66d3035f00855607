from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest

from sobgnn.tables import batches, read_table
from sobgnn.tables.encoding import ArrayEncoder, Encoding


def header(text):
    body = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def archive(path, **entries):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)
    return path


def array(values):
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


Y = array(np.array([0, 1]))
BROKEN = {
    "garbage": {"X": b"garbage", "y": Y},
    "empty": {"X": b"", "y": Y},
    "brackets": {"X": header("(" * 100), "y": Y},
    "many brackets": {"X": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"[" * 9000, "y": Y},
    "a shape of 10^22": {
        "X": header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 22 + ", 2), }"),
        "y": Y,
    },
    "a negative shape": {"X": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 2), }"), "y": Y},
    "a shape larger than its data": {
        "X": header("{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 1000000), }"),
        "y": Y,
    },
    "garbage labels": {"X": array(np.eye(2)), "y": b"garbage"},
    "no numbers": {"X": array(np.array([["a"], ["b"]])), "y": Y},
}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_arrays_are_one_line_of_error(name, tmp_path):
    path = archive(tmp_path / "t.npz", **BROKEN[name])
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert "\n" not in str(caught.value)
    if "labels" not in name:
        with pytest.raises(ValueError) as caught:
            list(batches(path, Encoding(ArrayEncoder(np.zeros(2)))))
        assert "\n" not in str(caught.value)


def test_an_encrypted_archive_is_one_line_of_error(tmp_path):
    path = archive(tmp_path / "t.npz", X=array(np.eye(2)), y=Y)
    data = bytearray(path.read_bytes())
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + place] |= 1
            at = data.find(mark, at + 1)
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match=r"cannot be read: .*encrypted"):
        read_table(path)


def test_a_single_array_has_no_labels_but_can_be_read_for_labelling(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((4, 2, 3)))
    with pytest.raises(ValueError, match="single array, so no labels"):
        read_table(tmp_path / "t.npy")
    assert read_table(tmp_path / "t.npy", need_labels=False).X.shape == (4, 6)


def test_an_archive_that_claims_more_than_it_can_hold_is_refused_before_memory_is_taken(tmp_path):
    path = archive(
        tmp_path / "t.npz", X=header("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000, 100), }"), y=Y
    )
    data = path.read_bytes()
    short, long = (len(header("{}"))).to_bytes(4, "little"), (8 * 10**9 % 2**32).to_bytes(4, "little")
    path.write_bytes(data.replace(short + short, short + long, 2))  # the size before compression, in both places
    for read in (read_table, lambda path: list(batches(path, Encoding(ArrayEncoder(np.zeros(100)))))):
        with pytest.raises(ValueError, match=r"shorter|cannot be read"):
            read(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "parquet", "npz", "npy"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_refused(tmp_path, suffix, kind):
    path = tmp_path / f"t.{suffix}"
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    for read in (read_table, lambda path: list(batches(path, Encoding(ArrayEncoder(np.zeros(2)))))):
        with pytest.raises(ValueError, match="not a regular file"):
            read(path)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        header("(" * 100),
        header("{'descr': '<f8', 'fortran_order': False, 'shape': (" + "9" * 22 + ",), }"),
        b"\x93NUMPY\x01\x00" + (60000).to_bytes(2, "little") + b"[" * 60000,
    ],
)
def test_a_damaged_single_array_is_one_line_of_error(tmp_path, data):
    (tmp_path / "t.npy").write_bytes(data)
    with pytest.raises(ValueError) as caught:
        read_table(tmp_path / "t.npy", need_labels=False)
    assert "\n" not in str(caught.value)


def test_a_directory_that_points_outside_the_archive_is_one_line_of_error(tmp_path):
    path = archive(tmp_path / "t.npz", X=array(np.eye(2)), y=Y)
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02") + 42  # where the first entry begins
    data[at : at + 4] = b"\xff\xff\xff\x7f"
    end = data.find(b"PK\x05\x06") + 16  # where the directory begins
    data[end : end + 4] = (int.from_bytes(data[end : end + 4], "little") + 900).to_bytes(4, "little")
    path.write_bytes(bytes(data))
    with pytest.raises(ValueError, match="cannot be read"):
        read_table(path)


def test_a_panic_of_the_parquet_reader_is_one_line_of_error(tmp_path, monkeypatch):
    class PanicException(BaseException):  # as polars raises it, which no test can rely on for a given file
        pass

    def panic(*arguments, **keywords):
        raise PanicException("called `Option::unwrap()`\non a `None` value")

    (tmp_path / "t.parquet").write_bytes(b"PAR1PAR1")
    monkeypatch.setattr("polars.read_parquet_schema", panic)
    monkeypatch.setattr("polars.scan_parquet", panic)
    for read in (read_table, lambda path: list(batches(path, Encoding(ArrayEncoder(np.zeros(2)))))):
        with pytest.raises(ValueError, match=r"t.parquet cannot be read: called `Option::unwrap\(\)` on a"):
            read(tmp_path / "t.parquet")


def test_ids_of_an_array_are_found_in_another_file_by_their_name(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0], name=np.array([b"u", b"v", b"w"]))
    table = read_table(tmp_path / "t.npz", identity="name")
    assert table.ids.tolist() == ["u", "v", "w"]
    table.encoding.save(tmp_path)
    encoding = Encoding.load(tmp_path)
    np.savez(tmp_path / "n.npz", X=np.ones((2, 3)), name=np.array([7, 8]))
    (batch,) = batches(tmp_path / "n.npz", encoding)
    assert batch.ids.tolist() == ["7", "8"]
    np.savez(tmp_path / "n.npz", X=np.ones((2, 3)))
    (batch,) = batches(tmp_path / "n.npz", encoding)
    assert batch.ids is None


@pytest.mark.parametrize("ids", [7, [7], [7, 8, 9], [[7, 8]]])
def test_ids_of_another_number_than_rows_are_an_error(tmp_path, ids):
    np.savez(tmp_path / "n.npz", X=np.ones((2, 3)), name=ids)
    with pytest.raises(ValueError, match="'name' must have one entry per row of X"):
        list(batches(tmp_path / "n.npz", Encoding(ArrayEncoder(np.zeros(3)), id="name")))


def test_edges_that_are_listed_several_times_count_once(tmp_path):
    for edges in ([[0, 1], [1, 2]], [[0, 0, 1, 1, 2], [1, 1, 0, 2, 1]]):
        np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0], edge_index=edges)
        adjacency = read_table(tmp_path / "t.npz").graph.to_scipy().toarray()
        assert adjacency.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
