"""Names of columns, and values and numbers in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl


def clean_names(frame: pl.DataFrame) -> pl.DataFrame:
    """The same table with spaces around column names removed, if names stay distinct."""
    names = [name.strip() for name in frame.columns]
    return frame.rename(dict(zip(frame.columns, names, strict=True))) if len(set(names)) == len(names) else frame


def distinct_names(names: Sequence[Any]) -> list[str]:
    """Column names as text, without surrounding spaces; empty ones are numbered, repeated ones suffixed (a, a_2)."""
    out: list[str] = []
    taken: set[str] = set()
    for number, name in enumerate(names, start=1):
        base = "" if name is None else str(name).strip()
        base = base or f"column_{number}"
        unique, count = base, 2
        while unique in taken:
            unique, count = f"{base}_{count}", count + 1
        taken.add(unique)
        out.append(unique)
    return out


def label_names(columns: Sequence[str]) -> list[str]:
    """Columns that are labels by their name: label, y, class or target, in this order of preference."""
    lower = {name.strip().lower(): name for name in reversed(columns)}
    return [lower[name] for name in ("label", "y", "class", "target") if name in lower]


def shortened(value: object, most: int = 40) -> str:
    """The value's repr, shortened to fit in a line."""
    if isinstance(value, str):
        value = value[: most + 1]
    text = repr(value)
    return text if len(text) <= most else text[: most - 1] + "…"


def listed(names: Sequence[str], most: int = 6) -> str:
    """The first names of a list, and how many more there are."""
    shown = ", ".join(" ".join(shortened(name)[1:-1].split()) for name in names[:most])
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def listed_counts(counts: Iterable[tuple[str, int]], what: str, most: int = 6) -> str:
    """The first names of a list, each with its number of things, such as color (3 features)."""
    pairs = list(counts)
    shown = ", ".join(f"{listed([name])} ({counted(count, what)})" for name, count in pairs[:most])
    return shown + (f" and {len(pairs) - most:,} more" if len(pairs) > most else "")


def counted(count: int, what: str) -> str:
    """A number of things, such as 1 class or 2,000 classes."""
    return f"{count:,} {what}" + ("" if count == 1 else "es" if what.endswith("s") else "s")


def empty_notes(count: int, first: int) -> list[str]:
    """A sentence about rows that are entirely empty, if there are any; ``first`` is the number of the first."""
    return [f"Empty rows, whose predictions mean nothing: {count:,} (first: row {first})."] if count else []
