from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sobgnn.labeling import picking, server
from sobgnn.labeling.history import History
from sobgnn.labeling.launch import open_page
from sobgnn.labeling.progress import Measurement
from sobgnn.labeling.server import Labeling
from sobgnn.labeling.session import Session
from tests.labeling.conftest import FAKE, Client

SERVER = """
import sys
from pathlib import Path
from sobgnn.labeling.launch import open_page
page = open_page(sys.argv[1], "team", folder=Path(sys.argv[2]), command=sys.argv[3:])
print(page.url, flush=True)
page.serve()
"""


def add_classes(client, *names):
    for name in names:
        assert client.post("class", {"name": name})[0] == 200


def test_an_answer_to_a_change_holds_the_new_state_and_the_next_points(client):
    add_classes(client, "a", "b")
    first = client.json("api/next")["upcoming"][0]
    assert {part["name"] for part in first["content"]} == {"text", "minutes", "words"}  # neither id nor label
    status, answer = client.post("label", {"rows": [first["row"]], "class": 0})
    assert status == 200
    assert answer["state"]["labels"] == 1
    assert first["row"] not in [point["row"] for point in answer["upcoming"]]
    assert [entry["count"] for entry in answer["state"]["classes"]] == [1, 0]


def test_the_page_says_which_labels_the_model_knows(client):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0, "how": "lasso"})
    client.post("label", {"rows": [3, 4, 5], "class": 1, "how": "lasso"})
    found = client.until(lambda state: state["model"]["labels"] == 6)
    assert found["state"]["model"]["knows"] == found["state"]["saved"]
    guess = client.json("api/point/7")["guesses"][0]
    assert (guess["code"], guess["sure"]) == (1, 0.75)
    assert client.json("api/suspects")[0]["row"] == 0
    marks = client.get("api/marks")[2]
    given = np.frombuffer(marks[:240], dtype="<i2")
    assert given[:7].tolist() == [0, 0, 0, 1, 1, 1, -1]
    assert len(marks) == 5 * 120
    assert len(client.get("api/map")[2]) == 8 * 120


def test_a_class_whose_only_label_was_undone_is_guessed_no_more(client, page):
    add_classes(client, "a", "b", "c")
    client.post("label", {"rows": [0, 1, 2], "class": 0, "how": "lasso"})
    client.post("label", {"rows": [3, 4, 5], "class": 1, "how": "lasso"})
    client.post("label", {"rows": [6], "class": 2})
    client.until(lambda state: state["model"]["labels"] == 7)
    row = next(row for row in range(10, 20) if client.json(f"api/point/{row}")["guesses"][0]["code"] == 2)
    page.labeling.learner._due = lambda: False  # the fit before still stands
    client.post("undo")
    assert [guess["code"] for guess in client.json(f"api/point/{row}")["guesses"]] == [1]
    guessed = np.frombuffer(client.get("api/marks")[2][240:480], dtype="<i2")
    assert set(guessed.tolist()) == {-1, 0, 1}
    client.post("label", {"rows": [row], "class": 0})
    assert page.labeling.session.state.labels[row].guess is None


@pytest.mark.parametrize("undone", [0, 1])
def test_a_run_of_labels_that_were_undone_is_removed(page, client, undone):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0], "class": 0})
    client.post("label", {"rows": [1], "class": 1})
    for _ in range(undone):
        client.post("undo")
    for name in ("report.html", "table.json"):
        (page.folder / name).touch()
    page.close()
    assert [(page.folder / name).exists() for name in ("report.html", "table.json", "labels.csv")] == [
        not undone,
        not undone,
        True,
    ]


def test_an_audited_row_shows_no_guess_and_is_judged_by_the_guess_before(client, page):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0})
    client.post("label", {"rows": [3, 4, 5, 6], "class": 1})
    found = client.until(lambda state: state["model"]["labels"] == 7)
    drawn = found["upcoming"][0]
    assert drawn["why"] == "audit"
    assert drawn["guesses"] == []
    guess = int(page.labeling.learner.guesses.codes[drawn["row"], 0])
    _, answer = client.post("label", {"rows": [drawn["row"]], "class": 1 - guess})
    assert answer["state"]["audit"]["judged"] == 1
    assert answer["state"]["audit"]["right"] == 0
    _, answer = client.post("undo")
    assert answer["state"]["audit"]["judged"] == 0
    client.json(f"api/point/{drawn['row']}")  # opened by hand, so its guess was seen
    _, answer = client.post("label", {"rows": [drawn["row"]], "class": guess})
    assert answer["state"]["audit"]["judged"] == 0


