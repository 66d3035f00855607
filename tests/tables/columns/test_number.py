from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from sobgnn.tables.columns.base import from_plain, to_plain
from sobgnn.tables.columns.number import NumberColumn, NumberFormat, find_format, find_sentinels, parse_numbers


def encoded(column, series):
    """The features of a series, dense."""
    found = column.encode(column.parse(series).values)
    return found.toarray() if hasattr(found, "toarray") else found


@pytest.mark.parametrize(
    ("cells", "hint", "numbers"),
    [
        (["1,5", "2,25"], None, [1.5, 2.25]),
        (["1.234,5", "2"], None, [1234.5, 2]),
        (["1,234.5", "2"], None, [1234.5, 2]),
        (["1,234", "5,678"], None, [1234, 5678]),
        (["1,234", "5,678"], ",", [1.234, 5.678]),
        (["1.234", "5.678"], None, [1.234, 5.678]),
        (["1.234", "5.678"], ",", [1234, 5678]),
        (["1.005", "94", "998", "2.340"], None, [1005, 94, 998, 2340]),
        (["1.005", "94", "998"], ",", [1005, 94, 998]),
        (["1.005", "94", "998"], None, [1.005, 94, 998]),
        (["1.005", "94", "1998", "2.340"], None, [1.005, 94, 1998, 2.34]),
        (["1.005", "94", "2.34"], None, [1.005, 94, 2.34]),
        (["0.120", "94", "1.345"], None, [0.12, 94, 1.345]),
        (["0,123", "0,456"], None, [0.123, 0.456]),
        (["1'234'567", "12"], None, [1234567, 12]),
        (["12 %", "7%"], None, [12, 7]),
        (["€ 1.200,50", "€ 3,00"], None, [1200.5, 3]),
        (["5 km/h", "7 km/h"], None, [5, 7]),
        (["<5", "7", "> 9"], None, [5, 7, 9]),
        (["(5)", "7-", "−9"], None, [-5, -7, -9]),
        ([".5", "5."], None, [0.5, 5]),
        (["1e-3", "2E5"], None, [1e-3, 2e5]),
        (["-$5.00", "$7", "($9.50)", "+$1"], None, [-5, 7, -9.5, 1]),
        (["1.2k", "350", "2M"], None, [1200, 350, 2e6]),
        (["300 K", "310 K"], None, [300, 310]),  # all of them alike: a unit
        (["$5 per kg", "$7 per kg"], None, [5, 7]),
    ],
)
def test_numbers_are_read_as_people_write_them(cells, hint, numbers):
    text = pl.Series(cells)
    style, _ = find_format(text, hint)
    assert parse_numbers(text, style).values.tolist() == pytest.approx(numbers)


@pytest.mark.parametrize(
    "cells", [["a", "b"], ["5 kg", "7 g"], ["1.2.3", "4.5.6"], ["x126", "x127"], ["12:30", "13:00"]]
)
def test_what_is_no_column_of_numbers_is_left_to_others(cells):
    assert find_format(pl.Series(cells)) is None


def test_sentinels_are_far_repeated_and_at_the_end():
    assert find_sentinels(np.array([1.0, 2, 3, -999, -999])) == (-999.0,)
    assert find_sentinels(np.array([1.0, 2, 3, 9999, 9999])) == (9999.0,)
    assert find_sentinels(np.array([-1000.0, -998, -999, -999, 5])) == ()  # among its like
    assert find_sentinels(np.array([1.0, 2, 3, -999])) == ()  # once


def test_features_are_standardized_and_blanks_the_median():
    series = pl.Series("x", [1.0, None, 3.0, 8.0])
    choice = NumberColumn.fit(series, NumberFormat())
    known = np.array([1.0, 3, 8])
    expected = (np.array([1, 3, 3, 8]) - known.mean()) / known.std()
    np.testing.assert_allclose(encoded(choice.column, series), np.stack([expected, [0, 1, 0, 0]], axis=1), rtol=1e-6)
    assert choice.blank == 1


@pytest.mark.parametrize(
    ("fitted", "others"),
    [(["5 kg", "7 kg"], ["5 g", "5 lb", "5 ‰"]), (["€5", "€7"], ["$5", "5 kg"]), (["1,5", "2,5"], ["1,5 kg"])],
)
def test_a_number_in_another_unit_is_none(fitted, others):
    style, _ = find_format(pl.Series(fitted))
    assert not parse_numbers(pl.Series(others), style).read.any()
    assert parse_numbers(pl.Series([*fitted, "5"]), style).read.all()  # a bare number has the column's unit


