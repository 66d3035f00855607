import os

import numpy as np
import pytest

from sobgnn import Graph
from sobgnn.runtime.arrays import load_arrays, pieces, save_arrays


@pytest.mark.parametrize("mmap", [False, True])
def test_what_was_saved_comes_back(tmp_path, mmap):
    arrays = {
        "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
        "transposed": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "none": np.empty((0, 3)),
        "number": np.float64(2.5),
    }
    save_arrays(tmp_path / "a.npz", arrays)
    back = load_arrays(tmp_path / "a.npz", ["matrix"], mmap=mmap)
    for name, value in arrays.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == value.dtype
    assert os.listdir(tmp_path) == ["a.npz"]


def test_a_mapped_array_is_written_to_without_changing_the_file(tmp_path):
    save_arrays(tmp_path / "a.npz", {"x": np.zeros(5)})
    load_arrays(tmp_path / "a.npz", ["x"], mmap=True)["x"][:] = 1
    np.testing.assert_array_equal(load_arrays(tmp_path / "a.npz", ["x"])["x"], 0)


def test_compressed_files_are_read_too(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(5))
    np.testing.assert_array_equal(load_arrays(tmp_path / "a.npz", ["x"], mmap=True)["x"], np.arange(5))


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("keep", [0, 10, 100, -40])
def test_a_truncated_file_is_one_clear_error(tmp_path, mmap, keep):
    save_arrays(tmp_path / "a.npz", {"x": np.arange(100)})
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match="not a readable npz file"):
        load_arrays(tmp_path / "a.npz", ["x"], mmap=mmap)


def test_missing_files_and_arrays_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load_arrays(tmp_path / "a.npz", ["x"])
    save_arrays(tmp_path / "a.npz", {"x": np.arange(3)})
    with pytest.raises(ValueError, match="lacks y; it holds x"):
        load_arrays(tmp_path / "a.npz", ["y"])


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    for mmap in (False, True):
        with pytest.raises(ValueError):
            load_arrays(tmp_path / "a.npz", ["x"], mmap=mmap)


def test_a_graph_comes_back_mapped_and_a_foreign_file_does_not_pass_for_one(path5, tmp_path):
    path5.save(tmp_path / "graph.npz")
    back = Graph.load(tmp_path / "graph.npz")
    assert (back.to_scipy() != path5.to_scipy()).nnz == 0
    save_arrays(tmp_path / "other.npz", {name: np.arange(3.0) for name in ("indptr", "indices", "weight")})
    with pytest.raises(ValueError, match="does not hold a graph"):
        Graph.load(tmp_path / "other.npz")


def test_a_vector_is_read_in_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr("sobgnn.runtime.arrays._PIECE_BYTES", 40)
    x = np.arange(13)
    save_arrays(tmp_path / "a.npz", {"first": np.ones(3), "x": x, "none": x[:0]})
    for mmap in (False, True):
        arrays = load_arrays(tmp_path / "a.npz", ["x"], mmap=mmap)
        assert [len(part) for part in pieces(arrays["x"])] == [5, 5, 3]
        np.testing.assert_array_equal(np.concatenate(list(pieces(arrays["x"]))), x)
        assert not list(pieces(arrays["none"]))