def draw_audit(client, page):
    """Label 7 rows of two classes; the next is a row of the audit."""
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0})
    client.post("label", {"rows": [3, 4, 5, 6], "class": 1})
    drawn = client.until(lambda state: state["model"]["labels"] == 7)["upcoming"][0]
    assert drawn["why"] == "audit"
    return drawn["row"], int(page.labeling.learner.guesses.codes[drawn["row"], 0])


def test_a_row_of_the_audit_that_is_labeled_again_counts_with_the_label_it_has_now(client, page):
    row, guess = draw_audit(client, page)
    client.post("label", {"rows": [row], "class": 1 - guess})
    client.json(f"api/point/{row}")
    for code, right in ((guess, 1), (1 - guess, 0)):
        found = client.post("label", {"rows": [row], "class": code})[1]["state"]["audit"]
        assert (found["judged"], found["right"]) == (1, right)


def test_a_row_that_was_undone_is_no_audit_even_after_a_restart(client, page, tickets):
    row, guess = draw_audit(client, page)
    client.post("label", {"rows": [row], "class": guess})
    answer = client.post("undo")[1]
    assert answer["upcoming"][0]["why"] == "audit"
    assert answer["upcoming"][0]["row"] != row
    assert client.post("label", {"rows": [row], "class": guess})[1]["state"]["audit"]["judged"] == 0
    client.post("undo")
    page.close()
    resumed = open_page(str(tickets), "team", folder=page.folder, command=FAKE).start()
    try:
        again = Client(resumed.url)
        drawn = again.until(lambda state: state["model"]["labels"] == 7)["upcoming"][0]
        assert (drawn["why"], drawn["row"]) == ("audit", answer["upcoming"][0]["row"])
    finally:
        resumed.close()


def test_a_lasso_that_was_undone_leaves_rows_for_the_audit(client, page):
    draw_audit(client, page)
    client.post("label", {"rows": list(range(7, 120)), "class": 0, "how": "lasso"})
    client.post("undo")
    assert client.json("api/next")["upcoming"][0]["why"] == "audit"
    assert page.labeling.session.withdrawn() == {7}


def test_a_lasso_around_one_row_is_no_audit(client, page):
    row, guess = draw_audit(client, page)
    answer = client.post("label", {"rows": [row], "class": guess, "how": "lasso"})[1]
    assert answer["state"]["audit"]["drawn"] == 0


def test_a_page_that_showed_the_guess_makes_no_audit(client, page):
    row, guess = draw_audit(client, page)
    body = {"rows": [row], "class": guess, "how": "accept", "blind": False}
    assert client.post("label", body)[1]["state"]["audit"]["drawn"] == 0
    assert page.labeling.session.state.labels[row].by == "model"


def test_the_row_that_a_tab_shows_is_not_offered_to_it_again_and_keeps_its_kind(client, page):
    row, guess = draw_audit(client, page)
    for _ in range(2):
        offered = client.json(f"api/next?tab=one&at={row}")["upcoming"]
        assert [point["why"] for point in offered] == 4 * ["suggested"]
        assert row not in [point["row"] for point in offered]
    assert client.json("api/next?tab=one")["upcoming"][0]["row"] == row  # a reload
    assert client.post("label", {"rows": [row], "class": guess})[1]["state"]["audit"]["drawn"] == 1


@pytest.mark.parametrize("at", [-1, 120, 10**30, "7", [7], 7.0])
def test_a_row_that_is_not_there_is_not_shown(client, page, at):
    status, answer = client.post("retry", {"tab": "one", "at": at})
    assert status == 200
    assert len(answer["upcoming"]) == server.UPCOMING
    assert page.labeling._offers.of_others("two") == {point["row"] for point in answer["upcoming"]}


def test_the_map_hides_the_guess_of_an_audit_until_it_is_labeled(client, page):
    row, guess = draw_audit(client, page)

    def mark():
        marks = client.get("api/marks")[2]
        return np.frombuffer(marks[240:480], dtype="<i2")[row], marks[480 + row]

    assert mark() == (-1, 0)
    client.post("label", {"rows": [row], "class": guess})
    assert mark()[0] == guess


