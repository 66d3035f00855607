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

Body = dict[str, Any]


class Labeling:
    """What the routes share.

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
            now = 0 if predictions is None else predictions.version, store.saved
            if self._progress[0] == now:
                return self._progress[1]
            fits, held_out = store.fits(), {} if predictions is None else predictions.held_out
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
        if found is None and not self.model.problem and time.monotonic() < self._opened + MOST_WAIT:
            return []
        suggested, guessing = ([], False) if found is None else (found.suggested, found.codes is not None)
        shown = at if isinstance(at, int) and 0 <= at < store.rows else None
        with store.guard:
            done = store.skipped
            chosen: list[tuple[int, str]] = []
            for taken in (done | self.windows.shown_by_others(tab), done):
                chosen = chosen or self.picker.next(suggested, guessing, store.codes, taken, UPCOMING, shown)
            self.windows.show(tab, [row for row, _ in chosen] + ([] if shown is None else [shown]))
            return [self.point(row, why) for row, why in chosen]

    def point(self, row: int, why: str) -> dict[str, Any]:
        """A row's content, its label, and the guess; a row of the audit has no guess."""
        found, used, label = self.model.predictions, self.store.used(), self.store.label_of(row)
        top: list[dict[str, Any]] = []
        # A label that was taken back is no guess: the next fit forgets it.
        taken_back = label is None and found is not None and found.given[row] >= 0
        if found is not None and found.codes is not None and found.probabilities is not None and why != "audit":
            pairs = zip(found.codes[row].tolist(), found.probabilities[row].tolist(), strict=True)
            top = [{"code": code, "sure": round(sure, 4)} for code, sure in pairs if code in used and not taken_back]
        return {
            "row": row,
            "title": self.source.table.row_name(row),
            "why": why,
            "content": self.source.content(row),
            "guesses": top,
            "label": None if label is None else label.code,
        }

    def marks(self) -> bytes:
        """For the map, little-endian: label int16 [N] (-1: none), guess int16 [N] (-1: none), sure uint8 [N] of 255.

        Rows of the audit have no guess until they are labeled.
        """
        with self.store.guard:
            found, codes = self.model.predictions, self.store.codes.copy()
        guess, sure = np.full(len(codes), -1, dtype="<i2"), np.zeros(len(codes), dtype=np.uint8)
        if found is not None and found.codes is not None and found.probabilities is not None:
            used = np.isin(found.codes[:, 0], list(self.store.used()))
            guess = np.where(used, found.codes[:, 0], -1).astype("<i2")
            sure = np.clip(255 * found.probabilities[:, 0], 0, 255).astype(np.uint8)
            blind = [row for row in tuple(self.picker.audits) if codes[row] < 0]
            guess[blind], sure[blind] = -1, 0
        return bytes(codes.astype("<i2").tobytes() + guess.tobytes() + sure.tobytes())

    def first_guess(self, row: int) -> int:
        """What the model predicts for a row without a label; -1: nothing."""
        found = self.model.predictions
        if found is None or found.codes is None or self.store.codes[row] >= 0:
            return -1
        code = int(found.codes[row, 0])
        return code if code in self.store.used() else -1

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

    async def events(self, tab: str) -> AsyncIterator[bytes]:
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


# ---------------------------------------------------------------------------------------------- changes


def label(on: Labeling, body: Body, tab: str) -> None:
    """Give rows a class."""
    rows, how = on.store.checked(body.get("rows", [])), str(body.get("how", "key"))[:20]
    one = len(rows) == 1
    # A page may already show the guess of a row that the server has drawn for the audit since.
    audited = one and how != "lasso" and rows[0] in on.picker.audits and body.get("blind", True) is True
    on.store.label(
        rows,
        body.get("class", -1),
        guessed=how == "accept" and not audited,
        audit=audited,
        guess=on.first_guess(rows[0]) if one else -1,
        how=how,
        was=body.get("was", ...),
        tab=tab,
    )


def clear(on: Labeling, body: Body, tab: str) -> None:
    """Remove labels; the rows are not blind again."""
    on.store.clear(body.get("rows", []), tab)
    on.picker.show(body["rows"])


def undo(on: Labeling, body: Body, tab: str) -> Body | None:
    """Take back the last change of this window, or of one that is closed; its first row is opened."""
    undone = on.store.undo(on.windows.others(tab), tab)
    if undone is None:
        return None
    on.picker.show(undone.rows[:1])
    closed = ", from a closed window" if undone.tab != tab else ""
    point = on.point(undone.rows[0], "asked for") if undone.rows else None
    return {
        "undone": {"what": undone.what, "rows": undone.rows, "message": _words(on, undone) + closed},
        "point": point,
    }


def open_row(on: Labeling, body: Body, tab: str) -> Body:
    """Show a row that a person asked for; its guess is seen."""
    (row,) = on.store.checked([body.get("row", -1)])
    on.picker.show([row])
    return {"point": on.point(row, "asked for")}


def finish(on: Labeling, body: Body, tab: str) -> None:
    """Write the labels, then the run."""
    on.write_labels()
    on.model.finish()


CHANGES: dict[str, Callable[[Labeling, Body, str], Body | None]] = {
    "label": label,
    "skip": lambda on, body, tab: on.store.skip(body.get("rows", []), tab),
    "clear": clear,
    "class": lambda on, body, tab: {"added": on.store.add_class(body.get("name", ""), tab)},
    "rename": lambda on, body, tab: on.store.rename_class(body.get("class", -1), body.get("name", ""), tab),
    "merge": lambda on, body, tab: on.store.merge_class(body.get("class", -1), body.get("into", -1), tab),
    "undo": undo,
    "open": open_row,
    "next": lambda on, body, tab: None,  # the next points alone, which every answer holds
    "retry": lambda on, body, tab: on.model.retry(),
    "layout": lambda on, body, tab: on.model.layout(),
    "finish": finish,
}


