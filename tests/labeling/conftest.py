from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from sobgnn.labeling.launch import open_page

NASTY = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'
FAKE = [sys.executable, str(Path(__file__).with_name("fake_worker.py"))]


class Client:
    """Plain HTTP to a page, as its own script would speak or as told."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.host, self.token = parts.netloc, parts.path.strip("/")

    def raw(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, timeout=60)
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

    def until(self, true, seconds=400):
        """The first state that fulfills a condition."""
        end = time.monotonic() + seconds
        while True:
            found = self.json("api/next")
            if true(found["state"]):
                return found
            assert time.monotonic() < end, found["state"]["model"]
            time.sleep(0.05)


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


@pytest.fixture
def page(tickets, tmp_path):
    made = open_page(str(tickets), "team", folder=tmp_path / "run", command=FAKE).start()
    yield made
    made.close()


@pytest.fixture
def client(page):
    made = Client(page.url)
    made.until(lambda state: state["model"]["version"] and state["model"]["map"])
    return made
