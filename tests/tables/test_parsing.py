"""Every cell is parsed once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from sobgnn.tables import TableEncoder
from sobgnn.tables.columns import category, date, number, number_format, vector

ROWS = 60
TABLE = {
    "price": [f"{i / 7:.2f} €".replace(".", ",") for i in range(ROWS)],
    "size": [f"{i * 37 % 59} kg" for i in range(ROWS)],
    "plain": [f"{i / 9:.3f}" for i in range(ROWS)],
    "day": [f"{i % 28 + 1:02}.{i % 12 + 1:02}.2024 10:{i % 60:02}" for i in range(ROWS)],
    "color": [("red", "blue", "Red")[i % 3] for i in range(ROWS)],
    "tags": [("a; b", "b; c", "c; d; e", "a")[i % 4] + f"; t{i % 25}" for i in range(ROWS)],
    "place": [f"[{i / 3:.2f}, {i % 7}]" for i in range(ROWS)],
}
# By module, the functions that parse a column's cells.
PARSERS = {
    number: "parse_numbers", date: "parse_dates", category: "_item_lists", vector: "as_lists",
}  # fmt: skip


@pytest.fixture
def parsed(monkeypatch):
    """How many cells each column has handed to a parser, and how many were stripped of blanks and spaces."""
    count = Counter()

    def counting(function, key):
        def counted(series, *arguments, **keywords):
            count[key, series.name] += series.len()
            return function(series, *arguments, **keywords)

        return counted

    for module, name in PARSERS.items():
        monkeypatch.setattr(module, name, counting(getattr(module, name), "parsed"))
    for module in (number_format, date, category, vector):
        monkeypatch.setattr(module, "text_values", counting(module.text_values, "stripped"))
    return count


def test_every_cell_is_parsed_and_stripped_once_when_a_table_is_encoded(parsed):
    encoder = TableEncoder().fit(TABLE)
    kinds = ["number"] * 3 + ["date", "categories", "set", "vectors"]
    assert list(encoder.outcomes_.values()) == kinds
    parsed.clear()
    encoder.transform(TABLE)
    stripped = {name: count for (key, name), count in parsed.items() if key == "stripped"}
    assert stripped == {name: ROWS for name in TABLE if name != "plain"}  # which holds no blanks to look for
    assert {name: count for (key, name), count in parsed.items() if key == "parsed"} == {
        name: ROWS for name in TABLE if name != "color"
    }


def test_a_fit_reads_each_cell_once_after_its_kind_is_found(parsed):
    X = TableEncoder().fit_transform(TABLE)
    assert np.isfinite(X).all()
    cells = {name: count for (key, name), count in parsed.items() if key == "parsed"}
    assert cells == {"price": ROWS, "size": ROWS, "plain": ROWS, "day": ROWS, "tags": 2 * ROWS}  # the sign is sought
