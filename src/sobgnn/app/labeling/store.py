"""One labeling in one SQLite file: labels, classes, skipped rows, undo by window, fits, and the map."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from types import EllipsisType, NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import check_inside, check_regular
from sobgnn.app.labeling.labels import Change, ConflictError, Labels, free_name
from sobgnn.app.labeling.progress import Fit

STORE = "labels.db"
# What is written only after the store has begun.
LATER = ("labels.csv", "table.json", "predictions.csv", "report.html", "model")
SCHEMA = """
create table meta (name text primary key, value text) without rowid;
create table change (                      -- one row for each act of a person, in their order
  n integer primary key,
  what text not null,                      -- label, clear, skip, class, rename, merge, undo
  rows text not null,                      -- of DATA, as JSON
  code integer not null,                   -- number of the class; here and below, -1: none
  name text not null,                      -- of the class
  target integer not null,                 -- the class that a merged one went to, or the change that was undone
  guess integer not null,                  -- what the model predicted for the row before it had a label
  guessed integer not null,                -- whether a person accepted the model's guess
  audit integer not null,                  -- whether the row was drawn at random, and its guess not seen
  how text not null, tab text not null, at text not null
);
create table fit (                         -- the last one with this number of labels
  labels integer primary key, knows integer not null, chosen integer not null, accuracy real, low real not null,
  high real not null, predicted blob not null
);
create table map (learned integer not null, place blob not null);
"""
# What the columns of a change and of a fit hold, and those entries of ``meta`` that a store needs.
CHANGE = (int, str, str, int, str, int, int, int, int, str, str, str)
FIT: tuple[Any, ...] = (int, int, int, (float, NoneType), float, float, bytes)
META = {"fingerprint": str, "began": str, "classes": list}
# Changes of labels.
LABELING = ("label", "clear", "merge")

# What reading a damaged file can raise.
_DAMAGES = (sqlite3.Error, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)


class MovedError(OSError):
    """The store's file is no longer where it was opened."""


