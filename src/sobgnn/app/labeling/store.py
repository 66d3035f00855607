"""One labeling in one SQLite file: labels, classes, skipped rows, undo by window, fits."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from types import EllipsisType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import check_inside, check_regular
from sobgnn.app.labeling.names import free_name, short
from sobgnn.app.labeling.progress import Fit

STORE = "labels.db"
# What is written only after the store has begun.
LATER = ("labels.csv", "table.json", "predictions.csv", "report.html", "model")
# Without the letters of the page's other commands.
KEYS = "123456789abcdefghijklopqtvwxyz"

SCHEMA = """
create table meta (name text primary key, value text) without rowid;
create table change (                      -- one row for each act of a person, in their order
  n integer primary key,
  what text not null,                      -- label, clear, skip, class, rename, merge, undo
  code integer, name text,                 -- of the class
  target integer,                          -- the class that a merged one went to, or the change that was undone
  guessed integer not null,                -- whether a person accepted the model's guess
  audit integer not null,                  -- whether the row was drawn at random, and its guess not seen
  how text, tab text not null, at text not null,
  undone integer                           -- the change that took this one back
);
create table mark (                        -- the rows of a change; `guess` is what the model predicted before the label
  change integer not null, row integer not null, guess integer, primary key (change, row)
) without rowid;
create index mark_of_row on mark (row);
create table key (code integer primary key, key text not null);
create table fit (
  change integer not null, labels integer not null, chosen integer not null, accuracy real, low real not null,
  high real not null, seconds real not null, predicted blob not null
);
"""
# What the entries of ``meta`` are that a store needs, as JSON.
META = {"fingerprint": str, "began": str, "classes": list}
# In their order: an undone change, and the one that took it back, unless later changes of labels stay that were made
# between the two.
TAKEN_BACK = """
select c.n, c.undone from change c where c.undone is not null and c.what in ('label', 'clear', 'merge') and not exists (
  select 1 from change s where s.what in ('label', 'clear', 'merge') and s.n > c.n and s.n < c.undone
  and (s.undone is null or s.undone > c.undone))
"""

# Marks of rows that DATA does not have, and labels of classes with numbers that were never given.
NO_ROW = "select 1 from mark where row < 0 or row >= ? or typeof(row) != 'integer' limit 1"
NO_CLASS = """
select 1 from change where what = 'label' and (code < 0 or code >= ? or typeof(code) != 'integer') limit 1
"""
# Fits with values of other types than they are written with.
NO_FIT = """
select 1 from fit where length(predicted) % 4 != 0 or typeof(accuracy) not in ('real', 'null')
or typeof(change) || typeof(labels) || typeof(chosen) != 'integerintegerinteger'
or typeof(low) || typeof(high) || typeof(seconds) || typeof(predicted) != 'realrealrealblob' limit 1
"""


# What reading a damaged file can raise.
_DAMAGES = (
    sqlite3.Error, json.JSONDecodeError, KeyError, IndexError, TypeError, AttributeError, UnicodeError, OverflowError,
    RecursionError,
)  # fmt: skip


class ConflictError(ValueError):
    """A row has another label than the one that the person saw."""


class MovedError(OSError):
    """The store's file is no longer where it was opened."""


@dataclass(frozen=True)
class Label:
    """The label of one row.

    Args:
        code: Number of its class.
        when: UTC, ISO 8601.
        by: ``"file"`` (it was in DATA), ``"person"``, or ``"model"``: a person accepted the model's guess.
        audit: Whether the row was drawn at random and first labeled without seeing the guess.
        guess: Class that the model predicted before the row had a label, or ``None``.
        change: Number of the change that gave it; 0 for labels of DATA.
        confirmed: Whether a person who saw the class gave it again.
    """

    code: int
    when: str
    by: Literal["file", "person", "model"]
    audit: bool = False
    guess: int | None = None
    change: int = 0
    confirmed: bool = False


class Change(NamedTuple):
    """What a change was, for the words that say so."""

    what: str
    code: int | None
    name: str | None
    target: int | None
    tab: str
    rows: list[int]


