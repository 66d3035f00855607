from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time

import numpy as np
import psutil
import pytest

from sobgnn.app.labeling import security
from sobgnn.app.labeling.launch import open_page
from tests.app.labeling.conftest import LONGEST, NASTY, Client, ticket_file, wait_until
from tests.app.labeling.fake_model import Fake


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("guard")
    made = open_page(str(ticket_file(folder)), "team", folder=folder / "run", trainer=Fake).start()
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(page):
    made = Client(page.url)
    made.until(lambda state: state["model"]["version"] and state["model"]["map"])
    return made


def test_the_page_is_served_at_its_address_alone(client):
    status, headers, body = client.get("")
    assert status == 200
    assert b"<!doctype html>" in body
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert b"style=" not in body  # the policy would drop it
    assert b"<script>" not in body


@pytest.mark.parametrize("token", ["", "x", "x" * 32, "%C3%A9", "%2e%2e"])
def test_a_wrong_token_finds_nothing(client, token):
    assert client.raw("GET", f"/{token}/")[0] in (400, 404)
    assert client.raw("GET", f"/{token}/api/marks")[0] in (400, 404)
    sent = {"Content-Type": "application/json", "Origin": f"http://{client.host}"}
    assert client.raw("POST", f"/{token}/api/skip", '{"rows":[0]}', sent)[0] in (400, 404)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
def test_another_host_is_refused(client, host):
    status, _, _ = client.raw("GET", f"/{client.token}/api/marks", headers={"Host": host})
    assert status in (400, 421)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ],
)
def test_a_post_from_elsewhere_changes_nothing(client, page, headers):
    saved = page.labeling.store.saved
    status, _ = client.post("skip", {"rows": [0]}, **headers)
    assert status in (403, 415)
    assert page.labeling.store.saved == saved
    assert client.post("skip", {"rows": [0]})[0] == 200


def test_a_post_without_an_origin_is_refused(client):
    sent = {"Content-Type": "application/json"}
    assert client.raw("POST", f"/{client.token}/api/undo", "{}", sent)[0] == 403


def test_reading_from_another_site_is_refused(client):
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}):
        assert client.raw("GET", f"/{client.token}/api/marks", headers=headers)[0] == 403


def test_a_link_from_another_site_opens_the_page_and_nothing_else(client):
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert client.raw("GET", f"/{client.token}/", headers=link)[0] == 200
    assert client.raw("GET", f"/{client.token}/export/csv", headers=link)[0] == 403
    assert client.raw("GET", f"/{'x' * len(client.token)}/", headers=link)[0] == 404
    for changed in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Mode": "no-cors"}):
        assert client.raw("GET", f"/{client.token}/", headers={**link, **changed})[0] == 403


def test_the_address_without_its_last_slash_leads_to_the_page(client):
    status, headers, _ = client.raw("GET", f"/{client.token}")
    assert (status, headers["location"]) == (308, f"/{client.token}/")


def connected(client):
    name, port = client.host.split(":")
    return socket.create_connection((name, int(port)), timeout=LONGEST)


def test_idle_connections_keep_nobody_out(client):
    with contextlib.ExitStack() as idle:
        for _ in range(security.MOST_CONNECTIONS + 50):
            idle.enter_context(connected(client))
        assert client.get("")[0] == 200
        assert client.post("skip", {"rows": [0]})[0] == 200


def test_connections_that_all_come_at_once_are_too_many_for_a_moment_alone(client, page, monkeypatch):
    monkeypatch.setattr(security, "HEAD_SECONDS", 600.0)
    held = page._server.server_state.connections
    with contextlib.ExitStack() as idle:
        idle.enter_context(connected(client))
        wait_until(lambda: held)
        next(iter(held)).loop.call_soon_threadsafe(time.sleep, 1.0)  # meanwhile the others queue up
        for _ in range(security.MOST_CONNECTIONS + 100):
            idle.enter_context(connected(client))
        assert client.get("")[0] == 200  # after all of them
        wait_until(lambda: len(held) <= security.MOST_CONNECTIONS)


