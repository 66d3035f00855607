"""What the page's server shows, and the changes that it makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np

from sobgnn.labeling.export import labels_csv
from sobgnn.labeling.folder import remove_unfinished
from sobgnn.labeling.journal import Event
from sobgnn.labeling.learner import Learner
from sobgnn.labeling.picking import Offers, Picker
from sobgnn.labeling.progress import advice, audit, curve
from sobgnn.labeling.session import Session
from sobgnn.labeling.source import Source
from sobgnn.runs.page.colors import class_colors
from sobgnn.runtime.files import atomic_file

UPCOMING = 4
# Number of rows that a search lists.
LISTED = 50
# Seconds that a person waits for the first suggestions; after that, random rows are shown. With very many points, their
# graph takes minutes.
MOST_WAIT = 8.0


class Labeling:
    """What the routes share.

    Args:
        source: The points.
        session: Their labels.
        learner: The model that learns from them.
    """

    def __init__(self, source: Source, session: Session, learner: Learner) -> None:
        self.source = source
        self.session = session
        self.learner = learner
        self.picker = Picker(source.rows, seen=session.withdrawn())
        self._offers = Offers()
        self._offering = threading.Lock()
        self._opened = time.monotonic()
        self._written = -1
        self._writing = threading.Lock()
        learner.on_answer = self.write_labels

    def state(self, tab: str = "") -> dict[str, Any]:
        """Everything the page shows besides points and the map; some of it differs from tab to tab."""
        others = self._others(tab)
        saved, classes, labels, skipped = self.session.snapshot()
        counts = dict.fromkeys(classes, 0)
        for label in labels.values():
            counts[label.code] += 1
        keys = self.session.keys
        colors = class_colors(max(classes, default=0) + 1)  # by code: a class keeps its color when another goes
        history, found = self.learner.history.standing(self.session.undone(), len(labels)), self.learner.guesses
        held_out = {} if found is None else found.held_out
        for old, new in self.session.merges():  # earlier fits predicted the class that is gone
            history = [replace(one, predicted=np.where(one.predicted == old, new, one.predicted)) for one in history]
            held_out = {row: new if code == old else code for row, code in held_out.items()}
        said, given = advice(history), found.given if found is not None else {}
        known = sum(given.get(row) == label.code for row, label in labels.items())
        return {
            "name": self.source.name,
            "rows": self.source.rows,
            "saved": saved,
            "labels": len(labels),
            "by_file": sum(label.by == "file" for label in labels.values()),
            "skipped": len(skipped),
            "undo": len(self.session.undoable(others)),
            "windows": len(others),
            "classes": [
                {
                    "code": code,
                    "name": name,
                    "key": keys.get(code, ""),  # a class that went since has none
                    "count": counts[code],
                    "light": colors[code][0],
                    "dark": colors[code][1],
                }
                for code, name in classes.items()
            ],
            "model": {**self.learner.status(), "known": known, "dated": len(given) > len(labels)},
            "curve": curve(history),
            "advice": {"enough": said.enough, "sentence": said.sentence},
            "audit": audit(labels, held_out),
            "folder": str(self.session.folder),
            "notice": self.session.notice,
        }

    def upcoming(self, without: Collection[int] = (), tab: str = "", at: object = None) -> list[dict[str, Any]]:
        """The next points to label, best first; none while waiting, for a limited time, for the first suggestions.

        Args:
            without: Rows to leave out.
            tab: The tab that asks; it gets rows that no other tab shows, as long as there are any.
            at: The row that the tab shows; those after it are chosen.
        """
        if self.learner.status()["starting"] and time.monotonic() < self._opened + MOST_WAIT:
            return []
        _, _, labels, skipped = self.session.snapshot()
        shown = at if isinstance(at, int) and 0 <= at < self.source.rows else None
        with self._offering:
            others = self._offers.of_others(tab) if tab else set()
            chosen = self.picker.next(self.learner.guesses, labels, skipped, UPCOMING, {*without, *others}, shown)
            chosen = chosen or self.picker.next(self.learner.guesses, labels, skipped, UPCOMING, without, shown)
            if tab:
                self._offers.note(tab, {row for row, _ in chosen} | ({shown} if shown is not None else set()))
        return [self.point(row, why) for row, why in chosen]

    def leave(self, tab: str) -> None:
        """Note that a tab was closed."""
        with self._offering:
            self._offers.forget(tab)

    def _others(self, tab: str) -> set[str]:
        """Other open tabs; none for whoever asks without being one."""
        with self._offering:
            return self._offers.others(tab) if tab else set()

    def point(self, row: int, why: str = "asked for") -> dict[str, Any]:
        """A row's content, its label, and the guess; a row of the audit has no guess."""
        if not 0 <= row < self.source.rows:
            raise ValueError(f"Rows go from 0 to {self.source.rows - 1}, but got {row}.")
        if why == "asked for":
            self.picker.show([row])
        label = self.session.state.labels.get(row)
        found, used = self.learner.guesses, self.session.used()
        top: list[dict[str, Any]] = []
        # A label that was taken back is no guess: the next fit forgets it.
        taken_back = label is None and found is not None and row in found.given
        blind = why == "audit" or taken_back
        if found is not None and found.codes is not None and found.probabilities is not None and not blind:
            pairs = zip(found.codes[row].tolist(), found.probabilities[row].tolist(), strict=True)
            top = [{"code": code, "sure": round(sure, 4)} for code, sure in pairs if code in used]
        return {
            "row": row,
            "id": self.source.id_of(row),
            "why": why,
            "content": self.source.content(row),
            "guesses": top,
            "label": None if label is None else label.code,
        }

    def change(self, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """Make one change; it is on disk when this returns."""
        session, tab = self.session, str(body.get("tab", ""))[:40]
        answer: dict[str, Any] = {}
        if what == "label":
            rows, how = body.get("rows", []), str(body.get("how", "key"))[:20]
            first = self._first_guesses(rows)
            read = isinstance(rows, list) and len(rows) == 1 and how != "lasso"
            # A page may already show the guess of a row that the server has drawn for the audit since.
            audited = read and rows[0] in self.picker.audits and body.get("blind", True) is True
            by: Any = "model" if how == "accept" and not audited else "person"
            was = body.get("was", ...)
            session.label(rows, body.get("class", -1), by=by, audit=audited, guesses=first, how=how, was=was, tab=tab)
        elif what == "clear":
            self.picker.show(session.clear(body.get("rows", []), tab)["rows"])
        elif what == "skip":
            session.skip(body.get("rows", []), tab)
        elif what == "class":
            answer["added"] = session.add_class(body.get("name", ""), tab)
        elif what == "rename":
            session.rename_class(body.get("class", -1), body.get("name", ""), tab)
        elif what == "merge":
            session.merge_class(body.get("class", -1), body.get("into", -1), tab)
        elif what == "undo":
            undone = session.undo(self._others(tab), tab)
            if undone is not None:
                rows = undone.get("rows", [])
                self.picker.show(rows[:1])  # which the page opens
                closed = ", from a closed window" if undone.get("tab", "") != tab else ""
                answer["undone"] = {"what": undone["what"], "rows": rows, "said": self._words(undone) + closed}
        elif what == "leave":
            self.leave(tab)
            return {}
        elif what == "retry":
            self.learner.retry()
        elif what == "layout":
            self.learner.layout()
        elif what == "finish":
            self.write_labels()
            self.learner.finish()
        self.learner.changed()
        upcoming = self.upcoming(tab=tab, at=body.get("at"))
        return {**answer, "state": self.state(tab), "upcoming": upcoming}

    def _words(self, event: Event) -> str:
        """A change in a few words."""
        what, rows = event["what"], event.get("rows", [])
        row = f"row {self.source.id_of(rows[0])}" if len(rows) == 1 else f"{len(rows):,} rows"
        names, s = self.session.state.classes, "" if len(rows) == 1 else "s"
        if what == "merge":
            return f"class {names.get(event['class'])} merged into {names.get(event['into'])}"
        return {
            "label": f"label{s} of {row}",
            "clear": f"label{s} of {row} removed",
            "skip": f"{row} skipped",
            "class": f"class {event.get('name')} added",
            "rename": f"class {names.get(event.get('class', -1))} renamed to {event.get('name')}",
        }[what]

    def _first_guesses(self, rows: Any) -> dict[int, int]:
        """What the model predicted for rows without a label."""
        found = self.learner.guesses
        if found is None or found.codes is None or not isinstance(rows, list) or len(rows) > 1:
            return {}
        known, used = self.session.state.labels, self.session.used()
        inside = [row for row in rows if isinstance(row, int) and 0 <= row < self.source.rows and row not in known]
        return {row: int(found.codes[row, 0]) for row in inside if found.codes[row, 0] in used}

    def marks(self) -> bytes:
        """For the map, little-endian: label int16 [N] (-1: none), guess int16 [N] (-1: none), sure uint8 [N] of 255.

        Rows of the audit have no guess until they are labeled.
        """
        _, _, labels, _ = self.session.snapshot()
        given = np.full(self.source.rows, -1, dtype="<i2")
        for row, label in labels.items():
            given[row] = label.code
        found = self.learner.guesses
        guess, sure = np.full(self.source.rows, -1, dtype="<i2"), np.zeros(self.source.rows, dtype=np.uint8)
        if found is not None and found.codes is not None and found.probabilities is not None:
            used = np.isin(found.codes[:, 0], list(self.session.used()))
            guess = np.where(used, found.codes[:, 0], -1).astype("<i2")
            sure = np.clip(255 * found.probabilities[:, 0], 0, 255).astype(np.uint8)
            blind = [row for row in list(self.picker.audits) if row not in labels]
            guess[blind], sure[blind] = -1, 0
        return given.tobytes() + guess.tobytes() + sure.tobytes()

    def suspects(self) -> list[dict[str, Any]]:
        """Labeled rows that the model contradicts, worst first, except those that were confirmed or changed since."""
        found = self.learner.guesses
        labels = self.session.state.labels
        listed = [row for row in (found.suspects if found else []) if row in labels]
        rows = [row for row in listed if found and labels[row].event <= found.knows and not labels[row].confirmed]
        return [{"row": row, "label": labels[row].code, "excerpt": self.source.excerpt(row)} for row in rows]

    def search(self, words: str) -> dict[str, Any]:
        """The number of rows that contain the words, and the first ``LISTED`` of them."""
        labels = self.session.state.labels
        rows = self.source.search(words)
        listed = [
            {"row": row, "label": labels[row].code if row in labels else None, "excerpt": self.source.excerpt(row)}
            for row in rows[:LISTED]
        ]
        return {"found": len(rows), "rows": listed}

    def write_labels(self) -> None:
        """Write labels.csv if something has changed."""
        with self._writing:
            saved, classes, labels, _ = self.session.snapshot()
            if saved != self._written:
                self.session.check_in_place()
                with atomic_file(self.session.folder / "labels.csv") as file:
                    file.write(labels_csv(self.source, classes, labels))
                self._written = saved

    def close(self) -> None:
        """End the model's process, write labels.csv, and release the folder.

        A run is removed if its labels were undone since and too few are left for a new run.
        """
        self.learner.close()
        remove_unfinished(self.session.folder)  # where it was ended while it wrote the run
        try:
            self.write_labels()
            if len(self.session.used()) < 2 and (self.session.folder / "report.html").exists():
                from sobgnn.runs.folder import remove_run  # here, since it loads torch

                remove_run(self.session.folder)
        finally:
            self.session.close()
