from __future__ import annotations

from sobgnn.labeling.folder import remove_unfinished
from sobgnn.labeling.launch import open_page
from tests.labeling.conftest import FAKE


def test_a_run_that_was_being_written_by_a_killed_process_is_removed_and_nothing_else(tickets, tmp_path):
    ours = (".run.abcd1234/model", ".run.abcd1234/report.html", ".run.12345678/.table.json.x7", ".run.12_45678")
    others = (".run.mine4567/notes", ".run.short/model", ".other.abcd1234/model", "run.abcd1234/model", ".run.file5678")
    for name in (*ours[:3], *others[:4]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / ours[3]).mkdir()
    (tmp_path / others[4]).touch()
    page = open_page(str(tickets), folder=tmp_path / "run", command=FAKE)
    assert not any((tmp_path / name).exists() for name in ours)
    (tmp_path / ".run.abcd1234").mkdir()
    page.close()  # while it was being written
    assert not (tmp_path / ".run.abcd1234").exists()
    assert all((tmp_path / name).exists() for name in others)


def test_a_name_with_wildcards_is_no_pattern(tmp_path):
    (tmp_path / ".run1.abcd1234").mkdir()
    remove_unfinished(tmp_path / "run?")
    assert (tmp_path / ".run1.abcd1234").exists()