def test_undo_names_every_row_that_it_brings_back(client):
    add_classes(client, "a")
    client.post("label", {"rows": [5, 2, 9], "class": 0, "how": "lasso"})
    assert client.post("undo")[1]["undone"]["rows"] == [2, 5, 9]


def test_a_label_of_a_row_that_was_labeled_meanwhile_is_refused(client, page):
    add_classes(client, "a", "b")
    assert client.post("label", {"rows": [0], "class": 0, "was": None})[0] == 200
    saved = page.labeling.session.saved
    status, answer = client.post("label", {"rows": [0], "class": 1, "was": None})
    assert status == 409
    assert "was labeled 'a' in another tab" in answer["error"]
    status, answer = client.post("label", {"rows": [0, 1, 2], "class": 1, "was": None})
    assert status == 409
    assert "1 of the 3 rows" in answer["error"]
    assert page.labeling.session.saved == saved
    assert client.post("label", {"rows": [0], "class": 0, "was": None})[0] == 200  # both say the same
    assert client.post("label", {"rows": [0], "class": 1, "was": 0})[0] == 200
    assert client.post("clear", {"rows": [0]})[0] == 200
    status, answer = client.post("label", {"rows": [0], "class": 0, "was": 1})
    assert status == 409
    assert "lost its label" in answer["error"]


def test_tabs_are_offered_different_rows_as_long_as_there_are_some(client, page, monkeypatch):
    page.labeling.learner._due = lambda: False  # suggestions stay as they are
    add_classes(client, "a")

    def offered(tab, at=""):
        return {point["row"] for point in client.json(f"api/next?tab={tab}&at={at}")["upcoming"]}

    first, second = offered("one", 7), offered("two")
    assert not second & {*first, 7}
    assert offered("one", 7) == first
    answer = client.post("label", {"rows": [min(first)], "class": 0, "tab": "one", "at": 7})[1]
    assert not second & {point["row"] for point in answer["upcoming"]}
    client.post("label", {"rows": [row for row in range(120) if row != 7], "class": 0})
    assert offered("one") == offered("two") == {7}  # none is left for one tab alone
    client.post("undo")
    monkeypatch.setattr(picking, "TAB_SECONDS", 0.0)  # a tab that was closed
    assert offered("three") == offered("four")


def test_suspects_that_were_confirmed_or_changed_are_not_listed_again(client):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0})
    client.post("label", {"rows": [3, 4, 5], "class": 1})
    client.until(lambda state: state["model"]["labels"] == 6)
    assert [entry["row"] for entry in client.json("api/suspects")] == [0, 1]
    client.post("label", {"rows": [0], "class": 0})
    saved = client.post("label", {"rows": [1], "class": 1})[1]["state"]["saved"]
    assert client.json("api/suspects") == []
    client.until(lambda state: state["model"]["knows"] == saved)
    assert [entry["row"] for entry in client.json("api/suspects")] == [1]  # the model doubts the new label too


def test_search_finds_rows_by_all_their_words(client):
    rows = [entry["row"] for entry in client.json("api/search?q=PASSWORD+login+7")["rows"]]
    assert rows
    assert all(row % 3 == 1 and "7" in str(row) for row in rows)
    for words in ("", "nowhere", ".*"):  # a text, not a pattern
        assert client.json(f"api/search?q={words}") == {"found": 0, "rows": []}


def test_search_says_how_many_rows_it_found_though_it_lists_fewer(client):
    answer = client.json("api/search?q=customer")
    assert (answer["found"], len(answer["rows"])) == (119, 50)


def test_a_label_that_was_taken_back_is_not_offered_as_the_guess(client, page):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1], "class": 0})
    client.post("label", {"rows": [2, 3], "class": 1})
    client.post("label", {"rows": [4], "class": 1})
    client.until(lambda state: state["model"]["labels"] == 5)
    page.labeling.learner._due = lambda: False  # no fit forgets it
    assert client.post("undo")[1]["undone"]["rows"] == [4]
    assert client.json("api/point/4")["guesses"] == []
    assert client.json("api/point/5")["guesses"] != []


def test_labels_csv_that_cannot_be_written_is_said_and_the_model_goes_on(client, page):
    add_classes(client, "a", "b")
    (page.folder / "labels.csv").unlink(missing_ok=True)
    (page.folder / "labels.csv").mkdir()
    for number in range(2):
        client.post("label", {"rows": [3 * number], "class": 0})
        client.post("label", {"rows": [3 * number + 1], "class": 1})
        model = client.until(lambda state, n=number: state["model"]["labels"] == 2 * n + 2)["state"]["model"]
    client.until(lambda state: "labels.csv could not be written" in state["model"]["problem"])
    assert model["busy"] == ""
    (page.folder / "labels.csv").rmdir()


