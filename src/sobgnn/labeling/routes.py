"""The page's routes: those that read the session and the guesses, and those that change labels."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sobgnn.labeling.export import KINDS, export
from sobgnn.labeling.journal import MovedError
from sobgnn.labeling.server import Labeling
from sobgnn.labeling.session import ConflictError

STATIC = {
    "": ("label.html", "text/html; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
    "label.css": ("label.css", "text/css; charset=utf-8"),
    "label.js": ("label.js", "text/javascript; charset=utf-8"),
    "show.js": ("show.js", "text/javascript; charset=utf-8"),
    "keys.js": ("keys.js", "text/javascript; charset=utf-8"),
    "rename.js": ("rename.js", "text/javascript; charset=utf-8"),
    "map.js": ("map.js", "text/javascript; charset=utf-8"),
    "curve.js": ("curve.js", "text/javascript; charset=utf-8"),
}


def routes(labeling: Labeling) -> Starlette:
    """The application without its guard; see :class:`~sobgnn.labeling.guard.Guard`."""

    def reading(make: Callable[[Request], Any]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                content = await run_in_threadpool(make, request)
            except (ValueError, KeyError) as error:
                return PlainTextResponse(str(error), status_code=400)
            return content if isinstance(content, Response) else JSONResponse(content)

        return answer

    def static(path: str) -> Callable[[Request], Response]:
        name, kind = STATIC[path]
        content = (resources.files("sobgnn.labeling") / "static" / name).read_bytes()
        return lambda request: Response(content, media_type=kind)

    def chosen(request: Request) -> Any:
        without = {int(row) for row in request.query_params.get("without", "").split(",")[:200] if row.isdigit()}
        tab, at = request.query_params.get("tab", "")[:40], request.query_params.get("at", "")[:16]
        shown = int(at) if at.isascii() and at.isdigit() else None
        return {"state": labeling.state(tab), "upcoming": labeling.upcoming(without, tab, shown)}

    def place(request: Request) -> Response:
        found = labeling.learner.places.now
        return Response(b"" if found is None else found.tobytes(), media_type="application/octet-stream")

    def row_of(request: Request) -> int:
        text = request.path_params["row"]
        if not (text.isascii() and text.isdigit() and len(text) < 16 and int(text) < labeling.source.rows):
            raise HTTPException(404, "There is no such row.")
        return int(text)

    def picture(request: Request) -> Response:
        try:
            content, kind = labeling.source.read_picture(row_of(request))
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=404)
        return Response(content, media_type=kind)

    def download(request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind not in KINDS:
            return PlainTextResponse("Not found.", status_code=404)
        _, classes, labels, _ = labeling.session.snapshot()
        name, media = KINDS[kind]
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(export(kind, labeling.source, classes, labels), media_type=media, headers=headers)

    def changing(what: str) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            try:
                body = json.loads(await request.body() or b"{}")
                if not isinstance(body, dict):
                    raise ValueError("The body must be a JSON object.")
                return JSONResponse(await run_in_threadpool(labeling.change, what, body))
            except ConflictError as error:
                return JSONResponse({"error": str(error)}, status_code=409)
            except (ValueError, TypeError, RecursionError) as error:
                return JSONResponse({"error": str(error)}, status_code=400)
            except MovedError as error:
                return JSONResponse({"error": f"Not saved: {error}"}, status_code=507)
            except OSError as error:
                reason = error.strerror or type(error).__name__
                return JSONResponse({"error": f"Not saved: writing to disk failed ({reason})."}, status_code=507)

        return answer

    changes = ("label", "clear", "skip", "class", "rename", "merge", "undo", "retry", "layout", "finish", "leave")
    listed = [
        *(Route(f"/{path}", reading(static(path))) for path in STATIC),
        Route("/api/next", reading(chosen)),
        Route("/api/point/{row}", reading(lambda request: labeling.point(row_of(request)))),
        Route("/api/map", reading(place)),
        Route("/api/marks", reading(lambda _: Response(labeling.marks(), media_type="application/octet-stream"))),
        Route("/api/suspects", reading(lambda _: labeling.suspects())),
        Route("/api/search", reading(lambda request: labeling.search(request.query_params.get("q", "")[:200]))),
        Route("/picture/{row}", reading(picture)),
        Route("/export/{kind}", reading(download)),
        *(Route(f"/api/{what}", changing(what), methods=["POST"]) for what in changes),
    ]
    return Starlette(routes=listed)
