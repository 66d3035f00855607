from __future__ import annotations

from pathlib import Path

import pytest

from sobgnn.estimator.tuning.study import open_storage


def test_a_journal_in_use_and_a_file_that_is_none_are_refused(tmp_path: Path) -> None:
    with (
        open_storage(tmp_path / "j"),
        pytest.raises(ValueError, match="in use by another process"),
        open_storage(tmp_path / "j"),
    ):
        pass
    (tmp_path / "other").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not a journal"), open_storage(tmp_path / "other"):
        pass


@pytest.mark.parametrize("content", ["a,b\n1,2\n3,4", "one line", '{"a": 1}', "\n"])
def test_a_file_named_by_mistake_keeps_its_last_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text(content)
    with pytest.raises(ValueError, match="not a journal"), open_storage(tmp_path / "mine"):
        pass
    assert (tmp_path / "mine").read_text() == content


@pytest.mark.parametrize("torn", ["", '{"op', '{"op_code":0,"worker_id":"a"'])
def test_a_journal_of_one_torn_line_is_an_empty_one(torn: str, tmp_path: Path) -> None:
    (tmp_path / "j").write_text(torn)
    with open_storage(tmp_path / "j") as storage:
        assert not storage.get_all_studies()
    assert (tmp_path / "j").read_text() == ""


@pytest.mark.parametrize(
    "url", ["postgresql://me:secret@127.0.0.1:1/none", "nonsense://x", "sqlite:////no/such/folder/x.db", "://"]
)
def test_a_storage_that_cannot_be_used_is_refused_in_one_line_without_the_password(url: str) -> None:
    with pytest.raises(ValueError, match="storage") as caught, open_storage(url):
        pass
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