class Store:
    """One labeling: every change is on disk before the method that makes it returns, and one process holds the file.

    Labels of DATA are not in the store: they are ``given`` again at each start, which the fingerprint guarantees to be
    the same.

    Args:
        folder: The run folder, created if it is missing; holds ``labels.db``.

    Attributes:
        guard: Held while a change is made; what is read while it is held is of one moment.
        saved: Number of the last change; everything up to it is on the disk.
        codes: int32 [N], the class of each row; -1: no label.
        details: The labels that are not of DATA, or were confirmed, by row.
        classes: Name by number; numbers are never reused, so a rename changes no label.
        keys: The key of each class by its number, "" for none.
        skipped: Rows that were skipped.
        merges: Each standing merge: its number, the class that is gone, and the one it went to.

    Raises:
        ValueError: Another process holds the store, it is damaged, or it is lost.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / STORE
        self.guard = threading.RLock()
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
        try:
            with self._damage():
                for pragma in ("trusted_schema=off", "locking_mode=exclusive"):
                    self._db.execute(f"pragma {pragma}")
                # Before anything reads the tables: a view or a trigger of others could be endless.
                if (found := _schema(self._db)) not in (set(), _own_schema()):
                    raise sqlite3.DatabaseError("its tables are not those of a labeling")
                for pragma in ("journal_mode=wal", "synchronous=full"):
                    self._db.execute(f"pragma {pragma}")
                if self._db.execute("pragma quick_check(1)").fetchone()[0] != "ok":
                    raise sqlite3.DatabaseError("its pages do not fit together")
                with self._transaction():
                    if not found:
                        for statement in SCHEMA.split(";\n"):
                            self._db.execute(statement)
                self.meta: dict[str, Any] = {
                    name: json.loads(value) for name, value in self._db.execute("select name, value from meta")
                }
                if self.meta and not all(isinstance(self.meta.get(name, ...), kinds) for name, kinds in META.items()):
                    raise KeyError("it does not say what it is a labeling of")
            self._files = {path: os.stat(path) for path in (self.path, Path(f"{self.path}-wal"))}
        except BaseException:
            self._db.close()
            raise
        self.saved = 0
        self.classes: dict[int, str] = {}
        self.keys: dict[int, str] = {}

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
        with self._transaction():
            if anew:
                for table in ("meta", "change", "mark", "key", "fit"):
                    self._db.execute(f"delete from {table}")
            if anew or had is None:
                self.meta = {**meta, "began": _now(), "classes": [str(name) for name in classes]}
                held = [(name, json.dumps(value)) for name, value in self.meta.items()]
                self._db.executemany("insert into meta values (?, ?)", held)
        self._given = codes.astype(np.int32)
        with self._damage():
            self._load()

    @property
    def rows(self) -> int:
        """Number of rows of DATA."""
        return len(self._given)

    @property
    def labels(self) -> int:
        """Number of labels."""
        return int(np.count_nonzero(self.codes >= 0))

    @property
    def touched(self) -> bool:
        """Whether a person has labeled anything that stands; known before :meth:`begin`."""
        labeled = "select 1 from change where what = 'label' and undone is null limit 1"
        with self.guard, self._damage():
            return self._db.execute(labeled).fetchone() is not None

    def label_of(self, row: int) -> Label | None:
        """The label of a row."""
        with self.guard:
            code = int(self.codes[row])
            if code < 0:
                return None
            return self.details.get(row) or Label(code, self.meta["began"], "file")

    def labeled(self) -> list[tuple[int, Label]]:
        """Each row with a label, and the label."""
        with self.guard:
            rows = [int(row) for row in np.flatnonzero(self.codes >= 0)]
            return [(row, label) for row in rows if (label := self.label_of(row)) is not None]

    def used(self) -> set[int]:
        """Classes that have labels; a model whose labels were undone since may predict others."""
        with self.guard:
            return {int(code) for code in np.flatnonzero(self.counts())}

    def snapshot(self) -> tuple[int, npt.NDArray[np.int32], list[int], dict[int, str], int]:
        """For a fit, of one moment: ``saved``, ``codes``, ``skipped``, ``classes`` and :meth:`chosen`."""
        with self.guard:
            return self.saved, self.codes.copy(), sorted(self.skipped), dict(self.classes), self.chosen()

    def counts(self) -> npt.NDArray[np.int64]:
        """Number of labels of each class, by its number."""
        with self.guard:
            return np.bincount(self.codes[self.codes >= 0], minlength=max(self.classes, default=0) + 1)

    # ------------------------------------------------------------------------------------------ changes

    def label(
        self,
        rows: Sequence[int],
        code: int,
        *,
        guessed: bool = False,
        audit: bool = False,
        guesses: Mapping[int, int] | None = None,
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
            guesses: What the model predicted for a row before its label was known.
            how: The gesture that gave the label.
            was: The label that the person saw, ``None`` for none; if omitted, any label is replaced.
            tab: Which tab asks, here and below.

        Raises:
            ConflictError: A row has a label that is neither ``was`` nor the new one. Nothing is changed.
        """
        with self.guard:
            self._check_class(code)
            checked = self._checked(rows)
            if was is not ...:
                self._check_unchanged(checked, code, was)
            self._change("label", checked, guesses, code=code, guessed=guessed, audit=audit, how=how, tab=tab)

    def clear(self, rows: Sequence[int], tab: str = "") -> None:
        """Remove labels."""
        self._change("clear", self._checked(rows), tab=tab)

    def skip(self, rows: Sequence[int], tab: str = "") -> None:
        """Skip rows: they are not suggested again."""
        self._change("skip", self._checked(rows), tab=tab)

    def add_class(self, name: str, tab: str = "") -> int:
        """Add a class, and return its number."""
        with self.guard:
            (made,) = self._db.execute("select count(*) from change where what = 'class'").fetchone()
            code = len(self.meta["classes"]) + int(made)
            self._change("class", code=code, name=free_name(name, self.classes), tab=tab)
            return code

    def rename_class(self, code: int, name: str, tab: str = "") -> None:
        """Give a class another name; its labels stay."""
        with self.guard:
            self._check_class(code)
            self._change("rename", code=code, name=free_name(name, self.classes, code), tab=tab)

    def merge_class(self, code: int, into: int, tab: str = "") -> None:
        """Give the labels of a class to another, and remove the class."""
        with self.guard:
            self._check_class(code)
            self._check_class(into)
            if code == into:
                raise ValueError(f"A class cannot be merged into itself: {self.classes[code]!r}. Choose another.")
            self._change("merge", code=code, target=into, tab=tab)

    def undoable(self, others: Collection[str] = ()) -> int | None:
        """The last change that can be undone and is not one of ``others``, tabs that are open."""
        stands = "select n, tab from change where what <> 'undo' and undone is null order by n desc"
        with self.guard:
            return next((n for n, tab in self._db.execute(stands) if tab not in others), None)

    def undo(self, others: Collection[str] = (), tab: str = "") -> Change | None:
        """Undo the last change that is not one of ``others``, and return what it was; ``None`` where there is none.

        Raises:
            ConflictError: A later change of another tab needs it. Nothing is changed.
        """
        with self.guard:
            last = self.undoable(others)
            if last is None:
                return None
            fields = "select what, code, name, target, tab from change where n = ?"
            rows = [row for (row,) in self._db.execute("select row from mark where change = ?", (last,))]
            what, code, name, target, by = self._db.execute(fields, (last,)).fetchone()
            undone = Change(what, code, name, target, by, rows)
            self._change("undo", target=last, tab=tab)
            return undone

    def add_fit(self, fit: Fit) -> None:
        """Record a fit; labels do not depend on it, so that a full disk is no failure."""
        predicted = fit.predicted.astype("<i4").tobytes()
        values = (fit.knows, fit.labels, fit.chosen, fit.accuracy, *fit.interval, fit.seconds, predicted)
        with self.guard, contextlib.suppress(sqlite3.Error):
            self._db.execute("insert into fit values (?, ?, ?, ?, ?, ?, ?, ?)", values)

    # ------------------------------------------------------------------------------------------ what there is

    def fits(self) -> list[Fit]:
        """The fits whose labels have not been undone, by number of labels; of several with one number, the last."""
        with self.guard:
            taken_back = self._db.execute(TAKEN_BACK).fetchall()
            labels = self.labels
            found = self._db.execute("select * from fit where labels <= ? order by rowid", (labels,)).fetchall()
        last = {}
        for knows, number, chosen, accuracy, low, high, seconds, blob in found:
            if not any(change <= knows < undone for change, undone in taken_back):
                predicted = np.frombuffer(blob, "<i4")
                last[number] = Fit(number, accuracy, (low, high), seconds, predicted, knows, chosen)
        return [last[number] for number in sorted(last)]

    def withdrawn(self) -> set[int]:
        """Rows that were opened when a change was undone (the first of its rows), and rows that were cleared."""
        opened = "select min(row) from mark join change on n = change where undone is not null group by n"
        cleared = "select row from mark join change on n = change where what = 'clear'"
        with self.guard:
            return {row for (row,) in self._db.execute(f"{opened} union {cleared}")}

    def chosen(self) -> int:
        """Number of labels where those that one change gave to many rows count as one; those of DATA count each."""
        with self.guard:
            return self.labels - len(self.details) + len({label.change for label in self.details.values()})

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

    def _change(
        self, what: str, rows: Iterable[int] = (), guesses: Mapping[int, int] | None = None, *, tab: str, **more: Any
    ) -> None:
        """Write one change, then take it into memory; if either fails, nothing has changed."""
        values = {"guessed": False, "audit": False, **more, "what": what, "tab": tab, "at": _now()}
        names = ", ".join(values)
        with self.guard:
            self.check_in_place()
            try:
                with self._transaction():
                    n = self.saved + 1
                    marks = ", ".join("?" * len(values))
                    self._db.execute(f"insert into change (n, {names}) values (?, {marks})", (n, *values.values()))
                    told = guesses or {}
                    self._db.executemany("insert into mark values (?, ?, ?)", ((n, row, told.get(row)) for row in rows))
                    if what == "undo":
                        self._db.execute("update change set undone = ? where n = ?", (n, more["target"]))
                    self._take(n, what, more.get("target"))
            except sqlite3.Error as error:
                self._load()
                raise OSError(str(error)) from None
            except ConflictError:
                self._load()
                raise

    def _take(self, n: int, what: str, target: int | None) -> None:
        """Bring the memory up to date with change ``n``, looking only at what it touched."""
        if what == "undo":
            (what,) = self._db.execute("select what from change where n = ?", (target,)).fetchone()
        if what in ("class", "rename", "merge"):
            self._load()
        else:
            self._fold(f"where row in (select row from mark where change = {target if target is not None else n})")
        self.saved = n
        if target is not None:  # of another tab's changes, only some may stand without it
            names = list(self.classes.values())
            if len(set(names)) < len(names) or not self.used() <= set(self.classes):
                raise ConflictError(
                    "The last change of this window stays: a later change in another window needs it. Undo that first."
                )

    def _load(self) -> None:
        """Everything from the file."""
        self.saved, count = self._db.execute("select coalesce(max(n), 0), count(*) from change").fetchone()
        if self.saved != count:
            raise KeyError("a change is missing")
        self.classes = dict(enumerate(self.meta["classes"]))
        known = range(len(self.classes) + self.saved)
        self.merges: list[tuple[int, int, int]] = []
        of_classes = """
            select n, what, code, name, target from change
            where what in ('class', 'rename', 'merge') and undone is null order by n
        """
        for n, what, code, name, target in self._db.execute(of_classes):
            other = target if what == "merge" else code
            if code not in known or other not in known or not isinstance(name or "", str):
                raise KeyError("a class was never added")
            if what == "merge":
                if code == target:
                    raise KeyError("a class is merged into itself")
                self.classes.pop(code, None)
                self.merges.append((n, code, target))
            elif what == "class" or code in self.classes:
                self.classes[code] = name
        self._assign_keys()
        self.codes = self._given.copy()
        for _, gone, into in self.merges:
            self.codes[self.codes == gone] = into
        self.details: dict[int, Label] = {}
        self.skipped: set[int] = set()
        if self._db.execute(NO_ROW, (self.rows,)).fetchone() or self._db.execute(NO_CLASS, (len(known),)).fetchone():
            raise KeyError("a label is of a row or a class that was never there")
        if self._db.execute(NO_FIT).fetchone():
            raise KeyError("a fit is none")
        self._fold()

    def _fold(self, which: str = "") -> None:
        """What the standing changes make of the rows that they touched."""
        query = f"""
            select row, change, what, code, at, guessed, audit, guess, undone is not null
            from mark join change on n = change {which} order by row, change
        """
        rows: dict[int, list[Any]] = {}
        for row, *mark in self._db.execute(query):
            rows.setdefault(row, []).append(mark)
        merges = [(n, "merge", gone, into) for n, gone, into in self.merges]
        for row, marks in rows.items():
            self.skipped.discard(row)
            self.details.pop(row, None)
            given = int(self._given[row])
            label = None if given < 0 else Label(given, self.meta["began"], "file")
            for n, what, code, *more in sorted([*marks, *merges] if merges else marks, key=lambda mark: mark[0]):
                if what == "merge":
                    label = label and _merged(label, code, more[0])
                    continue
                at, guessed, audit, guess, undone = more
                if not isinstance(at, str):
                    raise KeyError("a time is no text")
                if undone:
                    continue
                if what == "label":
                    if label is not None:
                        audit, guess = label.audit, label.guess
                    again = label is not None and label.code == code
                    label = Label(code, at, "model" if guessed else "person", bool(audit), guess, n, again)
                    self.skipped.discard(row)
                elif what == "clear":
                    label = None
                elif label is None:
                    self.skipped.add(row)
            self.codes[row] = -1 if label is None else label.code
            if label is not None and label.change:
                self.details[row] = label

    def _assign_keys(self) -> None:
        """A class named by a digit has that digit as its key, another keeps its own, a new one gets the first free."""
        last = dict(self._db.execute("select code, key from key").fetchall())
        keys = {code: name for code, name in self.classes.items() if name in {"0", *KEYS[:9]}}
        # A class that is there comes before one that comes back.
        for code in sorted(self.classes, key=lambda code: code not in self.keys):
            if code not in keys and last.get(code) and last[code] not in keys.values():
                keys[code] = last[code]
        free = iter(key for key in KEYS if key not in keys.values())
        self.keys = {code: keys.get(code) or next(free, "") for code in self.classes}
        if self.keys.items() - last.items():
            self._db.executemany("insert or replace into key values (?, ?)", self.keys.items())

    def _checked(self, rows: Sequence[int]) -> list[int]:
        if not isinstance(rows, list | tuple) or not rows:
            raise ValueError(f"`rows` must be a list of at least one row number, but got {short(rows)}.")
        for row in rows:
            if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < self.rows:
                raise ValueError(f"Rows go from 0 to {self.rows - 1}, but got {short(row)}.")
        return sorted(set(rows))

    def _check_class(self, code: int) -> None:
        if isinstance(code, bool) or not isinstance(code, int) or code not in self.classes:
            raise ValueError(f"There is no class {short(code)}. Add it first.")

    def _check_unchanged(self, rows: list[int], code: int, was: int | None) -> None:
        now = self.codes[rows]
        changed = (now != code) & (now != (-1 if was is None else was))
        if not changed.any():
            return
        if len(rows) > 1:
            raise ConflictError(
                f"Nothing was changed: {changed.sum()} of the {len(rows)} rows got other labels in another tab "
                "meanwhile. Select them again."
            )
        what = "lost its label" if now[0] < 0 else f"was labeled {self.classes[int(now[0])]!r}"
        raise ConflictError(f"The row before {what} in another tab meanwhile; nothing was changed. Open it to edit.")


def _merged(label: Label, gone: int, into: int) -> Label:
    return replace(
        label, code=into if label.code == gone else label.code, guess=into if label.guess == gone else label.guess
    )


def _check_files(folder: Path) -> None:
    """Refuse files that SQLite would follow out of the folder: links, and journals, which may name further files."""
    for suffix in ("", "-wal", "-shm"):
        path = folder / f"{STORE}{suffix}"
        if os.path.lexists(path):
            check_inside(path, folder)
            check_regular(path)
    journal = folder / f"{STORE}-journal"
    if os.path.lexists(journal):
        raise ValueError(f"{journal} is no file of a labeling, which keeps none. Remove it, or name another folder.")


def _schema(db: sqlite3.Connection) -> set[tuple[str, ...]]:
    """Everything that a database defines, but for what SQLite makes itself."""
    return set(db.execute("select type, name, tbl_name, sql from sqlite_master where substr(name, 1, 7) <> 'sqlite_'"))


def _own_schema() -> set[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        return _schema(db)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
