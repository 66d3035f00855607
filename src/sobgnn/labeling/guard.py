"""Access to the page's server: from this machine, at the right address, with the token, and in limited size."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LARGEST_BODY = 2 * 2**20
# Seconds for a body to arrive, and for that of a refused request, which is discarded.
BODY_SECONDS = 60.0
REFUSED_SECONDS = 1.0
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors "
)


class Guard:
    """ASGI middleware around the page's routes.

    These are refused before the body is read: a Host other than this server's (DNS rebinding), an Origin or
    Sec-Fetch-Site of another site, a POST without an Origin or not of JSON, and a path that does not begin with the
    token. A body over ``LARGEST_BODY`` or slower than ``BODY_SECONDS``, and websockets are refused too. A link to the
    page itself may be followed from anywhere. Every response gets headers that isolate the page.

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
        self._hosts = {f"{name}{end}".encode() for name in ("127.0.0.1", "localhost") for end in ports}
        self._origins = {b"http://" + host for host in self._hosts}
        ancestors = "http://127.0.0.1:* http://localhost:*" if framed else "'none'"
        self._headers = [
            (b"content-security-policy", (_POLICY + ancestors).encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-resource-policy", b"same-origin"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
            (b"cache-control", b"no-store"),
        ]
        if not framed:
            self._headers.append((b"x-frame-options", b"DENY"))
        self._framed = framed

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it in one line."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *self._headers]
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
        if len(scope["path"]) == 1 + len(self._token):  # relative addresses need the last slash
            headers = [(b"location", b"/" + self._token + b"/"), (b"content-length", b"0")]
            await answer({"type": "http.response.start", "status": 308, "headers": headers})
            await answer({"type": "http.response.body"})
            return
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return given.pop() if given else await receive()

        rest = scope["path"][1 + len(self._token) :]
        await self.app({**scope, "path": rest, "raw_path": rest.encode()}, replayed, answer)

    def _refusal(self, scope: MutableMapping[str, Any]) -> tuple[int, str] | None:
        """The status and the reason, or ``None`` if the request may pass."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        if len(headers.get(b"host", [])) != 1 or headers[b"host"][0].lower() not in self._hosts:
            return 421, "This server answers only at 127.0.0.1."
        origins = headers.get(b"origin", [])
        if any(origin not in self._origins for origin in origins):
            return 403, "Requests from other sites are refused."
        site = headers.get(b"sec-fetch-site", [b"none"])[0]
        path = scope["path"].encode()
        begin, _, rest = path[1:].partition(b"/")
        followed = headers.get(b"sec-fetch-mode", [b""])[0] == b"navigate" and scope["method"] == "GET" and not rest
        shown = headers.get(b"sec-fetch-dest", [b""])[0] == b"document" or self._framed
        if site not in (b"same-origin", b"none") and not (followed and shown):
            return 403, "Requests from other sites are refused."
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "Only GET, HEAD and POST are supported."
        if not secrets.compare_digest(begin, self._token):
            return 404, "Not found. Open the address that `sobgnn label` printed."
        if scope["method"] == "POST":
            if not origins:
                return 403, "A change must come from the page: the request has no Origin."
            kind = headers.get(b"content-type", [b""])[0].partition(b";")[0].strip().lower()
            if kind != b"application/json":
                return 415, "A change must be JSON."
            size = headers.get(b"content-length", [b"0"])[0]
            if not size.isdigit() or int(size) > LARGEST_BODY:
                return 413, f"The body is larger than {LARGEST_BODY} bytes."
        return None


async def _body(receive: Receive) -> bytes:
    """The request's body; raises ValueError as soon as it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        part = message.get("body", b"")
        size += len(part)
        if size > LARGEST_BODY:
            raise ValueError(f"The body is larger than {LARGEST_BODY} bytes.")
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


async def _refuse(receive: Receive, send: Send, status: int, reason: str) -> None:
    """Answer at once, then read what still arrives: an unread body would reset the connection before the answer."""
    body = (reason + "\n").encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
    with contextlib.suppress(ValueError, asyncio.TimeoutError):
        await asyncio.wait_for(_body(receive), REFUSED_SECONDS)
    await send({"type": "http.response.body"})