@pytest.mark.parametrize("kind", ["csv", "parquet", "label-studio"])
def test_labels_are_exported(client, kind, tmp_path):
    import polars as pl

    add_classes(client, 'a "quoted", name', "b")
    client.post("label", {"rows": [1, 2], "class": 0})
    status, _, body = client.get(f"export/{kind}")
    assert status == 200
    if kind == "label-studio":
        tasks = json.loads(body)
        assert [task["data"]["id"] for task in tasks] == ["T1", "T2"]
        assert tasks[0]["annotations"][0]["result"][0]["value"] == {"choices": ['a "quoted", name']}
        return
    (tmp_path / "file").write_bytes(body)
    frame = (pl.read_csv if kind == "csv" else pl.read_parquet)(tmp_path / "file")
    assert frame.columns == ["id", "label", "when", "by"]
    assert frame["id"].to_list() == ["T1", "T2"]
    assert frame["label"].to_list() == 2 * ['a "quoted", name']
    assert frame["by"].to_list() == ["person", "person"]


def test_a_class_that_a_spreadsheet_would_run_is_made_harmless_in_csv_alone(client, tmp_path):
    import polars as pl

    add_classes(client, "=1+2")
    client.post("label", {"rows": [1], "class": 0})
    assert client.get("export/csv")[2].splitlines()[1].split(b",")[1] == b"'=1+2"
    (tmp_path / "file").write_bytes(client.get("export/parquet")[2])
    assert pl.read_parquet(tmp_path / "file")["label"].to_list() == ["=1+2"]


def test_labels_csv_is_written_when_the_page_closes(page, client):
    add_classes(client, "a")
    client.post("label", {"rows": [4], "class": 0})
    page.close()
    lines = (page.folder / "labels.csv").read_text().splitlines()
    assert lines[0] == "id,label,when,by"
    assert lines[1].startswith("T4,a,20")


def test_a_disk_that_refuses_is_said_and_nothing_counts_as_saved(client, page, monkeypatch):
    add_classes(client, "a")
    saved = page.labeling.session.saved

    def full(event):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page.labeling.session._journal, "append", full)
    status, answer = client.post("label", {"rows": [0], "class": 0})
    assert status == 507
    assert "Not saved" in answer["error"]
    assert page.labeling.session.saved == saved


def test_a_second_server_on_the_same_run_is_refused(page, tickets):
    with pytest.raises(ValueError, match="being labeled in another window"):
        open_page(str(tickets), "team", folder=page.folder, command=FAKE)


@pytest.mark.parametrize("how", ["server", "worker"])
def test_a_kill_in_the_middle_of_200_labels_loses_none_that_was_shown_as_saved(tickets, tmp_path, how):
    folder = tmp_path / "run"
    worker = [*FAKE, "crash"] if how == "worker" else FAKE
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(tickets), str(folder), *worker], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        client = Client(server.stdout.readline().strip())
        client.until(lambda state: state["model"]["version"])
        add_classes(client, "a", "b")
        shown = {}
        for number in range(200):
            row, code = (7 * number) % 120, number % 2
            if how == "server" and number == 130:
                server.send_signal(signal.SIGKILL)
            try:
                status, _ = client.post("label", {"rows": [row], "class": code})
            except (ConnectionError, OSError):
                break
            assert status == 200
            shown[row] = code
        if how == "worker":
            model = client.until(lambda state: state["model"]["stopped"])["state"]["model"]
            assert "killed" in model["problem"]
            assert "labels are safe" in model["problem"]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    session = Session(folder, 120, json.loads((folder / "labels.journal").read_text().split("\n")[0])["data"])
    held = {row: label.code for row, label in session.state.labels.items()}
    session.close()
    assert len(shown) >= 100
    assert {row: held[row] for row in shown} == shown


