from __future__ import annotations

import os
import signal

import numpy as np
import psutil
import pytest

from sobgnn.app.labeling.launch import open_page
from sobgnn.app.labeling.rows import open_source
from sobgnn.app.labeling.trainer import Trainer
from sobgnn.app.runs.page.map import plane_layout
from tests.app.labeling.conftest import LONGEST, Client
from tests.app.labeling.fake_model import Fake


def test_the_map_of_a_fit_is_that_of_the_report_mirrored_so_that_points_move_less(tickets):
    source = open_source(str(tickets), "team")
    trainer = Trainer("tickets", source.table, {"families": ["diffusion", "sobolev"], "n_members": 2, "epochs": 20})
    before = trainer.layout(False, None)
    codes = np.where(np.arange(120) < 60, np.arange(120) % 3, -1).astype(np.int32)
    trainer.fit(codes, [])
    for previous in (before, -before):
        after = trainer.layout(True, previous)
        np.testing.assert_array_equal(np.abs(after), np.abs(plane_layout(trainer.classifier.embedding_)))
        assert ((after * previous).sum(axis=0) >= 0).all()


def test_a_process_that_keeps_ending_is_left_alone_until_asked_for(tickets, tmp_path):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake, settings={"harm": "ends"}).start()
    try:
        client, model = Client(page.url), page.labeling.model
        assert "Start it again" in client.until(lambda state: state["model"]["stopped"])["model"]["problem"]
        assert [point["why"] for point in client.next()] == 4 * ["random"]  # labeling goes on
        model._begin = (*model._begin[:3], {}, model._begin[4])
        assert client.post("retry")[0] == 200
        client.until(lambda state: state["model"]["version"] and not state["model"]["problem"])
    finally:
        page.close()


def test_an_error_of_the_model_is_one_line_and_does_not_end_its_thread(tickets, tmp_path):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake, settings={"harm": "fails"}).start()
    try:
        client = Client(page.url)
        state = client.until(lambda state: state["model"]["problem"])
        assert state["model"]["problem"] == "The model could not learn: it does not want to. Your labels are safe."
        page.labeling.model._call = lambda *given: Fake("", page.labeling.source.table, {}).fit(given[2], given[3])
        client.post("class", {"name": "a"})
        client.until(lambda state: state["model"]["version"] and not state["model"]["problem"])
    finally:
        page.close()


def test_a_map_is_made_of_the_first_fit_with_fifty_labels_and_then_on_request(client):
    client.post("class", {"name": "a"})
    client.post("class", {"name": "b"})
    client.post("label", {"rows": list(range(25)), "class": 0})
    client.post("label", {"rows": list(range(25, 49)), "class": 1})
    assert client.until(lambda state: state["model"]["labels"] == 49)["model"]["map"] == 1
    client.post("label", {"rows": [49], "class": 0})
    client.until(lambda state: state["model"]["map"] == 2 and not state["model"]["layout"])
    client.post("label", {"rows": [50], "class": 0})
    assert client.until(lambda state: state["model"]["layout"])["model"]["map"] == 2
    client.post("layout")
    client.until(lambda state: state["model"]["map"] == 3 and not state["model"]["layout"])


def test_the_map_is_the_same_after_a_restart(client, page, tickets):
    for code in (0, 1):
        client.post("class", {"name": "ab"[code]})
        client.post("label", {"rows": list(range(25 * code, 25 * code + 25)), "class": code})
    client.until(lambda state: state["model"]["map"] == 2)
    before = client.get("api/map")[2]
    page.close()
    again = open_page(str(tickets), folder=page.folder, trainer=Fake).start()
    try:
        client = Client(again.url)
        assert client.get("api/map")[2] == before
        state = client.until(lambda state: state["model"]["labels"] == 50 and not state["model"]["busy"])
        assert (state["model"]["map"], state["model"]["layout"]) == (1, True)  # a new one only on request
        assert client.get("api/map")[2] == before
    finally:
        again.close()


def test_data_that_changed_since_it_was_read_makes_no_run_but_the_model_goes_on(client, page, tickets):
    for code, name in enumerate("ab"):
        client.post("class", {"name": name})
        client.post("label", {"rows": [code], "class": code})
    before = tickets.read_text()
    tickets.write_text(before.replace("invoice", "bill"))
    assert page.finish() is None
    assert "tickets.csv has changed since it was opened here" in page.problem
    tickets.write_text(before)
    assert page.finish() is None
    assert "there is no model here" in page.problem  # the test's has none
    client.post("label", {"rows": [2], "class": 0})
    client.until(lambda state: state["model"]["labels"] == 3 and not state["model"]["problem"])


def test_a_run_needs_two_classes(client, page):
    assert page.finish() is None
    assert page.problem == "A run needs labels of at least two classes. Label some more, then finish."


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="POSIX")
def test_the_process_ends_with_the_page(tickets, tmp_path):
    page = open_page(str(tickets), folder=tmp_path / "run", trainer=Fake).start()
    Client(page.url).until(lambda state: state["model"]["version"])
    process = psutil.Process(page.labeling.model._process)
    assert process.is_running()
    page.close()
    process.wait(LONGEST)
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
