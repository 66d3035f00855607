from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import shutil
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import psutil
import pytest

from sobgnn.app.labeling import app
from sobgnn.app.labeling.launch import open_page
from sobgnn.app.labeling.progress import Fit, Predictions
from sobgnn.app.labeling.store import Store
from tests.app.labeling.conftest import Client, wait_until
from tests.app.labeling.fake_model import Fake, serve


def add_classes(client, *names):
    for name in names:
        assert client.post("class", {"name": name})[0] == 200


def taught(client, page):
    """Label 7 rows of two classes, after which the model rests; the next row is one of the audit."""
    add_classes(client, "a", "b")
    client.post("label", {"rows": [0, 1, 2], "class": 0, "how": "lasso"})
    client.post("label", {"rows": [3, 4, 5, 6], "class": 1, "how": "lasso"})
    state = client.until(lambda state: state["model"]["labels"] == 7 and not state["model"]["busy"])
    page.labeling.model._due = lambda: None
    return state


def draw_audit(client, page):
    taught(client, page)
    drawn = client.next()[0]
    assert (drawn["why"], drawn["guesses"]) == ("audit", [])
    return drawn["row"], int(page.labeling.model.predictions.codes[drawn["row"], 0])


def guesses(client, row):
    return client.post("open", {"row": row})[1]["point"]["guesses"]


def test_an_answer_to_a_change_holds_the_next_points(client):
    add_classes(client, "a", "b")
    first = client.next()[0]
    assert [part["name"] for part in first["content"]] == ["text", "minutes", "words"]  # neither id nor label
    status, answer = client.post("label", {"rows": [first["row"]], "class": 0})
    assert status == 200
    assert first["row"] not in [point["row"] for point in answer["upcoming"]]
    state = client.state()
    assert (state["saved"], state["labels"]) == (answer["saved"], 1)
    assert [entry["count"] for entry in state["classes"]] == [1, 0]


def test_reading_changes_nothing(client, page):
    taught(client, page)

    def everything():
        store, picker = page.labeling.store, page.labeling.picker
        shown = dict(page.labeling.windows._shown)
        return store.saved, store._db.total_changes, set(picker._seen), set(picker.audits), shown

    before = everything()
    for path in ("", "api/map", "api/marks", "api/suspects", "api/search?q=customer", "picture/0", "export/csv"):
        for _ in range(2):
            client.get(path)
    client.state()
    for what in app.CHANGES:
        assert client.get(f"api/{what}")[0] == 404
    assert everything() == before


def test_a_window_is_told_what_changes_and_nothing_else(client, page):
    page.labeling.model._due = lambda: None
    with client.events("one") as told:
        shown = {}

        def wait_for(true):  # the model's process says meanwhile that it has started
            for name, now in told:
                assert shown.get(name) != now
                shown[name] = now
                if set(shown) == {"state", "progress"} and true(shown["state"]):
                    return

        wait_for(lambda state: True)
        add_classes(client, "a")
        wait_for(lambda state: [entry["name"] for entry in state["classes"]] == ["a"])
        page.labeling.tell()  # of nothing
        client.post("label", {"rows": [3], "class": 0})
        wait_for(lambda state: state["labels"] == 1)


def test_the_page_says_which_labels_the_model_knows(client, page):
    state = taught(client, page)
    assert (state["model"]["knows"], state["model"]["known"]) == (state["saved"], 7)
    assert guesses(client, 7)[0] == {"code": 1, "sure": 0.75}
    marks = client.get("api/marks")[2]
    assert np.frombuffer(marks[:240], dtype="<i2")[:8].tolist() == [0, 0, 0, 1, 1, 1, 1, -1]
    assert len(marks) == 5 * 120
    x, y = np.frombuffer(client.get("api/map")[2], "<f4").reshape(2, 120)
    assert (x[0], y[30]) == (1, 1)
    client.post("label", {"rows": [0], "class": 1})
    assert client.state()["model"]["known"] == 6
    client.post("undo")
    client.post("clear", {"rows": [0]})
    model = client.state()["model"]
    assert (model["known"], model["dated"]) == (6, True)


