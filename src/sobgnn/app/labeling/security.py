"""Access to the page's server: from this machine, at the right address, with the token, in limited size and time."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import RedirectResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST_BODY = 2 * 2**20
_TOO_LARGE = f"The body is larger than {LARGEST_BODY} bytes."
# Seconds for a request's head to arrive, for its body, and for that of a refused request, which is discarded.
HEAD_SECONDS = 20.0
BODY_SECONDS = 60.0
REFUSED_SECONDS = 1.0
# Maximum number of connections, below the limit of open files per process; for one more, the oldest idle one is closed.
MOST_CONNECTIONS = 200
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors "
)


class Guard:
    """ASGI middleware around the page's routes.

    These are refused before the body is read: a Host other than this server's (DNS rebinding), an Origin or
    Sec-Fetch-Site of another site, a POST without an Origin or not of JSON, and a path that does not begin with the
    token. A body over ``LARGEST_BODY`` or slower than ``BODY_SECONDS``, and websockets are refused too. A link to the
    page itself may be followed from anywhere. Every response gets headers that isolate the page, unless it has its own.

    Args:
        app: The routes, without the token in their paths.
        token: What the path must begin with.
        port: The server's port.
        framed: Whether pages of this machine (a notebook) may show the page in a frame.
    """

    def __init__(self, app: Any, token: str, port: int, framed: bool = False) -> None:
        self.app = app
        self._token = token.encode()
        ports = (f":{port}", "") if port == 80 else (f":{port}",)  # browsers leave the usual port out
        self._hosts = [[f"{name}{end}"] for name in ("127.0.0.1", "localhost") for end in ports]
        self._origins = [f"http://{host}" for (host,) in self._hosts]
        ancestors = "http://127.0.0.1:* http://localhost:*" if framed else "'none'"
        self._headers = {
            b"content-security-policy": (_POLICY + ancestors).encode(),
            b"x-content-type-options": b"nosniff",
            b"referrer-policy": b"no-referrer",
            b"cross-origin-resource-policy": b"same-origin",
            b"cross-origin-opener-policy": b"same-origin",
            b"permissions-policy": b"camera=(), microphone=(), geolocation=()",
            b"cache-control": b"no-store",
            **({} if framed else {b"x-frame-options": b"DENY"}),
        }
        self._framed = framed

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it in one line."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = list({**self._headers, **dict(message.get("headers", []))}.items())
            await send(message)

        refusal, body = self._refusal(scope), b""
        if refusal is None:
            try:
                body = await asyncio.wait_for(_body(receive), BODY_SECONDS)
            except ValueError as error:
                refusal = 413, str(error)
            except asyncio.TimeoutError:
                refusal = 408, f"The body took longer than {BODY_SECONDS:g} seconds."
        if refusal is not None:
            await _refuse(receive, answer, *refusal)
            return
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return given.pop() if given else await receive()

        rest = scope["path"][1 + len(self._token) :]
        if not rest:  # relative addresses need the last slash
            await RedirectResponse(scope["path"] + "/", 308)(scope, replayed, answer)
            return
        await self.app({**scope, "path": rest, "raw_path": rest.encode()}, replayed, answer)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        """The status and the reason, or ``None`` if the request may pass."""
        headers = Headers(scope=scope)
        if [host.lower() for host in headers.getlist("host")] not in self._hosts:
            return 421, "This server answers only at 127.0.0.1."
        origins = headers.getlist("origin")
        site, method = headers.get("sec-fetch-site", "none"), scope["method"]
        begin, _, rest = scope["path"][1:].partition("/")
        followed = headers.get("sec-fetch-mode") == "navigate" and method == "GET" and not rest
        shown = headers.get("sec-fetch-dest") == "document" or self._framed
        same = site in ("same-origin", "none") or (followed and shown)
        if not same or any(origin not in self._origins for origin in origins):
            return 403, "Requests from other sites are refused."
        if method not in ("GET", "HEAD", "POST"):
            return 405, "Only GET, HEAD and POST are supported."
        if not secrets.compare_digest(begin.encode(), self._token):
            return 404, "Not found. Open the address that sobgnn label printed."
        if method == "POST":
            if not origins:
                return 403, "A change must come from the page: the request has no Origin."
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return 415, "A change must be JSON."
            size = headers.get("content-length", "0")
            if not (size.isascii() and size.isdigit()) or int(size) > LARGEST_BODY:
                return 413, _TOO_LARGE
        return None


async def _body(receive: Receive) -> bytes:
    """The request's body; raises ValueError as soon as it is too large."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > LARGEST_BODY:
            raise ValueError(_TOO_LARGE)
        more = message.get("more_body", False)
    return b"".join(parts)


async def _refuse(receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer at once, then read what still arrives: an unread body would reset the connection before the answer."""
    body = (reason + "\n").encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(ValueError, asyncio.TimeoutError):
        await asyncio.wait_for(_body(receive), REFUSED_SECONDS)
    await send({"type": "http.response.body"})


class Idle:
    """Closes idle connections of a server that are late or too many; called every second.

    Browsers open connections in advance and leave them idle, and a page of another site can make them do so. So idle
    connections neither count against those in use, as uvicorn's ``limit_concurrency`` would have it, nor stay open. A
    head that arrives byte by byte gets no more time than one that arrives at once.
    """

    def __init__(self) -> None:
        self.server: uvicorn.Server | None = None
        self._since: dict[Any, tuple[Any, float]] = {}  # by connection: its last request, and when it was seen first

    async def __call__(self) -> None:
        """Close."""
        assert self.server is not None
        now, held = asyncio.get_running_loop().time(), list(self.server.server_state.connections)
        idle = {one: one.cycle for one in held if one.cycle is None or one.cycle.response_complete}  # type: ignore[union-attr]
        before = self._since
        self._since = {
            one: before[one] if one in before and before[one][0] is last else (last, now) for one, last in idle.items()
        }
        for one, (_, since) in self._since.items():
            if now - since >= HEAD_SECONDS:
                one.transport.close()
        # Those with an unsent answer last. Abort, since closing would wait for clients that do not read.
        by_age = sorted(idle, key=lambda one: (one.transport.get_write_buffer_size() > 0, self._since[one][1]))
        for one in by_age[: max(0, len(held) - MOST_CONNECTIONS)]:
            one.transport.abort()