def test_idle_connections_cut_off_no_answer_that_is_still_being_read(client, page, monkeypatch):
    large = np.zeros((4_000_000, 2), dtype="<f4")  # more than the system holds for a reader that is slow
    monkeypatch.setattr(page.labeling.model, "place", large)
    with contextlib.ExitStack() as idle, connected(client) as connection:
        connection.sendall(f"GET /{client.token}/api/map HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
        answer = connection.recv(2**16)
        for _ in range(security.MOST_CONNECTIONS + 50):
            idle.enter_context(connected(client))
        assert client.get("")[0] == 200
        begin = answer.index(b"\r\n\r\n") + 4
        size = len(answer) - begin
        while size < large.nbytes:
            part = connection.recv(2**20)
            assert part, f"cut off after {size} of {large.nbytes} bytes"
            size += len(part)


@pytest.mark.parametrize("more", [b"", b"x"])
def test_a_connection_without_a_whole_request_is_closed_even_while_it_sends_byte_after_byte(client, monkeypatch, more):
    monkeypatch.setattr(security, "HEAD_SECONDS", 0.2)
    with connected(client) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: ")
        for _ in range(6000 if more else 0):  # fewer bytes than a head may have
            connection.sendall(more)
            time.sleep(0.01)
        assert not more
        assert connection.recv(100) == b""


def test_a_body_that_does_not_come_is_given_up(client, monkeypatch):
    monkeypatch.setattr(security, "BODY_SECONDS", 0.05)
    head = f"POST /{client.token}/api/skip HTTP/1.1\r\nHost: {client.host}\r\nOrigin: http://{client.host}\r\n"
    with connected(client) as connection:
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 408 ")


def test_a_stranger_is_refused_before_the_body_is_read(client, monkeypatch):
    monkeypatch.setattr(security, "REFUSED_SECONDS", 600.0)
    with connected(client) as connection:
        head = f"POST /wrong/api/skip HTTP/1.1\r\nHost: {client.host}\r\nOrigin: http://{client.host}\r\n"
        connection.sendall(f"{head}Content-Length: 100\r\n\r\n".encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(client, method):
    assert client.raw(method, f"/{client.token}/api/label")[0] == 405


@pytest.mark.parametrize("length", ["Content-Length: 104857600", "Transfer-Encoding: chunked"])
def test_a_body_of_100_megabytes_is_refused_with_and_without_its_length(client, page, length):
    saved, answer = page.labeling.store.saved, b""
    head = f"POST /{client.token}/api/class HTTP/1.1\r\nHost: {client.host}\r\nOrigin: http://{client.host}\r\n"
    with connected(client) as connection, contextlib.suppress(ConnectionError):  # closed before it was all sent
        connection.sendall(f"{head}Content-Type: application/json\r\n{length}\r\n\r\n".encode())
        for _ in range(1600):
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
        answer = connection.recv(100)
    assert answer == b"" or b" 413 " in answer
    assert page.labeling.store.saved == saved
    assert client.post("skip", {"rows": [0]})[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "static/../server.py",
        "label.css/../../server.py",
        "picture/..%2f..%2fetc%2fpasswd",
        "picture/-1",
        "picture/999999999999",
        "picture/" + "9" * 5000,
        "api/point/" + "9" * 5000,
        "api/point/-1",
        "api/point/120",
        "api/point/%C2%B2",
        "export/..%2flabels.db",
        "server.py",
        "labels.db",
        "__init__.py",
        "api/nothing",
        "//etc/passwd",
    ],
)
def test_no_path_leads_out_of_the_page(client, path):
    status, _, body = client.get(path)
    assert status == 404
    assert b"root:" not in body
    assert b"import" not in body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b"\xff",
        b"[" * 100_000,
        b'{"rows": "0", "class": 0}',
        b'{"rows": [1e400], "class": 0}',
        b'{"rows": {"0": 1}, "class": [0]}',
        b'{"rows": [99999], "class": 0}',
        b'{"rows": [0], "class": {"a": 1}}',
    ],
)
def test_a_body_that_makes_no_sense_is_one_line_and_changes_nothing(client, page, body):
    saved = page.labeling.store.saved
    sent = {"Content-Type": "application/json", "Origin": f"http://{client.host}"}
    status, _, answer = client.raw("POST", f"/{client.token}/api/label", body, sent)
    assert status == 400
    assert "\n" not in json.loads(answer)["error"]
    assert page.labeling.store.saved == saved


def test_script_in_every_field_stays_text(client):
    assert client.post("class", {"name": NASTY})[0] == 200
    for path in ("api/search?q=script", "api/suspects"):
        status, headers, _ = client.get(path)
        assert status == 200
        assert headers["content-type"] == "application/json"
    assert client.post("open", {"row": 5})[1]["point"]["content"][0]["value"] == NASTY
    status, headers, _ = client.get("export/csv")
    assert headers["content-disposition"].startswith("attachment")


def test_a_thousand_requests_leave_memory_flat(client, page):
    connection = http.client.HTTPConnection(client.host, timeout=LONGEST)

    def ask(times):
        for number in range(times):
            for path in (
                f"/{client.token}/api/marks",
                f"/{client.token}/api/search?q={number % 100}",
                "/wrong/api/marks",
            ):
                connection.request("GET", path)
                connection.getresponse().read()
        return psutil.Process().memory_info().rss

    ask(150)  # caches and threads
    before = ask(10)
    assert ask(350) - before < 5 * 2**20
    connection.close()


@pytest.mark.parametrize(("port", "passes"), [(80, True), (8080, False)])
@pytest.mark.parametrize("name", [b"127.0.0.1", b"localhost"])
def test_the_usual_port_may_be_left_out_of_host_and_origin(port, passes, name):
    headers = [(b"host", name), (b"origin", b"http://" + name), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/token/api/skip", "headers": headers}
    refusal = security.Guard(None, "token", port)._refusal(scope)
    assert (refusal is None) == passes
    with_port = [(key, value + f":{port}".encode() if key != b"content-type" else value) for key, value in headers]
    assert security.Guard(None, "token", port)._refusal({**scope, "headers": with_port}) is None