def test_a_class_whose_only_label_was_undone_is_guessed_no_more(client, page):
    add_classes(client, "a", "b", "c")
    client.post("label", {"rows": [0, 1, 2], "class": 0})
    client.post("label", {"rows": [3, 4, 5], "class": 1})
    client.post("label", {"rows": [6], "class": 2})
    client.until(lambda state: state["model"]["labels"] == 7)
    page.labeling.model._due = lambda: None  # the fit before still stands
    row = next(row for row in range(10, 20) if guesses(client, row)[0]["code"] == 2)
    client.post("undo")
    assert [guess["code"] for guess in guesses(client, row)] == [1]
    assert set(np.frombuffer(client.get("api/marks")[2][240:480], dtype="<i2").tolist()) == {-1, 0, 1}
    client.post("label", {"rows": [row], "class": 0})
    assert page.labeling.store.label_of(row).guess == -1


def test_a_label_that_was_taken_back_is_not_offered_as_the_guess(client, page):
    taught(client, page)
    undone = client.post("undo")[1]
    assert (undone["undone"]["rows"], undone["point"]["guesses"]) == ([3, 4, 5, 6], [])
    assert guesses(client, 4) == []
    assert guesses(client, 8) != []


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
    left = [(page.folder / name).exists() for name in ("report.html", "table.json", "labels.csv")]
    assert left == [not undone, not undone, True]


def test_an_audited_row_is_judged_by_the_guess_before_until_it_was_seen(client, page):
    row, guess = draw_audit(client, page)
    client.post("label", {"rows": [row], "class": 1 - guess})
    audit = client.progress()["audit"]
    assert (audit["judged"], audit["right"]) == (1, 0)
    client.post("open", {"row": row})  # labeled again, it counts with the label that it has now
    for code, right in ((guess, 1), (1 - guess, 0)):
        client.post("label", {"rows": [row], "class": code})
        audit = client.progress()["audit"]
        assert (audit["judged"], audit["right"]) == (1, right)
    for _ in range(3):
        client.post("undo")
    client.post("label", {"rows": [row], "class": guess})
    assert client.progress()["audit"]["judged"] == 0


def test_a_row_that_was_undone_is_no_audit_even_after_a_restart(client, page, tickets):
    row, guess = draw_audit(client, page)
    client.post("label", {"rows": [row], "class": guess})
    drawn = client.post("undo")[1]["upcoming"][0]
    assert drawn["why"] == "audit"
    assert drawn["row"] != row
    page.close()
    resumed = open_page(str(tickets), "team", folder=page.folder, trainer=Fake).start()
    try:
        again = Client(resumed.url)
        again.until(lambda state: state["model"]["labels"] == 7)
        assert (again.next()[0]["why"], again.next()[0]["row"]) == ("audit", drawn["row"])
    finally:
        resumed.close()


@pytest.mark.parametrize("body", [{"how": "lasso"}, {"how": "accept", "blind": False}])
def test_a_lasso_or_a_page_that_showed_the_guess_makes_no_audit(client, page, body):
    row, guess = draw_audit(client, page)
    client.post("label", {"rows": [row], "class": guess, **body})
    assert client.progress()["audit"]["drawn"] == 0
    assert page.labeling.store.label_of(row).by == ("model" if body["how"] == "accept" else "person")


def test_the_row_that_a_tab_shows_is_not_offered_to_it_again_and_keeps_its_kind(client, page):
    row, guess = draw_audit(client, page)
    for _ in range(2):
        offered = client.next(tab="one", at=row)
        assert [point["why"] for point in offered] == 4 * ["suggested"]
        assert row not in [point["row"] for point in offered]
    assert client.next(tab="one")[0]["row"] == row  # a reload
    client.post("label", {"rows": [row], "class": guess})
    assert client.progress()["audit"]["drawn"] == 1


def test_a_row_that_is_not_there_is_not_shown(client):
    for at in (-1, 120, 10**30, "7", [7], 7.0):
        assert len(client.next(at=at)) == app.UPCOMING
        assert client.post("open", {"row": at})[0] == 400


def test_the_map_hides_the_guess_of_an_audit_until_it_is_labeled(client, page):
    row, guess = draw_audit(client, page)

    def mark():
        marks = client.get("api/marks")[2]
        return np.frombuffer(marks[240:480], dtype="<i2")[row], marks[480 + row]

    assert mark() == (-1, 0)
    client.post("label", {"rows": [row], "class": guess})
    assert mark()[0] == guess


