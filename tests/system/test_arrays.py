import os

import numpy as np
import pytest

from sobgnn._system.arrays import load_arrays, save_arrays


def test_what_was_saved_comes_back(tmp_path):
    arrays = {
        "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
        "transposed": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "none": np.empty((0, 3)),
        "number": np.float64(2.5),
    }
    save_arrays(tmp_path / "a.npz", arrays)
    back = load_arrays(tmp_path / "a.npz", ["matrix"])
    for name, value in arrays.items():
        np.testing.assert_array_equal(back[name], value)
        assert back[name].dtype == value.dtype
    assert os.listdir(tmp_path) == ["a.npz"]


@pytest.mark.parametrize("keep", [0, 10, 100, -40])
def test_a_truncated_file_is_one_clear_error(tmp_path, keep):
    save_arrays(tmp_path / "a.npz", {"x": np.arange(100)})
    whole = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(whole[:keep])
    with pytest.raises(ValueError, match="not a readable npz file"):
        load_arrays(tmp_path / "a.npz", ["x"])


def test_missing_files_and_arrays_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="There is no file"):
        load_arrays(tmp_path / "a.npz", ["x"])
    save_arrays(tmp_path / "a.npz", {"x": np.arange(3)})
    with pytest.raises(ValueError, match="lacks y; it holds x"):
        load_arrays(tmp_path / "a.npz", ["y"])


def test_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError):
        load_arrays(tmp_path / "a.npz", ["x"])


def test_an_archive_that_is_compressed_is_none_of_ours(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(10_000_000))  # 10 kB
    with pytest.raises(ValueError, match=r"a\.npz is not a readable npz file: it is compressed"):
        load_arrays(tmp_path / "a.npz", ["x"], ours=True)
