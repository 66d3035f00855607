from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from sobgnn.tables import TableEncoder
from sobgnn.tables.columns.category import CategoryColumn, SetColumn, find_sets


def encoded(column, series):
    """The features of a series, dense."""
    found = column.encode(column.parse(series).values)
    return found.toarray() if hasattr(found, "toarray") else found


def fit(*counts: tuple[str | None, int], rare_below: int) -> CategoryColumn | None:
    cells = pl.Series("c", [value for value, count in counts for _ in range(count)], dtype=pl.String)
    return CategoryColumn.fit("c", cells, rare_below).column


def test_each_value_that_is_frequent_enough_has_a_feature_and_the_others_share_one():
    fitted = fit(("b", 5), ("a", 3), ("x", 2), ("y", 2), rare_below=3)
    assert fitted.feature_names() == ["c=a", "c=b", "c (rare)"]
    found = encoded(fitted, pl.Series("c", ["a", "b", "x", "y", "never seen", None]))
    assert found.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1], [0, 0, 0]]


def test_values_in_exactly_as_many_rows_as_the_limit_are_frequent():
    fitted = fit(("a", 3), ("b", 3), ("d", 9), rare_below=3)
    assert fitted.feature_names() == ["c=a", "c=b", "c=d"]
    assert encoded(fitted, pl.Series("c", ["never seen"])).tolist() == [[0, 0, 0]]


def test_a_value_that_was_never_seen_is_read_only_where_it_can_be_a_rare_one():
    cells = pl.Series("c", ["a", "never seen", None], dtype=pl.String)
    assert fit(("a", 3), ("b", 3), rare_below=3).parse(cells).read.tolist() == [True, False, False]
    rare = fit(("a", 5), ("x", 2), ("y", 2), rare_below=3)
    assert rare.parse(cells).read.tolist() == [True, True, False]


def test_a_single_rare_value_keeps_its_own_feature_and_so_do_all_where_all_are_rare():
    assert fit(("a", 9), ("b", 1), rare_below=3).feature_names() == ["c=a", "c=b"]
    assert fit(("a", 1), ("b", 1), rare_below=3).feature_names() == ["c=a", "c=b"]


def test_common_blanks_have_a_feature_and_a_column_of_one_value_is_none():
    fitted = fit(("a", 5), ("b", 5), (None, 5), rare_below=1)
    assert fitted.feature_names() == ["c=a", "c=b", "c (blank)"]
    assert encoded(fitted, pl.Series("c", [None, "b"], dtype=pl.String)).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert fit(("a", 5), rare_below=1) is None


def test_a_set_counts_each_value_once_and_has_length_one():
    cells = pl.Series("c", ["a; b", "b", "a;b;a", "", "a; other"] * 4)
    fitted = SetColumn.fit(cells, ";", 5, 40).column
    assert fitted.values == ("a", "b")
    found = encoded(fitted, pl.Series("c", ["a; b", "b;b", None, "a; z"], dtype=pl.String))
    half = np.sqrt(0.5)
    expected = [[half, half], [0, 1], [0, 0], [1, 0]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("sign", [";", "|", ",", "/"])
def test_sets_are_found_by_the_sign_between_their_values(sign):
    cells = pl.Series([f"red{sign}blue", f"blue{sign}green", "red", f"green{sign}red{sign}blue"] * 10)
    assert find_sets(cells, 40) == sign
    assert find_sets(pl.Series([f"text {i}{sign} never the same {i}" for i in range(40)]), 40) is None


@pytest.mark.parametrize("written", [json.dumps, repr, lambda cell: "{" + ",".join(cell) + "}"])
def test_lists_as_programs_write_them_have_the_features_of_plain_lists(written):
    rng = np.random.default_rng(0)
    lists = [rng.permutation(["red", "blue", "green", "gray"])[: rng.integers(0, 5)].tolist() for _ in range(200)]
    encoders = [TableEncoder(), TableEncoder()]
    plain = encoders[0].fit_transform({"c": ["; ".join(cell) for cell in lists]})
    found = encoders[1].fit_transform({"c": [written(cell) for cell in lists]})
    assert encoders[1].outcomes_ == {"c": "set"}
    assert encoders[1].get_feature_names_out().tolist() == encoders[0].get_feature_names_out().tolist()
    np.testing.assert_array_equal(found, plain)


def test_a_comma_inside_quotes_separates_nothing():
    cells = pl.Series("c", ['["a, b", "c"]', "['c']", "[]", None, "{c,d}"], dtype=pl.String)
    fitted = SetColumn.fit(cells, "[]", 1, 40).column
    assert fitted.values == ("a, b", "c", "d")
    assert (encoded(fitted, cells) > 0).astype(int).tolist() == [
        [1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0], [0, 1, 1],
    ]  # fmt: skip


def test_words_that_differ_in_capitals_alone_are_one_value_and_letters_are_not():
    fitted = fit(("ja", 5), ("Ja", 9), ("JA", 1), ("nein", 6), rare_below=1)
    assert fitted.values == ("Ja", "nein")
    cells = pl.Series("c", ["JA", "jA", "Nein", "vielleicht", None])
    assert encoded(fitted, cells).tolist() == [[1, 0], [1, 0], [0, 1], [0, 0], [0, 0]]
    assert fitted.parse(cells).read.tolist() == [True, True, True, False, False]
    letters = fit(("m", 5), ("M", 9), rare_below=1)
    assert letters.values == ("M", "m")
    assert fit(("ja", 5), ("Ja", 9), rare_below=1) is None
    encoder = TableEncoder().fit({"c": ["ja", "Ja", "nein"] * 9})
    assert "Column c: values that differ only in capitals are merged." in encoder.notes_


def test_values_that_a_model_keeps_apart_stay_apart():
    older = CategoryColumn("c", ("Ja", "ja"), False)
    assert encoded(older, pl.Series("c", ["ja", "Ja", "JA"])).tolist() == [[0, 1], [1, 0], [0, 0]]


def test_codes_that_come_as_floats_are_the_codes():
    encoder = TableEncoder().fit({"c": ["1", "2", "x", "-3"] * 20})
    wanted = encoder.transform({"c": ["1", "2", None, "-3"]})
    np.testing.assert_array_equal(encoder.transform({"c": [1.0, 2.0, float("nan"), -3.0]}), wanted)
    assert wanted.any(axis=1).tolist() == [True, True, False, True]
    older = CategoryColumn("c", ("1.0", "2.5"), False)
    assert encoded(older, pl.Series("c", ["1", "1.0", "2.5", "2"])).tolist() == [[1, 0], [1, 0], [0, 1], [0, 0]]
