"""One labeling run: the ways to change its labels, classes and skipped rows."""

from __future__ import annotations

import getpass
import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal

from sobgnn.labeling.events import check_events
from sobgnn.labeling.journal import Event, Journal
from sobgnn.labeling.keys import CLASS_EVENTS, replay_keys
from sobgnn.labeling.state import Label, replay
from sobgnn.tables.columns.base import BLANKS
from sobgnn.tables.labels import UNLABELED

JOURNAL = "labels.journal"
# What is written only after the journal has begun.
LATER = ("labeling.json", "labels.csv", "fits.journal", "table.json", "predictions.csv", "report.html", "model")
LONGEST_NAME = 200
# Parts of words in some scripts and of some emoji, though nothing of them is printed.
JOINERS = "\u200c\u200d"
# Names that the estimator, or a reader of labels.csv, would treat as unlabeled, in lower case; todo may be the state of
# a task.
NO_LABEL = {"-1", "none", *(name.lower() for name in BLANKS), *UNLABELED} - {"todo"}


class ConflictError(ValueError):
    """A row has another label than the one that the person saw."""


class Session:
    """One run being labeled: every change is in the journal before the method that makes it returns.

    Args:
        folder: The run folder, created if it is missing; holds ``labels.journal``.
        rows: Number of rows of DATA.
        fingerprint: Hash of DATA's content; a folder that was started with other content is refused.
        classes: Classes that DATA has.
        codes: For each row of DATA, the index in ``classes``; -1: unlabeled. Both are used when the folder is new;
            afterwards only the journal counts.
        anew: Whether to remove what the folder holds, which must be no label.

    Attributes:
        resumed: Whether the folder had been used before.
    """

    def __init__(
        self,
        folder: Path,
        rows: int,
        fingerprint: str,
        classes: Sequence[Any] = (),
        codes: Sequence[int] = (),
        anew: bool = False,
    ) -> None:
        self.folder = folder
        self.rows = rows
        folder.mkdir(parents=True, exist_ok=True)
        self._guard = threading.RLock()
        self._journal = Journal(folder / JOURNAL, [name for name in LATER if (folder / name).exists()])
        try:
            check_events(self._journal.events, folder / JOURNAL)
            if anew:
                self._remove_start()
            self.resumed = bool(self._journal.events)
            self._begin(fingerprint, classes, codes)
            self.state = replay(self._journal.events)
            self._keys = replay_keys(self._journal.events)
        except BaseException:
            self._journal.close()
            raise

    def _remove_start(self) -> None:
        if replay(self._journal.events).labels:
            raise ValueError(f"{self.folder} was labeled meanwhile. Name another folder with --out.")
        # In this order: a journal without events is refused beside files that come after them.
        for name in ("labeling.json", "labels.csv", "fits.journal"):
            (self.folder / name).unlink(missing_ok=True)
        self._journal.clear()

    def _begin(self, fingerprint: str, classes: Sequence[Any], codes: Sequence[int]) -> None:
        events = self._journal.events
        if not events:
            self._write({"what": "start", "rows": self.rows, "data": fingerprint})
        started = self._journal.events[0]
        if started.get("rows") != self.rows or started.get("data") != fingerprint:
            had = started.get("rows")
            changed = f": it had {had} rows and now has {self.rows}" if had != self.rows else ""
            raise ValueError(
                f"{self.folder} holds labels of other data, or the data has changed{changed}. Name another folder with "
                "--out."
            )
        # An interrupted start is completed: classes of the file come first, in the file's order.
        had = sum(event["what"] == "class" and event["by"] == "file" for event in events)
        labeled = {event["class"] for event in events if event["what"] == "label" and event["by"] == "file"}
        complete = any(event.get("by") == "person" for event in events)
        if complete:
            return
        for code, name in enumerate(classes):
            if code >= had:
                self._write({"what": "class", "class": code, "name": str(name), "by": "file"})
        for code in range(len(classes)):
            members = [row for row, own in enumerate(codes) if own == code]
            if members and code not in labeled:
                self._write({"what": "label", "rows": members, "class": code, "by": "file"})

    @property
    def notice(self) -> str:
        """What was damaged in the journal when it was opened, or ""."""
        return self._journal.notice

    @property
    def saved(self) -> int:
        """Number of the last event; everything up to it is on the disk."""
        return len(self._journal.events)

    @property
    def keys(self) -> dict[int, str]:
        """The key of each class by its number, "" for none."""
        with self._guard:
            return dict(self._keys.now)

    def label(
        self,
        rows: Sequence[int],
        code: int,
        *,
        by: Literal["person", "model"] = "person",
        audit: bool = False,
        guesses: Mapping[int, int] | None = None,
        how: str = "key",
        was: int | EllipsisType | None = ...,
        tab: str = "",
    ) -> Event:
        """Give rows a class; existing labels are replaced.

        Args:
            rows: At least one.
            code: The class.
            by: A person, or the model if a person accepted its guess.
            audit: Whether the row was drawn at random, and its guess not seen.
            guesses: What the model predicted for a row before its label was known.
            how: The gesture that gave the label.
            was: The label that the person saw, ``None`` for none; if omitted, any label is replaced.
            tab: Which tab asks, here and below.

        Raises:
            ConflictError: A row has a label that is neither ``was`` nor the new one. Nothing is changed.
        """
        with self._guard:
            self._check_class(code)
            checked = self._checked(rows)
            if was is not ...:
                self._check_unchanged(checked, code, was)
            event: Event = {"what": "label", "rows": checked, "class": code, "by": by, "how": how}
            if audit:
                event["audit"] = True
            if guesses:
                event["guesses"] = {str(row): int(guess) for row, guess in guesses.items()}
            return self._change(event, tab)

    def clear(self, rows: Sequence[int], tab: str = "") -> Event:
        """Remove labels."""
        with self._guard:
            return self._change({"what": "clear", "rows": self._checked(rows), "by": "person"}, tab)

    def skip(self, rows: Sequence[int], tab: str = "") -> Event:
        """Skip rows: they are not suggested again."""
        with self._guard:
            return self._change({"what": "skip", "rows": self._checked(rows), "by": "person"}, tab)

    def add_class(self, name: str, tab: str = "") -> int:
        """Add a class, and return its number."""
        with self._guard:
            code = sum(1 for event in self._journal.events if event["what"] == "class")
            self._change({"what": "class", "class": code, "name": self._free_name(name), "by": "person"}, tab)
            return code

    def rename_class(self, code: int, name: str, tab: str = "") -> Event:
        """Give a class another name; its labels stay."""
        with self._guard:
            self._check_class(code)
            name = self._free_name(name, code)
            return self._change({"what": "rename", "class": code, "name": name, "by": "person"}, tab)

    def merge_class(self, code: int, into: int, tab: str = "") -> Event:
        """Give the labels of a class to another, and remove the class."""
        with self._guard:
            self._check_class(code)
            self._check_class(into)
            if code == into:
                raise ValueError(f"A class cannot be merged into itself: {self.state.classes[code]!r}. Choose another.")
            return self._change({"what": "merge", "class": code, "into": into, "by": "person"}, tab)

    def undoable(self, others: Collection[str] = ()) -> list[int]:
        """Numbers of the events that can be undone, oldest first, but for those of ``others``, tabs that are open."""
        with self._guard:
            events = self._journal.events
            return [number for number in self.state.undoable if events[number - 1].get("tab") not in others]

    def undo(self, others: Collection[str] = (), tab: str = "") -> Event | None:
        """Undo the last change that is not one of ``others``, and return what it was; ``None`` where there is none.

        Raises:
            ConflictError: A later change of another tab needs it. Nothing is changed.
        """
        with self._guard:
            undoable = self.undoable(others)
            if not undoable:
                return None
            event: Event = {"what": "undo", "of": undoable[-1], "by": "person"}
            without = replay([*self._journal.events, event])
            names = list(without.classes.values())
            if len(set(names)) < len(names) or any(v.code not in without.classes for v in without.labels.values()):
                raise ConflictError(
                    "The last change of this window stays: a later change in another window needs it. Undo that first."
                )
            self._write(event, tab)
            self.state = without
            undone = self._journal.events[undoable[-1] - 1]
            if undone["what"] in CLASS_EVENTS:
                self._keys.update(self.state.classes)
            return undone

    def undone(self) -> list[tuple[int, int]]:
        """For each undoing of labels, in their order, the numbers of its event and of the event it undid.

        Left out are changes that were undone although later ones of other windows stay: fits after these still stand.
        """
        kinds, gone, found = ("label", "clear", "merge"), set(), []
        with self._guard:
            events = self._journal.events
            for undo in [event for event in events if event["what"] == "undo"]:
                n, of = undo["n"], undo["of"]
                gone.add(of)
                stays = any(event["what"] in kinds and event["n"] not in gone for event in events[of : n - 1])
                if events[of - 1]["what"] in kinds and not stays:
                    found.append((n, of))
        return found

    def merges(self) -> list[tuple[int, int]]:
        """For each merge that was not undone, in their order, the class that is gone and the one it went to."""
        with self._guard:
            events = self._journal.events
            undone = {event["of"] for event in events if event["what"] == "undo"}
            return [(e["class"], e["into"]) for e in events if e["what"] == "merge" and e["n"] not in undone]

    def withdrawn(self) -> set[int]:
        """Rows that were opened when a change was undone (the first of its rows), and rows that were cleared."""
        with self._guard:
            undone = {event["of"] for event in self._journal.events if event["what"] == "undo"}
            opened = {row for e in self._journal.events if e["n"] in undone for row in e.get("rows", ())[:1]}
            return opened | {row for e in self._journal.events if e["what"] == "clear" for row in e["rows"]}

    def snapshot(self) -> tuple[int, dict[int, str], dict[int, Label], set[int]]:
        """The number of the last event with consistent copies of classes, labels and skipped rows."""
        with self._guard:
            return self.saved, dict(self.state.classes), dict(self.state.labels), set(self.state.skipped)

    def used(self) -> set[int]:
        """Classes that have labels; a model whose labels were undone since may predict others."""
        with self._guard:
            return {label.code for label in self.state.labels.values()}

    def check_in_place(self) -> None:
        """Raise a MovedError where the journal is no longer in the folder."""
        self._journal.check_in_place()

    def close(self) -> None:
        """Close the journal; another process may then open it."""
        self._journal.close()

    def _change(self, event: Event, tab: str) -> Event:
        written = self._write(event, tab)
        self.state.apply(written)
        if event["what"] in CLASS_EVENTS:
            self._keys.update(self.state.classes)
        return written

    def _write(self, event: Event, tab: str = "") -> Event:
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        event = {**event, "tab": tab} if tab else event
        return self._journal.append({**event, "when": now, "who": _user()})

    def _checked(self, rows: Sequence[int]) -> list[int]:
        if not isinstance(rows, list | tuple) or not rows:
            raise ValueError(f"`rows` must be a list of at least one row number, but got {_short(rows)}.")
        for row in rows:
            if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < self.rows:
                raise ValueError(f"Rows go from 0 to {self.rows - 1}, but got {_short(row)}.")
        return sorted(set(rows))

    def _check_unchanged(self, rows: list[int], code: int, was: int | None) -> None:
        now = {row: self.state.labels[row].code if row in self.state.labels else None for row in rows}
        changed = [row for row in rows if now[row] not in (was, code)]
        if not changed:
            return
        if len(rows) > 1:
            raise ConflictError(
                f"Nothing was changed: {len(changed)} of the {len(rows)} rows got other labels in another tab "
                "meanwhile. Select them again."
            )
        name = None if now[rows[0]] is None else self.state.classes[now[rows[0]]]  # type: ignore[index]
        what = "lost its label" if name is None else f"was labeled {name!r}"
        raise ConflictError(f"The row before {what} in another tab meanwhile; nothing was changed. Open it to edit.")

    def _check_class(self, code: int) -> None:
        if isinstance(code, bool) or not isinstance(code, int) or code not in self.state.classes:
            raise ValueError(f"There is no class {_short(code)}. Add it first.")

    def _free_name(self, name: str, code: int | None = None) -> str:
        if not isinstance(name, str):
            raise ValueError(f"A class's name must be text, but got {_short(name)}.")
        name = "".join(c if c.isprintable() or c in JOINERS else " " for c in name)
        name = " ".join(filter(None, (word.strip(JOINERS) for word in name.split())))
        if not 0 < len(name) <= LONGEST_NAME:
            raise ValueError(f"A class's name must have 1 to {LONGEST_NAME} characters, but got {len(name)}.")
        if _visible(name).lower() in NO_LABEL:
            raise ValueError(f"A class cannot be called {name!r}, which means no label. Choose another name.")
        if any(_visible(other) == _visible(name) for number, other in self.state.classes.items() if number != code):
            raise ValueError(f"There is already a class {name!r}. Choose another name.")
        return name


def _visible(name: str) -> str:
    return name.translate(dict.fromkeys(map(ord, JOINERS)))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # an account without a name, in some containers
        return ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
