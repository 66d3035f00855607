"""Sentences about a table's columns: how each was read, and what was left out."""

from __future__ import annotations

from sobgnn.tables.columns.base import Choice
from sobgnn.tables.columns.names import listed, listed_counts
from sobgnn.tables.text import MeaningColumn


def empty_notes(count: int, first: int) -> list[str]:
    """A sentence about rows that are entirely empty, if there are any; ``first`` is the number of the first."""
    return [f"Empty rows, whose predictions mean nothing: {count:,} (first: row {first})."] if count else []


def column_notes(choices: dict[str, Choice]) -> list[str]:
    """One sentence for each thing that users may not expect, from the choices made for the columns, by name."""
    by: dict[str, list[str]] = {}
    for name, choice in choices.items():
        by.setdefault(choice.outcome, []).append(name)
    widths = {n: len(c.column.feature_names()) for n, c in choices.items() if c.column is not None}
    notes = []
    for outcome, words in (
        ("text", "Text, by its words"),
        ("short text", "Short text, by its characters"),
        ("date", "Dates"),
        ("categories", "One-hot encoded"),
        ("set", "Lists of values, one feature each"),
        ("vectors", "Vectors"),
        ("pictures", "Pictures"),
    ):
        if outcome in by:
            notes.append(f"{words}: {listed_counts([(name, widths.get(name, 0)) for name in by[outcome]], 'feature')}.")
    for name in by.get("text model", []):
        column = choices[name].column
        if isinstance(column, MeaningColumn):
            features = listed_counts([(name, widths[name])], "feature")
            notes.append(f"Text, by words and meaning ({column.model.name}): {features}.")
    if "id" in by:
        notes.append(f"Left out, ids: {listed(by['id'])}.")
    same = [name for outcome in ("constant", "empty") for name in by.get(outcome, [])]
    if same:
        notes.append(f"Left out, constant or empty: {listed(same)}.")
    for outcome in ("bytes", "vectors of different lengths", "lists of other things", "too large"):
        if outcome in by:
            notes.append(f"Left out, {outcome}: {listed(by[outcome])}.")
    filled = [(name, choice.blank) for name, choice in choices.items() if choice.blank and choice.column]
    if filled:
        notes.append(f"Missing values filled with the column's median: {listed_counts(filled, 'cell')}.")
    for name, choice in choices.items():
        if choice.notes:
            notes.append(f"Column {listed([name])}: {'; '.join(choice.notes)}.")
    return notes
