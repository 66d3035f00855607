from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from sobgnn.labeling.journal import Journal, MovedError

WRITER = """
import sys
from pathlib import Path
from sobgnn.labeling.journal import Journal
journal = Journal(Path(sys.argv[1]))
for number in range(200):
    event = journal.append({"what": "label", "rows": [number], "text": "é" * 500})
    print(event["n"], flush=True)
"""


def test_events_are_numbered_and_come_back(tmp_path):
    journal = Journal(tmp_path / "a.journal")
    for name in ("one", "two\nlines", 'q"uote'):
        journal.append({"what": "class", "name": name})
    journal.close()
    again = Journal(tmp_path / "a.journal")
    assert [(event["n"], event["name"]) for event in again.events] == [(1, "one"), (2, "two\nlines"), (3, 'q"uote')]
    assert again.append({"what": "x"})["n"] == 4
    again.close()


@pytest.mark.parametrize(
    "torn", [b'{"n":3,"wh', b'{"n":3}', b"\0\0\0\0", b"\xff\xfe", b'{"n":3,"wh\n', b"\0\0\n", b"[]\n"]
)
def test_a_torn_last_line_is_removed_and_the_next_event_takes_its_number(tmp_path, torn):
    path = tmp_path / "a.journal"
    journal = Journal(path)
    journal.append({"what": "a"})
    journal.append({"what": "b"})
    journal.close()
    with open(path, "ab") as file:
        file.write(torn)
    journal = Journal(path)
    assert [event["what"] for event in journal.events] == ["a", "b"]
    assert journal.append({"what": "c"})["n"] == 3
    journal.close()
    assert [json.loads(line)["what"] for line in path.read_bytes().splitlines()] == ["a", "b", "c"]


def test_a_line_damaged_in_the_middle_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "a.journal"
    path.write_text('{"n":1}\nrubbish\n{"n":3}\n')
    with pytest.raises(ValueError, match="damaged at line 2"):
        Journal(path)
    path.write_text('{"n":1}\n{"n":3}\n{"n":4}\n')
    with pytest.raises(ValueError, match="damaged at line 2"):
        Journal(path)


def test_a_second_opening_is_refused_in_one_line_until_the_first_is_closed(tmp_path):
    first = Journal(tmp_path / "a.journal")
    with pytest.raises(ValueError, match="being labeled in another window"):
        Journal(tmp_path / "a.journal")
    first.append({"what": "still works"})
    first.close()
    Journal(tmp_path / "a.journal").close()


def test_a_disk_that_refuses_leaves_nothing_of_the_event(tmp_path, monkeypatch):
    path = tmp_path / "a.journal"
    journal = Journal(path)
    journal.append({"what": "a"})
    real = os.fsync

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        journal.append({"what": "lost"})
    monkeypatch.setattr(os, "fsync", real)
    assert journal.append({"what": "b"})["n"] == 2
    journal.close()
    assert [json.loads(line)["what"] for line in path.read_bytes().splitlines()] == ["a", "b"]


@pytest.mark.parametrize("after", [1, 57, 140])
def test_a_writer_killed_in_the_middle_of_200_labels_has_every_label_it_acknowledged(tmp_path, after):
    path = tmp_path / "a.journal"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    acknowledged = 0
    for line in writer.stdout:
        acknowledged = int(line)
        if acknowledged == after:
            writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    journal = Journal(path)  # the lock went with the process
    assert len(journal.events) >= acknowledged >= after
    assert [event["rows"][0] for event in journal.events] == list(range(len(journal.events)))
    journal.close()


@pytest.mark.parametrize("content", [None, b"", b'{"n":1,"what":"sta', b"damaged\n"])
def test_a_journal_without_events_beside_files_that_followed_it_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "a.journal"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a\.journal is .*, but labels were given before: labels\.csv beside it\."):
        Journal(path, ["labels.csv"])
    assert (path.read_bytes() if path.exists() else None) == content
    assert not (tmp_path / "a.journal.damaged").exists()
    Journal(path).close()  # the refusal let go of the lock


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_nothing_is_appended_to_a_file_that_is_no_longer_at_its_path(tmp_path, how):
    folder = tmp_path / "run"
    folder.mkdir()
    journal = Journal(folder / "a.journal")
    journal.append({"what": "x"})
    if how == "moved":
        folder.rename(tmp_path / "elsewhere")
    else:
        (folder / "a.journal").unlink()
        if how == "replaced":
            (folder / "a.journal").touch()
    with pytest.raises(MovedError, match=r"a\.journal was moved or deleted while the page was open"):
        journal.append({"what": "y"})
    assert len(journal.events) == 1
    if how == "moved":
        (tmp_path / "elsewhere").rename(folder)
        assert journal.append({"what": "y"})["n"] == 2
    journal.close()