def test_a_worker_that_keeps_ending_is_left_alone_until_asked_for(tickets, tmp_path):
    dead = [sys.executable, "-c", "raise SystemExit(3)"]
    page = open_page(str(tickets), "team", folder=tmp_path / "run", command=dead).start()
    try:
        client = Client(page.url)
        model = client.until(lambda state: state["model"]["stopped"])["state"]["model"]
        assert "exit code 3" in model["problem"]
        points = client.json("api/next")["upcoming"]
        assert [point["why"] for point in points] == 4 * ["random"]  # labeling goes on
        page.labeling.learner._command = FAKE
        assert client.post("retry")[0] == 200
        client.until(lambda state: state["model"]["version"] and not state["model"]["problem"])
    finally:
        page.close()


@pytest.mark.parametrize("command", [None, FAKE])
def test_a_model_that_restarts_on_changed_data_is_refused_and_so_is_finishing(tickets, tmp_path, command):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", command=command).start()
    try:
        client = Client(page.url)
        client.until(lambda state: state["model"]["version"])
        add_classes(client, "a", "b")
        client.post("label", {"rows": [0, 1], "class": 0})
        client.post("label", {"rows": [2, 3], "class": 1})
        before = tickets.read_text()
        lines = before.splitlines(keepends=True)
        tickets.write_text("".join([lines[0], *reversed(lines[1:])]))
        page.labeling.learner._process.kill()
        model = client.until(lambda state: state["model"]["stopped"])["state"]["model"]
        assert "tickets.csv has changed since it was opened" in model["problem"]
        assert "labels are safe" in model["problem"]
        assert page.finish(60) is None
        assert "has changed" in page.problem
        assert not (page.folder / "report.html").exists()
        assert client.post("label", {"rows": [4], "class": 1})[0] == 200  # labeling goes on
        tickets.write_text(before)
        client.post("retry")
        client.until(lambda state: state["model"]["labels"] == 5 and not state["model"]["problem"])
    finally:
        page.close()
    assert len(page.labels()) == 120


def test_what_cannot_be_read_is_one_line(tmp_path):
    with pytest.raises(ValueError, match="no file"):
        open_page(str(Path(tmp_path) / "missing.csv"), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_drawn_at_random_are_shown_where_the_first_suggestions_take_long(tickets, tmp_path, monkeypatch):
    silent = [sys.executable, "-c", "import time; time.sleep(600)"]
    page = open_page(str(tickets), "team", folder=tmp_path / "run", command=silent).start()
    try:
        client = Client(page.url)
        assert client.json("api/next")["upcoming"] == []
        monkeypatch.setattr(server, "MOST_WAIT", 0.0)
        found = client.json("api/next")
        assert found["state"]["model"]["starting"]
        assert [point["why"] for point in found["upcoming"]] == ["random"] * server.UPCOMING
        add_classes(client, "a")
        assert client.post("label", {"rows": [found["upcoming"][0]["row"]], "class": 0})[0] == 200
    finally:
        page.close()


def test_a_folder_that_is_deleted_while_open_saves_nothing_and_the_model_says_that_it_cannot_start(client, page):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0], "class": 0})
    client.post("label", {"rows": [1], "class": 1})
    shutil.rmtree(page.folder)
    status, answer = client.post("label", {"rows": [2], "class": 0})
    assert status == 507
    assert "labels.journal was moved or deleted while the page was open" in answer["error"]
    assert client.json("api/next")["state"]["labels"] == 2
    page.labeling.learner._process.kill()
    model = client.until(lambda state: "could not be started" in state["model"]["problem"], 60)["state"]["model"]
    assert model["stopped"]
    assert page.finish(60) is None  # and does not wait for a process that never comes
    assert "could not be started" in page.problem
    with pytest.raises(OSError, match="was moved or deleted"):
        page.close()
    assert not page.folder.exists()


def test_a_tab_undoes_its_own_changes_until_the_others_are_closed(client, page):
    add_classes(client, "a")
    client.json("api/next?tab=two")
    first = client.post("label", {"rows": [0], "class": 0, "tab": "one"})[1]["state"]
    assert (first["windows"], first["undo"]) == (1, 2)  # the class was added by no tab that is open
    second = client.json("api/next?tab=two")["state"]
    assert (second["windows"], second["undo"]) == (1, 1)
    status, answer = client.post("undo", {"tab": "two"})
    assert status == 409  # the class has a label of the other tab
    assert "another window needs it" in answer["error"]
    assert client.post("leave", {"tab": "one"})[0] == 200
    second = client.json("api/next?tab=two")["state"]
    assert (second["windows"], second["undo"]) == (0, 2)
    assert client.post("undo", {"tab": "two"})[1]["undone"] == {
        "what": "label",
        "rows": [0],
        "said": "label of row T0, from a closed window",
    }


