from __future__ import annotations

import contextlib
import http.client
import json
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sobgnn.app.labeling.launch import open_page
from sobgnn.app.labeling.model import Model
from tests.app.labeling.fake_model import Fake

LONGEST = 400  # seconds that anything may take on a busy machine
NASTY = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


def wait_until(true):
    end = time.monotonic() + LONGEST
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


class Client:
    """Plain HTTP to a page, as its own script would speak or as told."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.token = parts.netloc, parts.path.strip("/")

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, timeout=LONGEST)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path):
        return self.raw("GET", f"/{self.token}/{path}")

    def json(self, path):
        status, _, body = self.get(path)
        assert status == 200, body
        return json.loads(body)

    def post(self, what, body=None, **headers):
        sent = {"Content-Type": "application/json", "Origin": f"http://{self.host}"}
        sent.update({name.replace("_", "-"): value for name, value in headers.items()})
        status, _, answer = self.raw("POST", f"/{self.token}/api/{what}", json.dumps(body or {}), sent)
        return status, json.loads(answer) if answer[:1] == b"{" else answer.decode()

    @contextlib.contextmanager
    def events(self, tab=""):
        """What the server tells a window: pairs of a name and its data."""
        connection = http.client.HTTPConnection(self.host, timeout=LONGEST)
        try:
            connection.request("GET", f"/{self.token}/api/events?tab={tab}")
            answer = connection.getresponse()
            assert answer.headers["content-type"].startswith("text/event-stream")

            def told():
                while line := answer.readline():
                    name = line.decode().removeprefix("event: ").strip()
                    yield name, json.loads(answer.readline().decode().removeprefix("data: "))
                    answer.readline()

            yield told()
        finally:
            connection.close()

    def until(self, true):
        """The first state that fulfills a condition."""
        end, state = time.monotonic() + LONGEST, None
        with self.events() as told:
            for name, state in told:
                if name == "state" and true(state):
                    return state
                assert time.monotonic() < end, state
        raise AssertionError("the server has ended")

    def state(self):
        return self.until(lambda state: True)

    def progress(self):
        with self.events() as told:
            return next(data for name, data in told if name == "progress")

    def next(self, **body):
        """The next points."""
        return self.post("next", body)[1]["upcoming"]


def ticket_file(folder: Path, rows: int = 120) -> Path:
    """Tickets with two features that a model could learn from, text, and one row that is hostile in every field."""
    lines = ["id,text,minutes,words,team"]
    for row in range(rows):
        kind = row % 3
        words = ("invoice and refund", "login and password", "parcel and delivery")[kind]
        lines.append(f'T{row},"{words} of customer {row}",{10 * kind + row % 4},{5 * kind + row % 3},')
    lines[6] = f'"{NASTY.replace(chr(34), chr(34) * 2)}","{NASTY.replace(chr(34), chr(34) * 2)}",3,3,'
    path = folder / "tickets.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def tickets(tmp_path):
    return ticket_file(tmp_path)


def call_here(model, busy, method, *arguments):
    """What the model's process would answer, without the seconds that a process takes to start."""
    model._busy = busy
    model.on_change()
    trainer, name, table, settings, _ = model._begin
    return getattr(trainer(name, table, settings), method)(*arguments)


@pytest.fixture
def page(tickets, tmp_path, monkeypatch):
    monkeypatch.setattr(Model, "_call", call_here)
    made = open_page(str(tickets), "team", folder=tmp_path / "run", trainer=Fake).start()
    yield made
    made.close()


@pytest.fixture
def client(page):
    made = Client(page.url)
    made.until(lambda state: state["model"]["version"] and state["model"]["map"])
    return made
