"""The page's server: a function for each change, and one for each thing that is read. What is read changes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import replace
from importlib import resources
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from sobgnn._system.files import atomic_file
from sobgnn.app import web
from sobgnn.app.labeling.export import KINDS, export, labels_csv
from sobgnn.app.labeling.labels import Change, ConflictError
from sobgnn.app.labeling.model import Model
from sobgnn.app.labeling.picking import Picker, Windows
from sobgnn.app.labeling.progress import advice, audit, curve
from sobgnn.app.labeling.rows import Source
from sobgnn.app.labeling.store import MovedError, Store

UPCOMING = 4
# Number of rows that a search lists.
LISTED = 50
# Seconds that a person waits for the first suggestions; after that, random rows are shown. With very many points, their
# graph takes minutes.
MOST_WAIT = 8.0
# Files that the page shares with the report.
SHARED = {"colors.css": "text/css", "map.js": "text/javascript", "charts.js": "text/javascript"}
# The report runs the script that it carries, and can reach nothing: neither the page's server nor any other.
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
)

CHANGES = (
    "label", "skip", "clear", "class", "rename", "merge", "undo", "open", "next", "retry", "layout", "finish",
)  # fmt: skip

Body = dict[str, Any]


class Labeling:
    """What the page shows, and what it asks for; its routes are methods.

    Args:
        source: The points.
        store: Their labels.
        model: The model that learns from them.
    """

    def __init__(self, source: Source, store: Store, model: Model) -> None:
        self.source = source
        self.store = store
        self.model = model
        self.picker = Picker(source.rows, seen=store.withdrawn)
        self.windows = Windows()
        self.ending: Callable[[], bool] = lambda: False
        self._opened = time.monotonic()
        self._written = -1
        self._writing = threading.Lock()
        self._wakers: set[Callable[[], None]] = set()
        self._progress: tuple[tuple[int, int], dict[str, Any]] = (-1, -1), {}
        model.on_fit = self.write_labels
        model.on_change = self.tell

    # ------------------------------------------------------------------------------------------ what is shown

    def state(self, tab: str = "") -> dict[str, Any]:
        """Everything the page shows besides points, the map and the progress; some of it differs from tab to tab."""
        store, others = self.store, self.windows.others(tab)
        with store.guard:
            counts = store.counts()
            return {
                "name": self.source.name,
                "rows": store.rows,
                "folder": str(store.folder),
                "saved": store.saved,
                "labels": store.labels,
                "skipped": len(store.skipped),
                "undo": store.undoable(others) is not None,
                "windows": len(others),
                "classes": [  # colors by code: a class keeps its own when another goes
                    {
                        "code": code,
                        "name": name,
                        "key": store.keys[code],
                        "count": int(counts[code]),
                        "color": web.class_color(code),
                    }
                    for code, name in store.classes.items()
                ],
                "model": self.model.status(),
            }

    def progress(self) -> dict[str, Any]:
        """The curve, the advice and the audit; made anew after fits and changes, and by one window for all."""
        predictions, store = self.model.predictions, self.store
        with store.guard:
            now = predictions.version, store.saved
            if self._progress[0] == now:
                return self._progress[1]
            fits, held_out = store.fits(), predictions.held_out
            for old, new in store.merges:  # earlier fits predicted the class that is gone
                fits = [replace(fit, predicted=np.where(fit.predicted == old, new, fit.predicted)) for fit in fits]
                held_out = {row: new if code == old else code for row, code in held_out.items()}
            enough, sentence = advice(fits)
            found = {
                "curve": curve(fits),
                "advice": {"enough": enough, "sentence": sentence},
                "audit": audit(store.details, held_out),
            }
            self._progress = now, found
            return found

    def upcoming(self, tab: str = "", at: object = None) -> list[dict[str, Any]]:
        """The next points to label, best first; none while waiting, for a limited time, for the first suggestions.

        Args:
            tab: The tab that asks; it gets rows that no other tab shows, as long as there are any.
            at: The row that the tab shows; those after it are chosen.
        """
        found, store = self.model.predictions, self.store
        if not (found.version or self.model.problem) and time.monotonic() < self._opened + MOST_WAIT:
            return []
        shown = at if type(at) is int and 0 <= at < store.rows else None
        with store.guard:
            chosen: list[tuple[int, str]] = []
            for taken in (store.skipped | self.windows.shown_by_others(tab), store.skipped):
                chosen = chosen or self.picker.next(
                    found.suggested, found.guessing, store.codes, taken, UPCOMING, shown
                )
            self.windows.show(tab, [row for row, _ in chosen] + ([] if shown is None else [shown]))
            return [self.point(row, why) for row, why in chosen]

    def point(self, row: int, why: str) -> dict[str, Any]:
        """A row's content, its label, and the guess; a row of the audit has no guess."""
        found, used, code = self.model.predictions, self.store.used(), int(self.store.codes[row])
        # A label that was taken back is no guess: the next fit forgets it.
        hidden = why == "audit" or (code < 0 and found.given[row] >= 0)
        pairs = zip(found.codes[row].tolist(), found.probabilities[row].tolist(), strict=True)
        return {
            "row": row,
            "title": self.source.table.row_name(row),
            "why": why,
            "content": self.source.content(row),
            "guesses": [{"code": k, "sure": round(sure, 4)} for k, sure in pairs if k in used and not hidden],
            "label": None if code < 0 else code,
        }

    def listed(self, rows: Collection[int]) -> list[dict[str, Any]]:
        """Rows in a list."""
        labels = [(row, int(self.store.codes[row])) for row in rows]
        return [
            {"row": row, "label": None if code < 0 else code, "excerpt": self.source.excerpt(row)}
            for row, code in labels
        ]

    # ------------------------------------------------------------------------------------------ what is done

    def tell(self) -> None:
        """Tell all windows that something has changed."""
        for wake in list(self._wakers):
            with contextlib.suppress(RuntimeError):  # the server has ended meanwhile
                wake()

    async def _events(self, tab: str) -> AsyncIterator[bytes]:
        """What a window shows, whenever it changes."""
        wake, loop = asyncio.Event(), asyncio.get_running_loop()

        def waker() -> None:
            loop.call_soon_threadsafe(wake.set)

        self._wakers.add(waker)
        shown: dict[str, Any] = {}
        try:
            with self.windows.open(tab):
                self.tell()  # the others say that there is one more
                while not self.ending():
                    wake.clear()
                    for name, make in (("state", lambda: self.state(tab)), ("progress", self.progress)):
                        now = await run_in_threadpool(make)
                        if shown.get(name) != now:
                            shown[name] = now
                            yield f"event: {name}\ndata: {json.dumps(now)}\n\n".encode()
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(wake.wait(), 0.5)
        finally:
            self._wakers.discard(waker)
            self.tell()

    def write_labels(self) -> None:
        """Write labels.csv if something has changed."""
        with self._writing:
            saved = self.store.saved
            if saved != self._written:
                self.store.check_in_place()
                with atomic_file(self.store.folder / "labels.csv") as file:
                    file.write(labels_csv(self.source, self.store))
                self._written = saved

    def close(self) -> None:
        """End the model's process, write labels.csv, and release the folder.

        A run is removed if its labels were undone since and too few are left for a new run.
        """
        self.model.close()
        try:
            self.write_labels()
            if len(self.store.used()) < 2 and (self.store.folder / "report.html").exists():
                from sobgnn.app.runs.folder import remove_run  # here, since it loads torch

                remove_run(self.store.folder)
        finally:
            self.store.close()

    # ------------------------------------------------------------------------------------------ changes

    def _changed(self, what: str, content: bytes) -> Body:
        """Make one change; the answer to each holds the next points."""
        body = json.loads(content or b"{}")
        if not isinstance(body, dict):
            raise ValueError("The body must be a JSON object.")
        tab = str(body.get("tab", ""))[:40]
        if what == "finish":
            self.write_labels()
        with self.store.guard:
            saved = self.store.saved
            answer = self._change(what, body, tab)
            if self.store.saved != saved:
                self.model.changed()
            if self.store.saved != saved or what in ("retry", "layout", "finish"):
                self.tell()
            return {**answer, "saved": self.store.saved, "upcoming": self.upcoming(tab, body.get("at"))}

    def _change(self, what: str, body: Body, tab: str) -> Body:
        store, code, name = self.store, body.get("class", -1), body.get("name", "")
        rows = store.checked(body.get("rows", [])) if what in ("label", "skip", "clear") else []
        if what == "label":
            self._label(rows, code, body, tab)
        elif what == "skip":
            store.skip(rows, tab)
        elif what == "clear":
            store.clear(rows, tab)
            self.picker.show(rows)  # they are not blind again
        elif what == "class":
            return {"added": store.add_class(name, tab)}
        elif what == "rename":
            store.rename_class(code, name, tab)
        elif what == "merge":
            store.merge_class(code, body.get("into", -1), tab)
        elif what == "undo" and (undone := store.undo(self.windows.others(tab), tab)):
            self.picker.show(undone.rows[:1])  # it is opened
            message = self._words(undone) + (", from a closed window" if undone.tab != tab else "")
            point = self.point(undone.rows[0], "asked for") if undone.rows else None
            return {"undone": {"what": undone.what, "rows": undone.rows, "message": message}, "point": point}
        elif what == "open":  # a row that a person asked for
            rows = store.checked([body.get("row", -1)])
            self.picker.show(rows)
            return {"point": self.point(rows[0], "asked for")}
        elif what == "retry":
            self.model.retry()
        elif what == "layout":
            self.model.layout()
        elif what == "finish":
            self.model.finish()
        return {}

    def _label(self, rows: list[int], code: int, body: Body, tab: str) -> None:
        row, how, guess = rows[0], str(body.get("how", "key"))[:20], -1
        if len(rows) == 1 and self.store.codes[row] < 0:
            guess = int(self.model.predictions.codes[row, 0])
        # A page may already show the guess of a row that the server has drawn for the audit since.
        audited = len(rows) == 1 and how != "lasso" and row in self.picker.audits and body.get("blind", True) is True
        self.store.label(
            rows,
            code,
            guessed=how == "accept" and not audited,
            audit=audited,
            guess=guess if guess in self.store.used() else -1,
            how=how,
            was=body.get("was", ...),
            tab=tab,
        )

    def _words(self, change: Change) -> str:
        """A change in a few words."""
        row = self.source.table.row_name(change.rows[0]) if len(change.rows) == 1 else f"{len(change.rows):,} rows"
        names, s = self.store.classes, "" if len(change.rows) == 1 else "s"
        name = names.get(change.code)
        return {
            "label": f"label{s} of {row}",
            "clear": f"label{s} of {row} removed",
            "skip": f"{row} skipped",
            "class": f"class {change.name} added",
            "rename": f"class {name} renamed to {change.name}",
            "merge": f"class {name} merged into {names.get(change.target)}",
        }[change.what]

    async def change(self, request: Request) -> Response:
        """Make one change; it is on disk when the answer comes."""
        what = request.path_params["what"]
        if what not in CHANGES:
            return PlainTextResponse("Not found.", status_code=404)
        try:
            content = await request.body()
            return JSONResponse(await run_in_threadpool(self._changed, what, content))
        except (ValueError, TypeError, RecursionError) as error:
            status, reason = 409 if isinstance(error, ConflictError) else 400, str(error)
        except OSError as error:
            status, reason = 507, f"Not saved: writing to disk failed ({error.strerror or error})."
            if isinstance(error, MovedError):
                reason = f"Not saved: {error}"
        return JSONResponse({"error": reason}, status_code=status)

    # ------------------------------------------------------------------------------------------ what is read

    async def events(self, request: Request) -> Response:
        """State and progress, as server-sent events."""
        stream = self._events(request.query_params.get("tab", "")[:40])
        return StreamingResponse(stream, media_type="text/event-stream")

    def place(self, request: Request) -> Response:
        """The map: float32, x of all points, then y, which goes upward."""
        content = b"" if self.model.place is None else self.model.place.T.astype("<f4").tobytes()
        return Response(content, media_type="application/octet-stream")

    def marks(self, request: Request) -> Response:
        """Labels and guesses for the map, little-endian: label int16 [N], guess int16 [N], sure uint8 [N] of 255.

        -1: none; rows of the audit have no guess until they are labeled.
        """
        with self.store.guard:
            found, codes, used = self.model.predictions, self.store.codes.copy(), self.store.used()
            blind = [row for row in self.picker.audits if codes[row] < 0]
        guess = np.where(np.isin(found.codes[:, 0], list(used)), found.codes[:, 0], -1).astype("<i2")
        sure = np.clip(255 * found.probabilities[:, 0], 0, 255).astype(np.uint8)
        guess[blind], sure[blind] = -1, 0
        content = codes.astype("<i2").tobytes() + guess.tobytes() + sure.tobytes()
        return Response(content, media_type="application/octet-stream")

    def suspects(self, request: Request) -> Response:
        """Labeled rows that the model contradicts, worst first, except those that were confirmed or changed since."""
        found = self.model.predictions
        labels = {row: self.store.label_of(row) for row in found.suspects}
        rows = [row for row, own in labels.items() if own and own.change <= found.knows and not own.confirmed]
        return JSONResponse(self.listed(rows))

    def search(self, request: Request) -> Response:
        """The number of rows that contain the words, and the first ``LISTED`` of them."""
        rows = self.source.search(request.query_params.get("q", "")[:200])
        return JSONResponse({"found": len(rows), "rows": self.listed(rows[:LISTED])})

    def picture(self, request: Request) -> Response:
        """A row's picture, or the reason why it cannot be shown."""
        row = request.path_params["row"]
        if not (row.isascii() and row.isdigit() and len(row) < 16 and int(row) < self.store.rows):
            return PlainTextResponse("There is no such row.", status_code=404)
        try:
            content, kind = self.source.read_picture(int(row))
        except ValueError as error:
            return PlainTextResponse(str(error), status_code=404)
        return Response(content, media_type=kind)

    def download(self, request: Request) -> Response:
        """The labels as a file."""
        kind = request.path_params["kind"]
        if kind not in KINDS:
            return PlainTextResponse("Not found.", status_code=404)
        name, media = KINDS[kind]
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(export(kind, self.source, self.store), media_type=media, headers=headers)

    def report(self, request: Request) -> Response:
        """The report of the run that was written last."""
        path = self.store.folder / "report.html"
        if not path.is_file() or path.is_symlink():
            return PlainTextResponse("There is no report yet.", status_code=404)
        return FileResponse(path, headers={"content-security-policy": REPORT_POLICY})

    def shared(self, request: Request) -> Response:
        """A file that the report has too."""
        name = request.url.path.rsplit("/", 1)[1]
        return Response(web.read(name), media_type=SHARED[name])


def application(labeling: Labeling) -> Starlette:
    """The application without its guard; see :class:`~sobgnn.app.labeling.security.Guard`."""
    static = str(resources.files("sobgnn.app.labeling") / "static")
    return Starlette(
        routes=[
            Route("/api/events", labeling.events),
            Route("/api/map", labeling.place),
            Route("/api/marks", labeling.marks),
            Route("/api/suspects", labeling.suspects),
            Route("/api/search", labeling.search),
            Route("/api/{what}", labeling.change, methods=["POST"]),
            Route("/picture/{row}", labeling.picture),
            Route("/export/{kind}", labeling.download),
            Route("/report.html", labeling.report),
            *(Route(f"/{name}", labeling.shared) for name in SHARED),
            Mount("/", StaticFiles(directory=static, html=True)),
        ]
    )