def test_a_label_of_a_row_that_was_labeled_meanwhile_is_refused(client, page):
    add_classes(client, "a", "b")
    assert client.post("label", {"rows": [0], "class": 0, "was": None})[0] == 200
    saved = page.labeling.store.saved
    for rows, message in (([0], "was labeled 'a' in another tab"), ([0, 1, 2], "1 of the 3 rows")):
        status, answer = client.post("label", {"rows": rows, "class": 1, "was": None})
        assert status == 409
        assert message in answer["error"]
    assert page.labeling.store.saved == saved
    assert client.post("label", {"rows": [0], "class": 0, "was": None})[0] == 200  # both say the same
    assert client.post("label", {"rows": [0], "class": 1, "was": 0})[0] == 200
    assert client.post("clear", {"rows": [0]})[0] == 200
    status, answer = client.post("label", {"rows": [0], "class": 0, "was": 1})
    assert status == 409
    assert "lost its label" in answer["error"]


def test_windows_are_offered_different_rows_as_long_as_there_are_some(client, page):
    page.labeling.model._due = lambda: None  # suggestions stay as they are
    add_classes(client, "a")

    def offered(tab, **more):
        return {point["row"] for point in client.next(tab=tab, **more)}

    with client.events("one") as one, client.events("two") as two:
        next(one), next(two)
        first, second = offered("one", at=7), offered("two")
        assert not second & {*first, 7}
        assert offered("one", at=7) == first
        answer = client.post("label", {"rows": [min(first)], "class": 0, "tab": "one", "at": 7})[1]
        assert not second & {point["row"] for point in answer["upcoming"]}
        client.post("label", {"rows": [row for row in range(120) if row != 7], "class": 0})
        assert offered("one") == offered("two") == {7}  # none is left for one window alone
        client.post("undo")
    wait_until(lambda: not page.labeling.windows._open)
    assert offered("three") == offered("four")  # the others were closed


def test_a_window_undoes_its_own_changes_until_the_others_are_closed(client, page):
    page.labeling.model._due = lambda: None
    add_classes(client, "a")
    with client.events("two") as two:
        next(two)
        with client.events("one") as one:
            next(one)
            client.post("label", {"rows": [0], "class": 0, "tab": "one"})
            state = next(data for name, data in two if name == "state" and data["labels"])
            assert (state["windows"], state["undo"]) == (1, True)  # the class was added by no window that is open
            status, answer = client.post("undo", {"tab": "two"})
            assert status == 409  # the class has a label of the other window
            assert "another window needs it" in answer["error"]
        next(data for name, data in two if name == "state" and not data["windows"])
        undone = client.post("undo", {"tab": "two"})[1]["undone"]
    assert undone == {"what": "label", "rows": [0], "message": "label of T0, from a closed window"}


def test_undo_says_each_kind_of_change_in_words(client):
    add_classes(client, "a", "b")
    made = [
        ("label", {"rows": [3], "class": 0}, "label of T3"),
        ("label", {"rows": [4, 3, 6], "class": 1}, "labels of 3 rows"),
        ("clear", {"rows": [3]}, "label of T3 removed"),
        ("skip", {"rows": [7]}, "T7 skipped"),
        ("rename", {"class": 0, "name": "c"}, "class a renamed to c"),
        ("merge", {"class": 0, "into": 1}, "class c merged into b"),
        ("class", {"name": "d"}, "class d added"),
    ]
    for what, body, _ in made:
        assert client.post(what, body)[0] == 200
    for what, body, message in reversed(made):
        undone = client.post("undo")[1]["undone"]
        assert (undone["what"], undone["message"]) == (what, message)
        assert undone["rows"] == sorted(body.get("rows", []))


def test_suspects_that_were_confirmed_or_changed_are_not_listed_again(client, page):
    model = page.labeling.model
    due = model._due
    taught(client, page)
    assert [entry["row"] for entry in client.json("api/suspects")] == [0, 1]
    client.post("label", {"rows": [0], "class": 0})
    saved = client.post("label", {"rows": [1], "class": 1})[1]["saved"]
    assert client.json("api/suspects") == []
    model._due = due
    client.until(lambda state: state["model"]["knows"] == saved)
    assert [entry["row"] for entry in client.json("api/suspects")] == [1]  # the model doubts the new label too


