from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn.runs import folder as run_folder
from sobgnn.runs.folder import atomic_folder, check_free, free_folder
from sobgnn.tables import Batch


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def fail_midway():
        with atomic_folder(tmp_path / "a/b/run") as place:
            (place / "half").write_text("x")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail_midway()
    assert list(tmp_path.iterdir()) == []
    with atomic_folder(tmp_path / "a/b/run") as place:
        (place / "whole").write_text("x")
        assert not (tmp_path / "a/b/run").exists()
    assert [p.name for p in (tmp_path / "a/b").rglob("*")] == ["run", "whole"]
    with pytest.raises(ValueError, match="already there"):
        check_free(tmp_path / "a/b/run")
    with pytest.raises(ValueError, match="cannot be made"):
        check_free(tmp_path / "a/b/run/whole/deeper")


def test_the_next_free_name_is_safe_and_numbered(tmp_path):
    assert free_folder("my data/2", tmp_path).name == "my-data-2-1"
    (tmp_path / "x-1").mkdir()
    assert free_folder("x", tmp_path).name == "x-2"
    assert free_folder("..", tmp_path).name == "run-1"


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_of_a_file_wait_until_there_are_many(make, monkeypatch):
    rows = np.arange(22, dtype=np.float32).reshape(11, 2)
    ids = np.arange(11).astype(str).astype(object)

    def batches():
        for start in (0, 3, 6, 9):
            yield Batch(start, make(rows[start : start + 3]), ids[start : start + 3])

    def sizes(many):
        parts = list(run_folder._joined(batches(), many))
        X = np.concatenate([part.X.toarray() if sp.issparse(part.X) else part.X for part in parts])
        np.testing.assert_array_equal(X, rows)
        np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), ids)
        return [(part.first_row, part.X.shape[0]) for part in parts]

    assert sizes(None) == sizes(2) == [(0, 3), (3, 3), (6, 3), (9, 2)]
    assert sizes(5) == [(0, 6), (6, 5)]
    assert sizes(100) == [(0, 11)]
    monkeypatch.setattr(run_folder, "_JOINED_BYTES", 32)
    assert sizes(100) == [(0, 6), (6, 5)]
