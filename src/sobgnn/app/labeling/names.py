"""Names of classes that a person may type."""

from __future__ import annotations

from collections.abc import Mapping

from sobgnn.tables.columns.base import BLANKS
from sobgnn.tables.labels import UNLABELED

LONGEST_NAME = 200
# Parts of words in some scripts and of some emoji, though nothing of them is printed.
JOINERS = "\u200c\u200d"
# Names that the estimator, or a reader of labels.csv, would treat as unlabeled, in lower case; todo may be the state of
# a task.
NO_LABEL = {"-1", "none", *(name.lower() for name in BLANKS), *UNLABELED} - {"todo"}


def free_name(name: object, classes: Mapping[int, str], code: int | None = None) -> str:
    """The name as it is stored; raises a ValueError if it is none, or that of another class than ``code``."""
    if not isinstance(name, str):
        raise ValueError(f"A class's name must be text, but got {short(name)}.")
    name = "".join(c if c.isprintable() or c in JOINERS else " " for c in name)
    name = " ".join(filter(None, (word.strip(JOINERS) for word in name.split())))
    if not 0 < len(name) <= LONGEST_NAME:
        raise ValueError(f"A class's name must have 1 to {LONGEST_NAME} characters, but got {len(name)}.")
    if _visible(name).lower() in NO_LABEL:
        raise ValueError(f"A class cannot be called {name!r}, which means no label. Choose another name.")
    if any(_visible(other) == _visible(name) for number, other in classes.items() if number != code):
        raise ValueError(f"There is already a class {name!r}. Choose another name.")
    return name


def short(value: object) -> str:
    """A value for an error's line."""
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def _visible(name: str) -> str:
    return name.translate(dict.fromkeys(map(ord, JOINERS)))
