"""Codes with leading zeros, and whole numbers that tell rows apart."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn.tables import TableEncoder
from sobgnn.tables.kinds import are_codes, looks_like_id

CITIES = ["01067", "04109", "10115", "20095", "50667", "80331"]


def text(cells):
    return pl.Series("x", cells, dtype=pl.String)


def fitted(cells, name="x"):
    rng = np.random.default_rng(0)
    encoder = TableEncoder().fit({name: cells, "size": rng.normal(size=len(cells))})
    return encoder.outcomes_[name], encoder.notes_


def test_few_codes_with_leading_zeros_are_categories_and_a_note_says_so():
    outcome, notes = fitted(CITIES * 10)
    assert outcome == "categories"
    assert any(note.startswith("Column x: whole numbers with leading zeros are codes") for note in notes)


def test_many_codes_with_leading_zeros_are_short_text():
    codes = [f"{7 * i + 900:05}" for i in range(300)]
    outcome, notes = fitted([codes[i % 250] for i in range(300)])
    assert outcome == "short text"
    assert any("leading zeros" in note for note in notes)


def test_codes_with_leading_zeros_that_are_all_different_are_ids():
    assert looks_like_id(text([f"{131 * i + 13:06}" for i in range(50)]))
    assert not looks_like_id(text([str(131 * i + 13) for i in range(50)]))


def test_a_few_words_beside_codes_leave_them_codes():
    assert are_codes(text([*CITIES * 10, "unknown"]))


@pytest.mark.parametrize(
    "cells",
    [
        ["0.5", "01.5", "12.0"] * 9,
        ["01/02", "03/04", "11/05"] * 9,
        ["10", "11", "007"] * 9,  # one that may be a slip
        ["0", "5", "12", "120"] * 9,
        ["00000", "00120", "00043", "02000"] * 9,  # amounts in a field of fixed width
        ["-01", "+02", "003"] * 9,
        ["01", "0002", "100", "99999", "7777777"] * 9,  # of no common width
    ],
)
def test_numbers_and_dates_are_no_codes(cells):
    assert not are_codes(text(cells))


@pytest.mark.parametrize("name", ["Kunden-Nr", "Kundennummer", "nr", "No.", "number", "key", "CustomerNo", "order id"])
def test_whole_numbers_that_are_all_different_and_called_so_are_ids(name):
    cells = [(i * 7919) % 90000 + 10000 for i in range(60)]
    assert fitted(cells, name)[0] == "id"
    assert fitted([str(cell) for cell in cells], name)[0] == "id"
    cells[1] = cells[0]
    assert fitted(cells, name)[0] == "id"  # nearly all
    assert fitted([cell % 9 for cell in cells], name)[0] == "number"
    assert fitted([cell + 0.5 for cell in cells], name)[0] == "number"


@pytest.mark.parametrize("name", ["piano", "monkey", "amount", "Casino", "renumbered"])
def test_whole_numbers_with_another_name_are_numbers(name):
    assert fitted([(i * 7919) % 90000 + 10000 for i in range(60)], name)[0] == "number"


def test_a_count_of_a_few_rows_is_no_id():
    assert fitted([(i * 7919) % 90000 + 10000 for i in range(12)], "number")[0] == "number"
