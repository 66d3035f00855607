from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn.tables.numbers import NumberColumn, NumberFormat, find_format, find_sentinels, parse_numbers


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
        (["0,123", "0,456"], None, [0.123, 0.456]),
        (["1'234'567", "12"], None, [1234567, 12]),
        (["12 %", "7%"], None, [12, 7]),
        (["€ 1.200,50", "€ 3,00"], None, [1200.5, 3]),
        (["5 km/h", "7 km/h"], None, [5, 7]),
        (["<5", "7", "> 9"], None, [5, 7, 9]),
        (["(5)", "7-", "−9"], None, [-5, -7, -9]),
        ([".5", "5."], None, [0.5, 5]),
        (["1e-3", "2E5"], None, [1e-3, 2e5]),
    ],
)
def test_numbers_are_read_as_people_write_them(cells, hint, numbers):
    text = pl.Series(cells)
    style, _ = find_format(text, hint)
    assert parse_numbers(text, style).to_list() == pytest.approx(numbers)


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
    column, _, blank = NumberColumn.fit(series, NumberFormat())
    known = np.array([1.0, 3, 8])
    expected = (np.array([1, 3, 3, 8]) - known.mean()) / known.std()
    np.testing.assert_allclose(column.encode(series), np.stack([expected, [0, 1, 0, 0]], axis=1), rtol=1e-6)
    assert blank == 1
