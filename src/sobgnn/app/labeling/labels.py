"""The labels, classes and skipped rows that the changes of a labeling make, in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns.base import BLANKS
from sobgnn.tables.labels import UNLABELED

# Without the letters of the page's other commands.
KEYS = "123456789abcdefghijklopqtvwxyz"
LONGEST_NAME = 200
# Parts of words in some scripts and of some emoji, though nothing of them is printed.
JOINERS = "\u200c\u200d"
# Names that the estimator, or a reader of labels.csv, would treat as unlabeled, in lower case; todo may be the state of
# a task.
NO_LABEL = {"-1", "none", *(name.lower() for name in BLANKS), *UNLABELED} - {"todo"}


class ConflictError(ValueError):
    """A row has another label than the one that the person saw."""


class Change(NamedTuple):
    """One act of a person; see the table of this name in ``store.py``."""

    n: int
    what: str
    rows: list[int]
    code: int = -1
    name: str = ""
    target: int = -1
    guess: int = -1
    guessed: bool = False
    audit: bool = False
    how: str = ""
    tab: str = ""
    at: str = ""


@dataclass(frozen=True)
class Label:
    """The label of one row.

    Args:
        code: Number of its class.
        when: UTC, ISO 8601.
        by: ``"file"`` (it was in DATA), ``"person"``, or ``"model"``: a person accepted the model's guess.
        audit: Whether the row was drawn at random and first labeled without seeing the guess.
        guess: Class that the model predicted before the row had a label; -1: none.
        change: Number of the change that gave it; 0 for labels of DATA.
        confirmed: Whether a person who saw the class gave it again.
    """

    code: int
    when: str
    by: Literal["file", "person", "model"]
    audit: bool = False
    guess: int = -1
    change: int = 0
    confirmed: bool = False


class Labels:
    """The labels of DATA, changed by every change in turn that was not undone.

    Attributes:
        guard: Held while a change is made; what is read while it is held is of one moment.
        codes: int32 [N], the class of each row; -1: no label.
        details: The labels that are not of DATA, or were confirmed, by row.
        classes: Name by number; numbers are never reused, so a rename changes no label.
        keys: The key of each class by its number, "" for none.
        skipped: Rows that were skipped.
        merges: Each standing merge: the class that is gone, and the one it went to.
    """

    def __init__(self) -> None:
        self.guard = threading.RLock()

    def replay(
        self, given: npt.NDArray[np.int32], began: str, classes: Iterable[str], changes: Iterable[Change]
    ) -> None:
        """Start with the labels of DATA [N], given at a time, of classes with these names, and apply changes."""
        self._given, self._began = given, began
        self.codes = given.copy()
        self.classes: dict[int, str] = {}
        self.keys: dict[int, str] = {}
        self.details: dict[int, Label] = {}
        self.skipped: set[int] = set()
        self.merges: list[tuple[int, int]] = []
        for code, name in enumerate(classes):
            self._name(code, name)
        for change in changes:
            self.apply(change)

    def apply(self, change: Change) -> None:
        """Add a change."""
        n, what, rows, code, name, target, guess, guessed, audit, *_ = change
        if what == "class" or (what == "rename" and code in self.classes):
            self._name(code, name)
        elif what == "merge":
            self.classes.pop(code, None)
            self.keys.pop(code, None)
            self.merges.append((code, target))
            self.codes[self.codes == code] = target
            into = {code: target}
            for row, label in self.details.items():
                if code in (label.code, label.guess):
                    both = into.get(label.code, label.code), into.get(label.guess, label.guess)
                    self.details[row] = replace(label, code=both[0], guess=both[1])
        for row in rows:
            had = self.label_of(row)
            if what == "label":
                first = (bool(audit), guess) if had is None else (had.audit, had.guess)
                again = had is not None and had.code == code
                self.codes[row] = code
                self.details[row] = Label(code, change.at, "model" if guessed else "person", *first, n, again)
                self.skipped.discard(row)
            elif what == "clear":
                self.codes[row] = -1
                self.details.pop(row, None)
            elif had is None:
                self.skipped.add(row)

    def _name(self, code: int, name: str) -> None:
        """Name a class; a digit is then its key, another name leaves its key, and a new one gets the first free."""
        self.classes[code] = name
        keyless = [] if code in self.keys else [code]
        if name in {"0", *KEYS[:9]}:
            keyless = [other for other, key in self.keys.items() if key == name and other != code]
            self.keys[code] = name
        for other in keyless:
            self.keys[other] = next((key for key in KEYS if key not in self.keys.values()), "")

    def consistent(self) -> bool:
        """Whether classes have names of their own, and labels are of classes that are there."""
        names = list(self.classes.values())
        return len(set(names)) == len(names) and set(np.unique(self.codes).tolist()) <= {-1, *self.classes}

    # ------------------------------------------------------------------------------------------ what there is

    @property
    def rows(self) -> int:
        """Number of rows of DATA."""
        return len(self._given)

    @property
    def labels(self) -> int:
        """Number of labels."""
        return int(np.count_nonzero(self.codes >= 0))

    def label_of(self, row: int) -> Label | None:
        """The label of a row."""
        with self.guard:
            code = int(self.codes[row])
            return None if code < 0 else self.details.get(row) or Label(code, self._began, "file")

    def labeled(self) -> list[tuple[int, Label]]:
        """Each row with a label, and the label."""
        with self.guard:
            rows = np.flatnonzero(self.codes >= 0).tolist()
            return [(row, label) for row in rows if (label := self.label_of(row)) is not None]

    def counts(self) -> npt.NDArray[np.int64]:
        """Number of labels of each class, by its number."""
        with self.guard:
            return np.bincount(self.codes[self.codes >= 0], minlength=max(self.classes, default=0) + 1)

    def used(self) -> set[int]:
        """Classes that have labels; a model whose labels were undone since may predict others."""
        return set(np.flatnonzero(self.counts()).tolist())

    def chosen(self) -> int:
        """Number of labels where those that one change gave to many rows count as one; those of DATA count each."""
        with self.guard:
            return self.labels - len(self.details) + len({label.change for label in self.details.values()})

    # ------------------------------------------------------------------------------------------ what may be asked

    def checked(self, rows: Sequence[int]) -> list[int]:
        """The rows in order; raises a ValueError if they are none."""
        if not isinstance(rows, list | tuple) or not rows:
            raise ValueError(f"`rows` must be a list of at least one row number, but got {_short(rows)}.")
        for row in rows:
            if type(row) is not int or not 0 <= row < self.rows:
                raise ValueError(f"Rows go from 0 to {self.rows - 1}, but got {_short(row)}.")
        return sorted(set(rows))

    def check_class(self, code: int) -> None:
        """Raise a ValueError if there is no such class."""
        if type(code) is not int or code not in self.classes:
            raise ValueError(f"There is no class {_short(code)}. Add it first.")

    def check_unchanged(self, rows: list[int], code: int, was: int | None) -> None:
        """Raise a ConflictError if a row has a label that is neither the new one nor the one that was seen."""
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


def free_name(name: object, classes: Mapping[int, str], code: int | None = None) -> str:
    """The name as it is stored; raises a ValueError if it is none, or that of another class than ``code``."""
    if not isinstance(name, str):
        raise ValueError(f"A class's name must be text, but got {_short(name)}.")
    name = "".join(c if c.isprintable() or c in JOINERS else " " for c in name)
    name = " ".join(filter(None, (word.strip(JOINERS) for word in name.split())))
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"A class's name must have 1 to {LONGEST_NAME} characters, but got {len(name)}.")
    if _visible(name).lower() in NO_LABEL:
        raise ValueError(f"A class cannot be called {name!r}, which means no label. Choose another name.")
    if any(_visible(other) == _visible(name) for number, other in classes.items() if number != code):
        raise ValueError(f"There is already a class {name!r}. Choose another name.")
    return name


def _visible(name: str) -> str:
    return name.translate(dict.fromkeys(map(ord, JOINERS)))


def _short(value: object) -> str:
    """A value for an error's line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