def test_a_few_huge_cells_do_not_hide_all_others():
    values = np.arange(100.0)
    for huge in (1e9, 1e30):
        series = pl.Series("x", [*values, huge])
        choice = NumberColumn.fit(series, NumberFormat())
        X = encoded(choice.column, series)[:, 0]
        assert len(np.unique(X)) == 101
        assert X.std() < 3
        assert f"1 cell far beyond all others ({huge:g})" in choice.notes[0]
    heavy = pl.Series("x", np.exp(2 * np.random.default_rng(0).normal(size=300)))
    assert NumberColumn.fit(heavy, NumberFormat()).column.scale == pytest.approx(heavy.std(ddof=0))


def test_beyond_is_farther_from_the_fitted_values_than_these_are_from_one_another():
    column = NumberColumn.fit(pl.Series("x", [0.0, 4, 10, -999, -999]), NumberFormat()).column
    cells = pl.Series("x", [-10.0, -10.1, 20.0, 20.1, None, -999, float("inf")])
    assert column.beyond(column.parse(cells)).tolist() == [False, True, False, True, False, False, True]


@pytest.mark.parametrize("unit", [1e-100, 1e-27, 1.0, 1e30])
def test_a_column_is_standardized_whatever_its_unit(unit):
    values = np.random.default_rng(0).normal(3, 1, 100)
    column = NumberColumn.fit(pl.Series("x", values * unit), NumberFormat()).column
    found = encoded(column, pl.Series("x", values * unit))[:, 0]
    np.testing.assert_allclose(found, (values - values.mean()) / values.std(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mark", ["-", "k.A.", "<LOD"])
def test_a_word_in_up_to_half_of_the_cells_marks_missing_numbers(mark):
    numbers = [f"{i / 7:.3f}" for i in range(1, 101)]
    found = find_format(pl.Series([*numbers, *[mark] * 30]))
    assert found is not None
    assert np.flatnonzero(~parse_numbers(pl.Series([*numbers, mark]), found[0]).read).tolist() == [100]
    assert find_format(pl.Series([*numbers, *[mark] * 120])) is None  # most of the cells
    assert find_format(pl.Series([*numbers[:10], *[mark] * 5])) is None  # few numbers are categories
    assert found[0].marks == (mark,)
    assert find_format(pl.Series([*numbers, *["positive", "negative"] * 20])) is None  # several words say something
    assert find_format(pl.Series([*numbers, *["-", "k.A."] * 20])) is not None


PERCENT = NumberFormat(unit="%", plain=False)


def percents(*more):
    return pl.Series("p", [*(f"{v}%" for v in range(3, 98)), *more], dtype=pl.String)


def test_numbers_without_the_unit_that_all_had_are_doubtful_unless_they_are_of_the_same_size():
    choice = NumberColumn.fit(percents(), PERCENT)
    assert choice.notes == ["unit '%' removed"]
    column = choice.column
    column = from_plain(NumberColumn, json.loads(json.dumps(to_plain(column, {}))), {})
    assert column.unsigned(column.parse(pl.Series("p", ["0.664", "0.1", "12%", None]))).tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert column.unsigned(column.parse(pl.Series("p", [0.664, 0.1, None]))).tolist() == [True, True, False]
    assert not column.unsigned(column.parse(pl.Series("p", ["66.4", "10", "12%"]))).any()
    assert not column.unsigned(column.parse(pl.Series("p", ["66.4%", "0.1%"]))).any()


def test_a_column_that_was_fitted_without_units_here_and_there_says_so_and_doubts_nothing():
    choice = NumberColumn.fit(percents("0.25", "0.371"), PERCENT)
    column = choice.column
    assert choice.notes[1:] == [
        "2 numbers without '%' are read as if they had it, though they look like fractions of 1: use one form for all"
    ]
    assert not column.unsigned(column.parse(pl.Series("p", ["0.664"]))).any()
    assert NumberColumn.fit(percents("25", "37.1"), PERCENT).notes[1:] == [
        "2 numbers without '%' are read as if they had it"
    ]


def test_a_sentinel_needs_no_unit():
    choice = NumberColumn.fit(percents("-999", "-999"), PERCENT)
    column = choice.column
    assert choice.notes[1:] == ["-999 treated as blank 2 times"]
    assert not column.unsigned(column.parse(pl.Series("p", ["-999", "5%"]))).any()