def test_search_finds_rows_by_all_their_words_and_says_how_many(client):
    answer = client.json("api/search?q=PASSWORD+login+7")
    rows = [entry["row"] for entry in answer["rows"]]
    assert answer["found"] == len(rows) > 0
    assert all(row % 3 == 1 and "7" in str(row) for row in rows)
    for words in ("", "nowhere", ".*"):  # a text, not a pattern
        assert client.json(f"api/search?q={words}") == {"found": 0, "rows": []}
    answer = client.json("api/search?q=customer")
    assert (answer["found"], len(answer["rows"])) == (119, app.LISTED)


def test_labels_are_exported_and_a_formula_is_made_harmless_in_csv_alone(client, tmp_path):
    import polars as pl

    add_classes(client, 'a "quoted", name', "=1+2")
    client.post("label", {"rows": [1], "class": 0})
    client.post("label", {"rows": [2], "class": 1})
    for kind in ("csv", "parquet"):
        (tmp_path / kind).write_bytes(client.get(f"export/{kind}")[2])
        frame = (pl.read_csv if kind == "csv" else pl.read_parquet)(tmp_path / kind)
        assert frame.columns == ["id", "label", "when", "by"]
        assert frame["id"].to_list() == ["T1", "T2"]
        assert frame["label"].to_list() == ['a "quoted", name', "'=1+2" if kind == "csv" else "=1+2"]
        assert frame["by"].to_list() == ["person", "person"]
    tasks = json.loads(client.get("export/label-studio")[2])
    assert [task["data"]["id"] for task in tasks] == ["T1", "T2"]
    assert tasks[0]["annotations"][0]["result"][0]["value"] == {"choices": ['a "quoted", name']}


def test_labels_csv_that_cannot_be_written_is_said_and_the_model_goes_on(client, page):
    add_classes(client, "a", "b")

    def blocked():  # a fit may write the file meanwhile
        (page.folder / "labels.csv").unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            (page.folder / "labels.csv").mkdir()
        return (page.folder / "labels.csv").is_dir()

    wait_until(blocked)
    for number in range(2):
        client.post("label", {"rows": [3 * number], "class": 0})
        client.post("label", {"rows": [3 * number + 1], "class": 1})
        client.until(lambda state, n=number: state["model"]["labels"] == 2 * n + 2)
    client.until(lambda state: "labels.csv could not be written" in state["model"]["problem"])
    (page.folder / "labels.csv").rmdir()


def test_the_report_is_served_in_a_sandbox(client, page):
    assert client.get("report.html")[0] == 404
    (page.folder / "report.html").write_text("<!doctype html><script>fetch('api/undo', {method: 'POST'})</script>")
    status, headers, _ = client.get("report.html")
    assert status == 200
    policy = headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'")
    assert "allow-same-origin" not in policy
    (page.folder / "report.html").unlink()


def test_a_disk_that_refuses_is_said_and_nothing_counts_as_saved(client, page):
    add_classes(client, "a")
    store = page.labeling.store
    saved = store.saved
    store._db.execute("pragma query_only = on")
    status, answer = client.post("label", {"rows": [0], "class": 0})
    assert status == 507
    assert answer["error"].startswith("Not saved: writing to disk failed")
    assert (store.saved, client.state()["labels"]) == (saved, 0)
    store._db.execute("pragma query_only = off")


def test_a_folder_that_is_deleted_while_open_saves_nothing(client, page):
    add_classes(client, "a")
    client.post("label", {"rows": [0], "class": 0})
    shutil.rmtree(page.folder)
    status, answer = client.post("label", {"rows": [2], "class": 0})
    assert status == 507
    assert "labels.db was moved or deleted while the page was open" in answer["error"]
    assert client.state()["labels"] == 1
    with pytest.raises(OSError, match="was moved or deleted"):
        page.close()
    assert not page.folder.exists()


@contextlib.contextmanager
def served(tickets, folder, harm=""):
    """A page in a process of its own, to be killed."""
    # Forked from a process that has imported the page: thirty of them start in seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["tests.app.labeling.fake_model", "sobgnn.tables.encoder", "polars", "sklearn.pipeline"]
    )
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, tickets, folder, harm))
    process.start()
    try:
        yield process, Client(ours.recv())
    finally:
        process.kill()
        process.join()
        ours.close()
        theirs.close()


