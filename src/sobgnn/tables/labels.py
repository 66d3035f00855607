"""The label column: codes and the classes they stand for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import BLANKS, is_text, text_values
from sobgnn.tables.columns.names import counted

# A column with more distinct values than this, most of them in a single row, does not hold classes.
_MANY = 20
# Labels that mean unlabeled, in any capitals.
UNLABELED = (
    "unlabeled", "unlabelled", "not labeled", "not labelled", "n.a.", "n. a.", "k.a.", "k. a.", "tbd", "tba", "tbc",
    "todo", "??", "???",
)  # fmt: skip
# Beside one of these, todo is a class: the column holds the state of tasks.
_STATES = ("done", "doing", "in progress")
# Names that may mean unlabeled, but may also be classes.
_UNSAID = (
    "none", "-", "--", "---", "–", "—", ".", "...", "unknown", "unbekannt", "undefined", "unassigned", "missing", "nil",
)  # fmt: skip
# Share of distinct values from which many integers are measurements and not classes, unless they fill at least
# half of their range, as codes do.
_MEASURED = 0.8
# Integers as programs write them. 007 and 01 are names: their zeros would be lost.
_WHOLE = r"^[+-]?(?:0|[1-9]\d{0,14})(?:\.0*)?$"
# A class may be a misspelling of another: the maximum number of its labels, how many times as many the other must have,
# and the least length of the shorter name. The last is the maximum number of classes whose names are compared.
_TYPOS, _TIMES, _LETTERS, _COMPARED = 3, 3, 5, 200
_FRACTION = r"^[+-]?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$"


def label_texts(series: pl.Series) -> tuple[pl.Series, list[str]]:
    """Labels as text, null for unlabeled rows.

    Also returns a sentence about labels such as NA and unlabeled, which count as blank but may be the name of a class,
    if there are any.
    """
    text = text_values(series)
    if not is_text(series):
        return text, []
    written = series.cast(pl.String).str.strip_chars()
    blank = written.is_in([blank for blank in BLANKS if blank]).fill_null(False)
    lower = written.str.to_lowercase()
    unlabeled = lower.is_in(UNLABELED).fill_null(False)
    if lower.is_in(_STATES).any():
        unlabeled &= (lower != "todo").fill_null(True)
    counts = Counter(written.filter(blank | unlabeled).to_list())
    if not counts:
        return text, []
    cells = [f"{value!r} ({counted(count, 'row')})" for value, count in counts.most_common()]
    note = (
        f"Labels that count as blank, so that their rows are unlabeled: {', '.join(cells)}. If one is a class, "
        "give it another name."
    )
    return text.zip_with(~unlabeled, pl.Series([None], dtype=pl.String)), [note]


def parse_labels(
    series: pl.Series, name: str, begun: bool = False
) -> tuple[npt.NDArray[np.int64], list[str] | list[int], list[str]]:
    """Codes [N] with -1 for unlabeled rows, the classes they stand for, and notes.

    Integers stay numbers, anything else is text: if one label is written 007, all are text. Blank cells are
    unlabeled. In a column without any, -1 among integers means unlabeled too, unless only one other class would be
    left (-1 and 1 are then the two classes) or there are other negative numbers (-2, -1, 0, ... are then all classes).
    A column that a person is still filling, ``begun``, may be empty or hold one class.
    """
    if series.dtype.is_nested() or series.dtype in (pl.Binary, pl.Object):
        raise ValueError(f"The label column {name!r} must hold text or numbers, but holds {series.dtype}.")
    text, notes = label_texts(series)
    if begun:
        text, said = _without_minus(text)
        notes += said
        if text.drop_nulls().n_unique() < 2:
            return np.where(text.is_null().to_numpy(), -1, 0), text.drop_nulls().unique().to_list(), notes
    known = text.drop_nulls()
    if not known.len():
        empty = (
            f"The label column {name!r} is empty. Give at least one row of each class its label; `sobgnn label` opens "
            "a page for that."
        )
        raise ValueError(" ".join([empty, *notes]))
    distinct: list[Any] = known.unique().sort().to_list()
    values = pl.Series(distinct, dtype=pl.String)
    number = values.cast(pl.Float64, strict=False)
    numbers = not number.null_count()
    whole = numbers and bool((number == number.round()).all()) and bool(values.str.contains(_WHOLE).all())
    _check_classes(text, number, name, whole=whole)
    keys = text
    if whole:
        keys, distinct, said = _integer_classes(text)
        notes += said
    elif numbers and bool(values.str.contains(_FRACTION).all()):
        keys, distinct = _spelled_once(text, distinct)
    elif "-1" in distinct and len(distinct) > 2 and number.is_not_null().sum() == 1:
        notes.append(f"Rows with label -1 count as unlabeled: {(keys == '-1').sum():,}.")
        keys, distinct = keys.replace("-1", None), [value for value in distinct if value != "-1"]
    notes += _name_notes(keys, distinct)
    if len(distinct) < 2:
        alone = f"The label column {name!r} holds a single class, {distinct[0]!r:.60}. At least two are needed."
        raise ValueError(" ".join([alone, *notes]))
    codes = keys.replace_strict(distinct, list(range(len(distinct))), default=-1, return_dtype=pl.Int64)
    return codes.to_numpy().astype(np.int64), distinct, notes


def _check_classes(text: pl.Series, number: pl.Series, name: str, *, whole: bool) -> None:
    """Raise if labels, of which ``number`` are the distinct ones as numbers, look like measurements or ids."""
    labeled, distinct = text.len() - text.null_count(), number.len()
    if not whole and not number.null_count() and distinct > _MANY and bool((number != number.round()).any()):
        raise ValueError(
            f"The label column {name!r} holds {distinct:,} distinct fractions, which look like measurements. "
            "Name a column of classes with --label."
        )
    many = whole and distinct > _MANY and distinct > _MEASURED * labeled
    if many and float(np.ptp(number.to_numpy())) >= 2 * distinct:
        raise ValueError(
            f"The label column {name!r} holds {distinct:,} distinct whole numbers in {labeled:,} labeled "
            "rows, which look like measurements. Name a column of classes with --label."
        )
    # Ids fill every row; one label per class among many unlabeled rows does not.
    if distinct > _MANY and 2 * distinct > labeled > text.len() / 2:
        raise ValueError(
            f"The label column {name!r} holds {distinct:,} distinct values in {labeled:,} labeled rows, "
            "which look like ids. Name a column of classes with --label."
        )


def _without_minus(text: pl.Series) -> tuple[pl.Series, list[str]]:
    """Labels without -1, which is unlabeled in a begun column unless a cell is blank or 1 is the only other class."""
    minus = text.str.contains(r"^-1(?:\.0*)?$").fill_null(False)
    others = text.filter(~minus).drop_nulls().unique()
    numbers = bool(others.str.contains(_WHOLE).all())
    if others.len() and numbers and (text.null_count() or not set(others.to_list()) - {"1", "1.0"}):
        return text, []
    note = f"Rows with label -1 count as unlabeled: {minus.sum():,}. If -1 is a class, give it a name."
    return text.zip_with(~minus, pl.Series([None], dtype=pl.String)), [note] if minus.any() else []


def _integer_classes(text: pl.Series) -> tuple[pl.Series, list[Any], list[str]]:
    """Labels that are integers, null for unlabeled rows; their classes; and what -1 was taken for, if there is any."""
    keys = text.cast(pl.Float64).cast(pl.Int64)
    distinct: list[Any] = keys.drop_nulls().unique().sort().to_list()
    others = [value for value in distinct if value != -1]
    notes = []
    if len(others) < len(distinct):
        if len(others) > 1 and others[0] >= 0 and not text.null_count():
            count = (keys == -1).sum()
            notes.append(f"Rows with label -1 count as unlabeled: {count:,}. If -1 is a class, give it a name.")
            return keys.replace(-1, None), others, notes
        if text.null_count() and others and others[0] >= 0 and others != [1]:
            notes.append("-1 is a class, since blank cells mark the unlabeled rows.")
        elif others == [1]:
            notes.append(unsaid_note(-1, int((keys == -1).sum())))
    if distinct[0] < 0:  # the estimator reserves negative integers
        return keys.cast(pl.String), [str(value) for value in distinct], notes
    return keys, distinct, notes


def _spelled_once(text: pl.Series, distinct: list[str]) -> tuple[pl.Series, list[str]]:
    """Numbers in one spelling each, the shorter one: 1 and 1.0 are one class, also beside 1.5."""
    spelled = {float(value): value for value in sorted(distinct, key=len, reverse=True)}
    if len(spelled) == len(distinct):
        return text, distinct
    return text.replace({value: spelled[float(value)] for value in distinct}), sorted(spelled.values())


def _name_notes(keys: pl.Series, distinct: list[Any]) -> list[str]:
    """Sentences about classes whose names are nearly the same, or may mean unlabeled."""
    notes = []
    alike = {str(value).casefold(): str(value) for value in distinct}
    if len(alike) < len(distinct):
        first = next(value for value in map(str, distinct) if alike[value.casefold()] != value)
        notes.append(
            f"Classes that differ only in capitals, such as {first!r} and {alike[first.casefold()]!r}, are different "
            "classes. Spell them the same to merge them."
        )
    notes += _misspelled(Counter(keys.drop_nulls().cast(pl.String).to_list()))
    return notes + [unsaid_note(value, int((keys == value).sum())) for value in unsaid_classes(distinct)]


def unsaid_classes(classes: Sequence[Any]) -> list[Any]:
    """Classes whose name may mean unlabeled."""
    return [v for v in classes if str(v).lower() in _UNSAID and not (v == "-" and "+" in classes)]


def unsaid_note(name: Any, count: int) -> str:
    """A sentence about a class whose name may mean unlabeled."""
    return f"Treated as a class: {str(name)!r} ({counted(count, 'row')}). If it means unlabeled, leave the cell empty."


def _misspelled(counts: Counter[str]) -> list[str]:
    """Sentences about rare classes whose name differs from a common one by one letter."""
    if len(counts) > _COMPARED:
        return []
    notes = []
    for rare, few in counts.items():
        for common, many in counts.items():
            if few <= _TYPOS and many >= _TIMES * few and _one_edit(rare, common):
                notes.append(
                    f"{rare!r} ({few:,} label{'s' if few > 1 else ''}) looks like a misspelling of {common!r} "
                    f"({many:,} labels), but is a class of its own. Spell them alike to make them one."
                )
    return notes


def _one_edit(a: str, b: str) -> bool:
    """Whether two names differ by one letter that is missing, added or another, or by two that are swapped."""
    if min(len(a), len(b)) < _LETTERS or abs(len(a) - len(b)) > 1:
        return False
    at = next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    swapped = a[at : at + 2] == b[at : at + 2][::-1] and a[at + 2 :] == b[at + 2 :]
    other = a[at + (len(a) >= len(b)) :] == b[at + (len(b) >= len(a)) :]
    # A number or a letter of its own is meant, as in week1 and week2, type A and type B, or typeA and typeB.
    letters, around = a[at : at + 1] + b[at : at + 1], (a[at - 1 : at], a[at + 1 : at + 2])
    meant = not letters.isalpha() or not any(map(str.isalpha, around)) or (letters.isupper() and not (a + b).isupper())
    return a.casefold() != b.casefold() and not meant and (swapped or other)