def test_undo_says_each_kind_of_change_in_words(client):
    add_classes(client, "a", "b")
    made = [
        ("label", {"rows": [3], "class": 0}, "label of row T3"),
        ("label", {"rows": [3, 4, 6], "class": 1}, "labels of 3 rows"),
        ("clear", {"rows": [3]}, "label of row T3 removed"),
        ("skip", {"rows": [7]}, "row T7 skipped"),
        ("rename", {"class": 0, "name": "c"}, "class a renamed to c"),
        ("merge", {"class": 0, "into": 1}, "class c merged into b"),
        ("class", {"name": "d"}, "class d added"),
    ]
    for what, body, _ in made:
        assert client.post(what, body)[0] == 200
    for what, _, said in reversed(made):
        undone = client.post("undo")[1]["undone"]
        assert (undone["what"], undone["said"]) == (what, said)


def test_a_lasso_over_one_cluster_does_not_make_labels_enough(client):
    add_classes(client, "a", "b")
    for row in range(10):
        client.post("label", {"rows": [row], "class": row % 2})
    client.until(lambda state: state["model"]["labels"] == 10)
    client.post("label", {"rows": list(range(10, 60)), "class": 0, "how": "lasso"})
    advice = client.until(lambda state: state["model"]["labels"] == 60)["state"]["advice"]
    assert not advice["enough"]
    assert "count as one" in advice["sentence"]
    for row in range(60, 110):
        client.post("label", {"rows": [row], "class": row % 2})
    assert client.until(lambda state: state["model"]["labels"] == 110)["state"]["advice"]["enough"]


def test_a_label_that_was_corrected_or_taken_back_is_not_known_before_the_next_fit(client, page):
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0})
    client.post("label", {"rows": [3, 4, 5], "class": 1})
    model = client.until(lambda state: state["model"]["labels"] == 6)["state"]["model"]
    assert (model["known"], model["dated"]) == (6, False)
    page.labeling.learner._due = lambda: False
    assert client.post("label", {"rows": [0], "class": 1})[1]["state"]["model"]["known"] == 5
    model = client.post("undo")[1]["state"]["model"]
    assert (model["known"], model["dated"]) == (6, False)
    model = client.post("clear", {"rows": [0]})[1]["state"]["model"]
    assert (model["known"], model["dated"]) == (5, True)


def test_a_merge_of_classes_is_no_change_of_predictions(tmp_path):
    truth = np.arange(400) % 3
    with contextlib.closing(Session(tmp_path, 400, "abc", ["a", "b", "c"])) as session:
        history = History(tmp_path)
        learner = SimpleNamespace(history=history, guesses=None, status=lambda: {"starting": False}, on_answer=None)
        labeling = Labeling(SimpleNamespace(name="x", rows=400, table=None, fingerprint="abc"), session, learner)

        def fit():
            predicted = np.where((truth == 0) & (0 not in session.state.classes), 1, truth)
            count = len(session.state.labels)
            history.add(Measurement(count, 0.99, 0.1, predicted, 50, session.saved, count))

        for row in range(120):
            session.label([row], int(truth[row]))
            if row % 5 == 4:
                fit()
        assert labeling.state()["advice"]["enough"]
        session.merge_class(0, 1)
        fit()
        assert labeling.state()["advice"]["enough"]
        history.close()


def test_after_a_merge_a_row_of_the_audit_is_still_right_and_classes_keep_their_colors(tmp_path):
    with contextlib.closing(Session(tmp_path, 400, "abc", ["a", "b", "c"])) as session:
        found = SimpleNamespace(held_out={5: 0, 6: 2}, given={})
        history = History(tmp_path)
        learner = SimpleNamespace(history=history, guesses=found, status=lambda: {"starting": False}, on_answer=None)
        labeling = Labeling(SimpleNamespace(name="x", rows=400, table=None, fingerprint="abc"), session, learner)
        session.label([5], 0, audit=True)
        session.label([6], 1, audit=True)
        before = labeling.state()
        assert (before["audit"]["right"], before["audit"]["judged"]) == (1, 2)
        session.merge_class(0, 1)
        after = labeling.state()
        assert (after["audit"]["right"], after["audit"]["judged"]) == (1, 2)
        assert after["classes"][0]["name"] == "b"
        assert after["classes"][0]["light"] == before["classes"][1]["light"]
        history.close()
