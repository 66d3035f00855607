from __future__ import annotations

import contextlib

import numpy as np
import pytest

from sobgnn.labeling.history import FITS, History
from sobgnn.labeling.launch import open_page
from sobgnn.labeling.progress import Measurement, changed_since_half, curve
from tests.labeling.conftest import FAKE, Client


def fit(labels, predicted=(0, 1, 2), accuracy=0.8, knows=None):
    return Measurement(labels, accuracy, 0.1, np.asarray(predicted), 10, knows)


def fits(folder):
    with contextlib.closing(History(folder)) as history:
        return list(history)


def test_fits_are_there_again_after_the_file_is_opened_anew(tmp_path):
    first = History(tmp_path)
    for one in (fit(20, [0, 1, 2]), fit(10, [2, 2, 2]), fit(20, [0, 0, 2], 0.9), fit(40, [0, 1, 2], None)):
        first.add(one)
    first.close()
    again = History(tmp_path)
    again.add(fit(80))
    again.close()
    third = fits(tmp_path)
    assert [(one.labels, one.accuracy) for one in third] == [(10, 0.8), (20, 0.9), (40, None), (80, 0.8)]
    assert changed_since_half(third[:3]) == (20, pytest.approx(1 / 3))
    assert [point["labels"] for point in curve(third)] == [10, 20, 80]


@pytest.mark.parametrize("damage", ["not json\n" * 3, '{"n":1,"labels":3}\n{"n":2}\n', '{"n":1,"labels":"x"}\n'])
def test_a_damaged_file_is_put_aside(tmp_path, damage):
    (tmp_path / FITS).write_text(damage)
    history = History(tmp_path)
    assert list(history) == []
    history.add(fit(10))
    history.close()
    assert [one.labels for one in fits(tmp_path)] == [10]
    assert (tmp_path / "fits.damaged").read_text() == damage


def test_a_fit_after_the_file_was_closed_is_noted_in_memory(tmp_path):
    history = History(tmp_path)
    history.close()
    history.add(fit(10))
    assert [one.labels for one in history] == [10]
    assert fits(tmp_path) == []


def test_fits_of_labels_that_were_undone_since_do_not_stand(tmp_path):
    with contextlib.closing(History(tmp_path)) as history:
        for labels, knows in ((10, 12), (20, 22), (30, 32), (25, 60)):
            history.add(fit(labels, knows=knows))
        history.add(fit(40))  # of an earlier version
        undone = [(33 + i, 32 - i) for i in range(10)]  # events 32 to 23

        def standing(undone, labels):
            return [one.labels for one in history.standing(undone, labels)]

        assert standing([], 40) == [10, 20, 25, 30, 40]
        assert standing(undone, 40) == [10, 20, 25, 40]
        assert standing([*undone, (43, 22)], 40) == [10, 25, 40]
        assert standing([*undone, (61, 60)], 24) == [10, 20]
    with contextlib.closing(History(tmp_path)) as again:
        assert [one.labels for one in again.standing(undone, 30)] == [10, 20, 25]


def test_accuracy_of_labels_that_were_undone_is_not_shown(tickets, tmp_path):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", command=FAKE).start()
    client = Client(page.url)
    for name in ("one", "two"):
        client.post("class", {"name": name})
    for rows in ([0, 2, 4], [1, 3, 5]):
        client.post("label", {"rows": rows, "class": rows[0]})
    client.until(lambda state: [point["labels"] for point in state["curve"]][-1:] == [6])
    client.post("label", {"rows": list(range(6, 60)), "class": 0})
    client.until(lambda state: state["curve"][-1]["labels"] == 60)
    page.labeling.learner._due = lambda: False
    state = client.post("undo")[1]["state"]
    assert state["curve"][-1]["labels"] == 6
    assert "Too early" in state["advice"]["sentence"]
    client.post("label", {"rows": list(range(60, 120)), "class": 0})  # as many, but others
    assert page.labeling.state()["curve"][-1]["labels"] == 6
    page.close()
    resumed = open_page(str(tmp_path / "run"), command=FAKE)
    try:
        resumed.labeling.learner._due = lambda: False
        assert 60 not in [point["labels"] for point in resumed.labeling.state()["curve"]]
    finally:
        resumed.close()


def test_samples_of_different_sizes_are_not_compared():
    assert changed_since_half([fit(10, [0, 1]), fit(40, [0, 1, 2])]) is None


def test_the_page_shows_its_curve_after_a_restart(tickets, tmp_path):
    page = open_page(str(tickets), "team", folder=tmp_path / "run", command=FAKE).start()
    client = Client(page.url)
    for name in ("one", "two"):
        client.post("class", {"name": name})
    client.post("label", {"rows": [0, 2, 4], "class": 0})
    client.post("label", {"rows": [1, 3, 5], "class": 1})
    shown = client.until(lambda state: state["curve"] and state["curve"][-1]["labels"] == 6)["state"]["curve"]
    page.close()
    resumed = open_page(str(tmp_path / "run"), command=FAKE)
    try:
        assert resumed.labeling.state()["curve"] == shown
    finally:
        resumed.close()