class Store(Labels):
    """One labeling: every change is on disk before the method that makes it returns, and one process holds the file.

    Labels of DATA are not in the store: they are given again at each start, which the fingerprint guarantees to be the
    same.

    Args:
        folder: The run folder, created if it is missing; holds ``labels.db``.

    Attributes:
        saved: Number of the last change; everything up to it is on the disk.
        withdrawn: Rows that were opened when a change was undone (the first of its rows), and rows that were cleared.

    Raises:
        ValueError: Another process holds the store, it is damaged, or it is lost.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.path = folder / STORE
        later = [name for name in LATER if (folder / name).exists()]
        if later and not (self.path.exists() and self.path.stat().st_size):
            lost = "is empty" if self.path.exists() else "is missing"
            raise ValueError(
                f"{self.path} {lost}, but labels were given before: {', '.join(later)} beside it. Put the store back, "
                "or name another folder with --out."
            )
        folder.mkdir(parents=True, exist_ok=True)
        _check_files(folder)
        # Nothing in this process may open the file but SQLite: closing it would let go of SQLite's lock.
        self._db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False)
        self._standing: dict[int, Change] = {}
        self._fits: dict[int, Fit] = {}
        try:
            with self._damage():
                for pragma in ("trusted_schema=off", "locking_mode=exclusive"):
                    self._db.execute(f"pragma {pragma}")
                # Before anything reads the tables: a view or a trigger of others could be endless.
                if (found := _schema(self._db)) not in (set(), _own_schema()):
                    raise ValueError("its tables are not those of a labeling")
                for pragma in ("journal_mode=wal", "synchronous=full"):
                    self._db.execute(f"pragma {pragma}")
                if self._db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
                    raise ValueError("its pages do not fit together")
                with self._transaction():
                    if not found:
                        for statement in SCHEMA.split(";\n"):
                            self._db.execute(statement)
                self._read()
            self._files = {path: os.stat(path) for path in (self.path, Path(f"{self.path}-wal"))}
        except BaseException:
            self._db.close()
            raise

    def begin(
        self, meta: Mapping[str, Any], classes: Sequence[Any], codes: npt.NDArray[np.integer], anew: bool = False
    ) -> None:
        """Start with the labels of DATA, or resume.

        Args:
            meta: What the labeling is of; its ``fingerprint`` must be the one that the store was begun with.
            classes: Classes that DATA has.
            codes: [N], the index in ``classes`` for each row of DATA; -1: unlabeled.
            anew: Whether to remove what the store holds.
        """
        had = self.meta.get("fingerprint")
        if had not in (None, meta["fingerprint"]) and not anew:
            raise ValueError(
                f"{self.folder} holds labels of other data, or the data has changed. Name another folder with --out."
            )
        self._given = codes.astype(np.int32)
        with self._damage():
            if anew or had is None:
                new = {**meta, "began": _now(), "classes": [str(name) for name in classes]}
                with self._transaction():
                    for table in ("meta", "change", "fit", "map"):
                        self._db.execute(f"delete from {table}")
                    held = [(name, json.dumps(value)) for name, value in new.items()]
                    self._db.executemany("insert into meta values (?, ?)", held)
                self._read()
            self._replay()
            if not self.consistent():
                raise ValueError("its labels and classes do not fit together")

    @property
    def touched(self) -> bool:
        """Whether a person has labeled anything that stands; known before :meth:`begin`."""
        return any(change.what == "label" for change in self._standing.values())

    # ------------------------------------------------------------------------------------------ changes

    def label(
        self,
        rows: Sequence[int],
        code: int,
        *,
        guessed: bool = False,
        audit: bool = False,
        guess: int = -1,
        how: str = "key",
        was: int | EllipsisType | None = ...,
        tab: str = "",
    ) -> None:
        """Give rows a class; existing labels are replaced.

        Args:
            rows: At least one.
            code: The class.
            guessed: Whether a person accepted the model's guess.
            audit: Whether the row was drawn at random, and its guess not seen.
            guess: What the model predicted for the row before its label was known; -1: nothing.
            how: The gesture that gave the label.
            was: The label that the person saw, ``None`` for none; if omitted, any label is replaced.
            tab: Which tab asks, here and below.

        Raises:
            ConflictError: A row has a label that is neither ``was`` nor the new one. Nothing is changed.
        """
        with self.guard:
            self.check_class(code)
            checked = self.checked(rows)
            if was is not ...:
                self.check_unchanged(checked, code, was)
            self._add("label", checked, code=code, guessed=guessed, audit=audit, guess=guess, how=how, tab=tab)

    def clear(self, rows: Sequence[int], tab: str = "") -> None:
        """Remove labels."""
        self._add("clear", self.checked(rows), tab=tab)

    def skip(self, rows: Sequence[int], tab: str = "") -> None:
        """Skip rows: they are not suggested again."""
        self._add("skip", self.checked(rows), tab=tab)

    def add_class(self, name: str, tab: str = "") -> int:
        """Add a class, and return its number."""
        with self.guard:
            code = self._known
            self._add("class", code=code, name=free_name(name, self.classes), tab=tab)
            return code

    def rename_class(self, code: int, name: str, tab: str = "") -> None:
        """Give a class another name; its labels stay."""
        with self.guard:
            self.check_class(code)
            self._add("rename", code=code, name=free_name(name, self.classes, code), tab=tab)

    def merge_class(self, code: int, into: int, tab: str = "") -> None:
        """Give the labels of a class to another, and remove the class."""
        with self.guard:
            self.check_class(code)
            self.check_class(into)
            if code == into:
                raise ValueError(f"A class cannot be merged into itself: {self.classes[code]!r}. Choose another.")
            self._add("merge", code=code, target=into, tab=tab)

    def undoable(self, others: Collection[str] = ()) -> Change | None:
        """The last change that can be undone and is not one of ``others``, tabs that are open."""
        with self.guard:
            return next((change for change in reversed(self._standing.values()) if change.tab not in others), None)

    def undo(self, others: Collection[str] = (), tab: str = "") -> Change | None:
        """Undo the last change that is not one of ``others``, and return it; ``None`` where there is none.

        Raises:
            ConflictError: A later change of another tab needs it. Nothing is changed.
        """
        with self.guard:
            undone = self.undoable(others)
            if undone is None:
                return None
            self._add("undo", target=undone.n, tab=tab)
            later = (change for change in self._standing.values() if change.n > undone.n)
            if undone.what in LABELING and not any(change.what in LABELING for change in later):
                self._undone = self.saved
                self._fits = {labels: fit for labels, fit in self._fits.items() if fit.knows < undone.n}
                with contextlib.suppress(sqlite3.Error):
                    self._db.execute("delete from fit where knows >= ?", (undone.n,))
            return undone

    # ------------------------------------------------------------------------------------------ what a model makes

    def fits(self) -> list[Fit]:
        """The fits whose labels have not been undone, by number of labels."""
        with self.guard:
            labels = self.labels
            return [fit for _, fit in sorted(self._fits.items()) if fit.labels <= labels]

    def add_fit(self, fit: Fit) -> None:
        """Record a fit, unless its labels were undone meanwhile or a fit of the same ones is recorded.

        The latter happens at each start, where a model that begins anew estimates its accuracy a little differently.
        Labels do not depend on it, so that a full disk is no failure.
        """
        with self.guard, contextlib.suppress(sqlite3.Error):
            same = self._fits.get(fit.labels)
            if fit.knows < self._undone or (same is not None and same.knows == fit.knows):
                return
            predicted = fit.predicted.astype("<i4").tobytes()
            values = (fit.labels, fit.knows, fit.chosen, fit.accuracy, *fit.interval, predicted)
            self._db.execute("insert or replace into fit values (?, ?, ?, ?, ?, ?, ?)", values)
            self._fits[fit.labels] = fit

    def add_map(self, place: npt.NDArray[np.float32], learned: bool) -> None:
        """Keep the map [N, 2] for the next start; nothing depends on it."""
        with self.guard, contextlib.suppress(sqlite3.Error), self._transaction():
            self._db.execute("delete from map")
            self._db.execute("insert into map values (?, ?)", (learned, place.astype("<f4").tobytes()))

    def last_map(self) -> tuple[npt.NDArray[np.float32], bool] | None:
        """The map of the last start, and whether a fit had learned it; ``None`` if there is none of these points."""
        with self.guard:
            found = self._db.execute("select place, learned from map").fetchone()
        if found is None or not isinstance(found[0], bytes) or len(found[0]) != 8 * self.rows:
            return None
        return np.frombuffer(found[0], "<f4").reshape(-1, 2), bool(found[1])

    def check_in_place(self) -> None:
        """Raise a MovedError where a file of the store was moved, deleted or replaced: changes would be lost."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if all(os.path.samestat(os.stat(path), opened) for path, opened in self._files.items()):
                return
        raise MovedError(
            f"{self.path} was moved or deleted while the page was open. Put it back, or start sobgnn label again."
        )

    def close(self) -> None:
        """Close the file; another process may then open it."""
        with self.guard:
            self._db.close()

    # ------------------------------------------------------------------------------------------ within

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("begin immediate")
        try:
            yield
            self._db.execute("commit")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                self._db.execute("rollback")
            raise

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        """Say in one line why the file cannot be read."""
        try:
            yield
        except _DAMAGES as error:
            if "locked" in str(error):
                raise ValueError(
                    f"{self.folder} is being labeled in another window or process. Close that one, or name another "
                    "folder with --out."
                ) from None
            if "disk" in str(error) and "malformed" not in str(error):  # full, or read-only
                raise OSError(f"{self.path} cannot be written to: {error}.") from None
            raise ValueError(
                f"{self.path} is damaged: {error}. Put a copy back, or name another folder with --out."
            ) from None

    def _read(self) -> None:
        """All that the file holds; each change must fit those before."""
        self.meta: dict[str, Any] = {
            name: json.loads(value) for name, value in self._db.execute("select name, value from meta")
        }
        names = self.meta.get("classes", [])
        sound = all(isinstance(self.meta.get(name), kind) for name, kind in META.items()) or not self.meta
        if not (sound and all(isinstance(name, str) for name in names)):
            raise ValueError("it does not say what it is a labeling of")
        self.saved, self._undone, self._known = 0, 0, len(names)
        self._standing, self._fits = {}, {}
        self.withdrawn: set[int] = set()
        for values in self._db.execute("select * from change order by n"):
            change = Change(*values)._replace(rows=json.loads(values[2]))
            sound = change.n == self.saved + 1 and (change.what != "class" or change.code == self._known)
            rows = all(type(row) is int and row >= 0 for row in change.rows)
            if not (sound and rows and all(map(isinstance, values, CHANGE))):
                raise ValueError(f"change {change.n} does not fit those before")
            self._note(change)
        for values in self._db.execute("select * from fit"):
            labels, knows, chosen, accuracy, low, high, predicted = values
            if not all(map(isinstance, values, FIT)):
                raise ValueError("a fit has values of other types")
            self._fits[labels] = Fit(labels, accuracy, (low, high), np.frombuffer(predicted, "<i4"), knows, chosen)

    def _note(self, change: Change) -> None:
        """Add a change to those that stand, or remove the one that it takes back."""
        self.saved = change.n
        self._known += change.what == "class"
        if change.what == "undo":
            self.withdrawn.update(self._standing.pop(change.target).rows[:1])
        else:
            self._standing[change.n] = change
            if change.what == "clear":
                self.withdrawn.update(change.rows)

    def _add(self, what: str, rows: Sequence[int] = (), **more: Any) -> None:
        """Write one change, then take it into memory; if either fails, nothing has changed."""
        with self.guard:
            self.check_in_place()
            change = Change(self.saved + 1, what, list(rows), at=_now(), **more)
            marks = ", ".join("?" * len(change))
            try:
                with self._transaction():
                    self._db.execute(
                        f"insert into change values ({marks})", (*change[:2], json.dumps(change.rows), *change[3:])
                    )
                    self._note(change)
                    if what != "undo":
                        self.apply(change)
                    else:
                        self._replay()
                        if not self.consistent():  # of another tab's changes, only some may stand without it
                            raise ConflictError(
                                "The last change of this window stays: a later change in another window needs it. "
                                "Undo that first."
                            )
            except (sqlite3.Error, ConflictError) as error:
                self._read()
                self._replay()
                raise error if isinstance(error, ConflictError) else OSError(str(error)) from None

    def _replay(self) -> None:
        self.replay(self._given, self.meta["began"], self.meta["classes"], self._standing.values())


def _check_files(folder: Path) -> None:
    """Refuse links out of the folder, and what SQLite would follow: journals, which may name further files."""
    for path in folder.iterdir():
        check_inside(path, folder)
        if path.name.startswith(STORE):
            check_regular(path)
        if path.name == f"{STORE}-journal":
            raise ValueError(f"{path} is no file of a labeling, which keeps none. Remove it, or name another folder.")


def _schema(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Everything that a database defines, but for what SQLite makes itself."""
    return set(db.execute("select type, name, tbl_name, sql from sqlite_master where substr(name, 1, 7) <> 'sqlite_'"))


def _own_schema() -> set[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return _schema(db)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
