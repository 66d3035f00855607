"""Files of arrays: damaged ones are one line of error, and nothing in them is unpickled."""

from __future__ import annotations

import io
import os
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn.tables import batches, read_table
from sobgnn.tables.encoding import ArrayEncoder, Encoding
from sobgnn.tables.reading import npz


def header(text):
    body = text.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body


def shaped(shape):
    return header(f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")


def array(values):
    out = io.BytesIO()
    np.save(out, values)
    return out.getvalue()


def archive(**entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, data in entries.items():
            file.writestr(f"{name}.npy", data)
    return out.getvalue()


Y = array(np.array([0, 1]))
GOOD = archive(X=array(np.eye(2)), y=Y)


def encrypted(data):
    for mark, place in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data = data[: at + place] + bytes([data[at + place] | 1]) + data[at + place + 1 :]
            at = data.find(mark, at + 1)
    return data


def outside(data):
    """An archive whose first entry, and whose directory, begin where it has ended."""
    at, end = data.find(b"PK\x01\x02") + 42, data.find(b"PK\x05\x06") + 16
    begin = (int.from_bytes(data[end : end + 4], "little") + 900).to_bytes(4, "little")
    return data[:at] + b"\xff\xff\xff\x7f" + data[at + 4 : end] + begin + data[end + 4 :]


def claiming(shape):
    """An archive whose X claims more bytes than it holds, before compression."""
    data = archive(X=shaped(shape), y=Y)
    short, long = len(header("{}")).to_bytes(4, "little"), (8 * 10**9 % 2**32).to_bytes(4, "little")
    return data.replace(short + short, short + long, 2)


NPY = {
    "garbage": b"garbage",
    "empty": b"",
    "brackets": header("(" * 100),
    "many brackets": b"\x93NUMPY\x01\x00" + (9000).to_bytes(2, "little") + b"[" * 9000,
    "a shape of 10^22": shaped("(" + "9" * 22 + ", 2)"),
    "a negative shape": shaped("(-1, 2)"),
    "a shape larger than its data": shaped("(1000000, 1000000)"),
    "no numbers": array(np.array([["a"], ["b"]])),
    "objects": array(np.array([[{}]], dtype=object)),
}
BROKEN = {
    **{f"{name}.npy": data for name, data in NPY.items()},
    **{f"{name}.npz": archive(X=data, y=Y) for name, data in NPY.items()},
    "garbage labels.npz": archive(X=array(np.eye(2)), y=b"garbage"),
    "encrypted.npz": encrypted(GOOD),
    "a directory outside.npz": outside(GOOD),
    "more than it can hold.npz": claiming("(10000000, 100)"),
}
SAID = {"objects": "holds Python objects, which are never loaded", "encrypted": "cannot be read: .*encrypted"}


@pytest.mark.parametrize("name", BROKEN)
def test_damaged_arrays_are_one_line_of_error(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(BROKEN[name])
    with pytest.raises(ValueError, match=rf"^[^\n]*{SAID.get(path.stem, '')}[^\n]*$"):
        read_table(path, need_labels=name.endswith("z"))
    if "labels" not in name:
        with pytest.raises(ValueError, match=r"^[^\n]*$"):
            list(batches(path, Encoding(ArrayEncoder(np.zeros(2)))))


def test_files_dense_sparse_and_in_column_order_are_read_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_BATCH_BYTES", 64)
    X, y = np.arange(30.0).reshape(10, 3), np.array([0, 1, 2, -1, 0, 1, 2, -1, 0, 1])
    X[2, 1] = np.nan
    np.savez(tmp_path / "dense.npz", X=X, y=y, class_names=np.array(["p", "q", "r"]))
    np.savez_compressed(tmp_path / "fortran.npz", X=np.asfortranarray(X), y=y)
    np.savez_compressed(tmp_path / "packed.npz", X=X, y=y)
    np.savez_compressed(tmp_path / "deep.npz", X=X.reshape(10, 3, 1), y=y)
    np.save(tmp_path / "bare.npy", X)
    table = read_table(tmp_path / "dense.npz")
    assert table.classes == ["p", "q", "r"]
    assert table.codes.tolist() == y.tolist()
    expected = np.where(np.isnan(X), np.nanmedian(X[:, 1]), X).astype(np.float32)
    np.testing.assert_array_equal(table.X, expected)
    for name in ("dense.npz", "fortran.npz", "packed.npz", "deep.npz", "bare.npy"):
        parts = list(batches(tmp_path / name, table.encoding))
        np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), expected)
        assert [part.first_row for part in parts] == np.cumsum([0, *(len(part.X) for part in parts[:-1])]).tolist()
    np.testing.assert_array_equal(read_table(tmp_path / "deep.npz").X, expected)
    csr = sp.csr_array(expected)
    parts = {"X_data": csr.data, "X_indices": csr.indices, "X_indptr": csr.indptr, "X_shape": np.array(csr.shape)}
    np.savez(tmp_path / "sparse.npz", **parts, y=y)
    np.testing.assert_array_equal(read_table(tmp_path / "sparse.npz").X.toarray(), expected)


def test_a_sparse_array_of_columns_without_values_is_refused_before_they_take_memory(tmp_path):
    parts = {"X_data": np.ones(4), "X_indices": np.arange(4), "X_indptr": np.arange(5), "X_shape": np.array([4, 2**31])}
    np.savez(tmp_path / "a.npz", **parts, y=np.array([0, 1, 0, 1]))
    with pytest.raises(ValueError, match=r"^The sparse X has 4 values in 2,147,483,648 columns\."):
        read_table(tmp_path / "a.npz")


def test_a_single_array_has_no_labels_but_can_be_read_for_labeling(tmp_path):
    np.save(tmp_path / "t.npy", np.ones((4, 2, 3)))
    with pytest.raises(ValueError, match="single array, so no labels"):
        read_table(tmp_path / "t.npy")
    assert read_table(tmp_path / "t.npy", need_labels=False).X.shape == (4, 6)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet", "npz", "npy"])
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


def test_a_panic_of_the_parquet_reader_is_one_line_of_error(tmp_path, monkeypatch):
    class PanicException(BaseException):  # as polars raises it, which no test can rely on for a given file
        pass

    def panic(*arguments, **keywords):
        raise PanicException("called `Option::unwrap()`\non a `None` value")

    (tmp_path / "t.parquet").write_bytes(b"PAR1PAR1")
    monkeypatch.setattr("polars.read_parquet_schema", panic)
    with pytest.raises(ValueError, match=r"t.parquet cannot be read: it is damaged, cut off, or not what its name"):
        read_table(tmp_path / "t.parquet")


@pytest.mark.parametrize("ids", [7, [7], [7, 8, 9], [[7, 8]]])
def test_ids_of_another_number_than_rows_are_an_error(tmp_path, ids):
    np.savez(tmp_path / "n.npz", X=np.ones((2, 3)), name=ids)
    with pytest.raises(ValueError, match="'name' must have one entry per row of X"):
        list(batches(tmp_path / "n.npz", Encoding(ArrayEncoder(np.zeros(3)), id="name")))


def test_ids_of_an_array_are_read_if_it_has_them(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0], name=[b"u", b"v", b"w"])
    table = read_table(tmp_path / "t.npz", identity="name")
    encoding = table.encoding
    assert next(batches(tmp_path / "t.npz", encoding)).ids.tolist() == table.ids.tolist() == ["u", "v", "w"]
    np.savez(tmp_path / "n.npz", X=np.eye(3))
    assert next(batches(tmp_path / "n.npz", encoding)).ids is None


def test_edges_that_are_listed_several_times_count_once(tmp_path):
    for edges in ([[0, 1], [1, 2]], [[0, 0, 1, 1, 2], [1, 1, 0, 2, 1]]):
        np.savez(tmp_path / "t.npz", X=np.eye(3), y=[0, 1, 0], edge_index=edges)
        adjacency = read_table(tmp_path / "t.npz").graph.to_scipy().toarray()
        assert adjacency.tolist() == [[0, 1, 0], [1, 0, 1], [0, 1, 0]]