def labels_in(folder, rows):
    store = Store(folder)
    store.begin({"fingerprint": store.meta["fingerprint"]}, [], np.full(rows, -1))
    held = {row: label.code for row, label in store.labeled()}
    store.close()
    return held


def test_thirty_kills_of_the_server_and_of_the_models_process_lose_no_label_that_was_acknowledged(tickets, tmp_path):
    folder, shown = tmp_path / "run", {}
    for kill in range(30):
        with served(tickets, folder) as (process, client):
            if not kill:
                add_classes(client, "a", "b")
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            for number in range(kill % 7 + 2):
                row, code = (7 * number + kill) % 120, (number + kill) % 2
                assert client.post("label", {"rows": [row], "class": code})[0] == 200
                shown[row] = code
            row = (11 * kill) % 120
            shown.pop(row, None)  # what comes may be written or not, unless it is acknowledged
            killer = threading.Timer(kill * 0.0005, process.kill)  # at another moment of the answer each time
            killer.start()
            with contextlib.suppress(OSError, http.client.HTTPException):
                assert client.post("label", {"rows": [row], "class": 0})[0] == 200
                shown[row] = 0
            killer.join()
        held = labels_in(folder, 120)
        assert {row: held[row] for row in shown} == shown
    assert len(shown) > 40


def test_a_process_of_the_model_that_is_killed_is_said_and_no_label_is_lost(tickets, tmp_path):
    with served(tickets, tmp_path / "run", "ends at 100") as (_, client):
        add_classes(client, "a", "b")
        for row in range(120):
            assert client.post("label", {"rows": [row], "class": row % 2})[0] == 200
        problem = client.until(lambda state: state["model"]["stopped"])["model"]["problem"]
        assert "process ended" in problem
        assert "labels are safe" in problem
    assert len(labels_in(tmp_path / "run", 120)) == 120


def test_rows_drawn_at_random_are_shown_where_the_first_suggestions_take_long(tickets, tmp_path, monkeypatch):
    monkeypatch.setattr(app, "MOST_WAIT", 1e6)
    page = open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake, settings={"harm": "slow"}).start()
    try:
        client = Client(page.url)
        assert client.next() == []
        monkeypatch.setattr(app, "MOST_WAIT", 0.0)
        found = client.next()
        assert client.state()["model"]["starting"]
        assert [point["why"] for point in found] == ["random"] * app.UPCOMING
        add_classes(client, "a")
        assert client.post("label", {"rows": [found[0]["row"]], "class": 0})[0] == 200
    finally:
        page.close()


def test_after_a_merge_predictions_have_not_changed_audits_are_still_right_and_colors_stay(tmp_path):
    store = Store(tmp_path)
    store.begin({"fingerprint": "abc"}, ["a", "b", "c"], np.full(400, -1))
    model = SimpleNamespace(predictions=Predictions.none(400), status=dict)
    labeling = app.Labeling(SimpleNamespace(name="x", rows=400), store, model)
    truth = np.arange(400) % 3

    def fit():
        predicted = np.where((truth == 0) & (0 not in store.classes), 1, truth)
        store.add_fit(Fit(store.labels, 0.99, (0.9, 1.0), predicted, store.saved, store.labels))

    for row in range(120):
        store.label([row], int(truth[row]), audit=row < 2, guess=int(truth[row]))
        if row % 5 == 4:
            fit()
    model.predictions = replace(model.predictions, held_out={0: 0, 1: 2}, version=1)
    assert labeling.progress()["advice"]["enough"]
    assert (labeling.progress()["audit"]["right"], labeling.progress()["audit"]["judged"]) == (1, 2)
    colors = [entry["color"] for entry in labeling.state()["classes"]]
    store.merge_class(0, 1)
    fit()
    assert labeling.progress()["advice"]["enough"]
    assert (labeling.progress()["audit"]["right"], labeling.progress()["audit"]["judged"]) == (1, 2)
    assert [entry["color"] for entry in labeling.state()["classes"]] == colors[1:]
    store.close()