def _words(on: Labeling, change: Change) -> str:
    """A change in a few words."""
    row = on.source.table.row_name(change.rows[0]) if len(change.rows) == 1 else f"{len(change.rows):,} rows"
    names, s = on.store.classes, "" if len(change.rows) == 1 else "s"
    name = names.get(change.code)
    return {
        "label": f"label{s} of {row}",
        "clear": f"label{s} of {row} removed",
        "skip": f"{row} skipped",
        "class": f"class {change.name} added",
        "rename": f"class {name} renamed to {change.name}",
        "merge": f"class {name} merged into {names.get(change.target)}",
    }[change.what]


def _change(on: Labeling, what: str, content: bytes) -> Body:
    body = json.loads(content or b"{}")
    if not isinstance(body, dict):
        raise ValueError("The body must be a JSON object.")
    tab = str(body.get("tab", ""))[:40]
    with on.store.guard:
        saved = on.store.saved
        answer = CHANGES[what](on, body, tab) or {}
        if on.store.saved != saved:
            on.model.changed()
        if on.store.saved != saved or what in ("retry", "layout", "finish"):
            on.tell()
        return {**answer, "saved": on.store.saved, "upcoming": on.upcoming(tab, body.get("at"))}


async def change(request: Request) -> Response:
    """Make one change; it is on disk when the answer comes."""
    what = request.path_params["what"]
    if what not in CHANGES:
        return PlainTextResponse("Not found.", status_code=404)
    try:
        content = await request.body()
        return JSONResponse(await run_in_threadpool(_change, request.app.state.labeling, what, content))
    except ConflictError as error:
        return JSONResponse({"error": str(error)}, status_code=409)
    except (ValueError, TypeError, RecursionError) as error:
        return JSONResponse({"error": str(error)}, status_code=400)
    except MovedError as error:
        return JSONResponse({"error": f"Not saved: {error}"}, status_code=507)
    except OSError as error:
        return JSONResponse(
            {"error": f"Not saved: writing to disk failed ({error.strerror or error})."}, status_code=507
        )


# ---------------------------------------------------------------------------------------------- what is read


async def events(request: Request) -> Response:
    """State and progress, as server-sent events."""
    stream = request.app.state.labeling.events(request.query_params.get("tab", "")[:40])
    return StreamingResponse(stream, media_type="text/event-stream")


def place(request: Request) -> Response:
    """The map: float32, x of all points, then y, which goes upward."""
    found = request.app.state.labeling.model.place
    return Response(b"" if found is None else found.T.astype("<f4").tobytes(), media_type="application/octet-stream")


def marks(request: Request) -> Response:
    """Labels and guesses of all points, for the map."""
    return Response(request.app.state.labeling.marks(), media_type="application/octet-stream")


def suspects(request: Request) -> Response:
    """Labeled rows that the model contradicts, worst first, except those that were confirmed or changed since."""
    on = request.app.state.labeling
    found = on.model.predictions
    labels = {} if found is None else {row: on.store.label_of(row) for row in found.suspects}
    rows = [row for row, own in labels.items() if own and own.change <= found.knows and not own.confirmed]
    return JSONResponse(on.listed(rows))


def search(request: Request) -> Response:
    """The number of rows that contain the words, and the first ``LISTED`` of them."""
    on = request.app.state.labeling
    rows = on.source.search(request.query_params.get("q", "")[:200])
    return JSONResponse({"found": len(rows), "rows": on.listed(rows[:LISTED])})


def picture(request: Request) -> Response:
    """A row's picture, or the reason why it cannot be shown."""
    on, row = request.app.state.labeling, request.path_params["row"]
    if not (row.isascii() and row.isdigit() and len(row) < 16 and int(row) < on.store.rows):
        return PlainTextResponse("There is no such row.", status_code=404)
    try:
        content, kind = on.source.read_picture(int(row))
    except ValueError as error:
        return PlainTextResponse(str(error), status_code=404)
    return Response(content, media_type=kind)


def download(request: Request) -> Response:
    """The labels as a file."""
    on, kind = request.app.state.labeling, request.path_params["kind"]
    if kind not in KINDS:
        return PlainTextResponse("Not found.", status_code=404)
    name, media = KINDS[kind]
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return Response(export(kind, on.source, on.store), media_type=media, headers=headers)


def report(request: Request) -> Response:
    """The report of the run that was written last."""
    path = request.app.state.labeling.store.folder / "report.html"
    if not path.is_file() or path.is_symlink():
        return PlainTextResponse("There is no report yet.", status_code=404)
    return FileResponse(path, headers={"content-security-policy": REPORT_POLICY})


def shared(request: Request) -> Response:
    """A file that the report has too."""
    name = request.url.path.rsplit("/", 1)[1]
    return Response(web.read(name), media_type=SHARED[name])


def application(labeling: Labeling) -> Starlette:
    """The application without its guard; see :class:`~sobgnn.app.labeling.security.Guard`."""
    static = str(resources.files("sobgnn.app.labeling") / "static")
    app = Starlette(
        routes=[
            Route("/api/events", events),
            Route("/api/map", place),
            Route("/api/marks", marks),
            Route("/api/suspects", suspects),
            Route("/api/search", search),
            Route("/api/{what}", change, methods=["POST"]),
            Route("/picture/{row}", picture),
            Route("/export/{kind}", download),
            Route("/report.html", report),
            *(Route(f"/{name}", shared) for name in SHARED),
            Mount("/", StaticFiles(directory=static, html=True)),
        ]
    )
    app.state.labeling = labeling
    return app
