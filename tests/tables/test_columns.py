"""Columns of each kind: what their cells mean, and the features that they become."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import polars as pl
import pytest

from sobgnn.tables import Encoding, TableEncoder
from sobgnn.tables.columns.base import from_plain, to_plain
from sobgnn.tables.columns.category import CategoryColumn, SetColumn, find_sets
from sobgnn.tables.columns.date import DateColumn, looks_like_dates, parse_dates
from sobgnn.tables.columns.number import NumberColumn, find_sentinels
from sobgnn.tables.columns.number_format import NumberFormat, find_format, parse_numbers
from sobgnn.tables.columns.vector import VectorColumn, as_lists


def encoded(column, series):
    """The features of a series, dense."""
    found = column.encode(column.parse(series).values)
    return found.toarray() if hasattr(found, "toarray") else found


def texts(*cells):
    return pl.Series("c", cells, dtype=pl.String)


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


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([1, 2, 3, -999, -999], (-999,)),
        ([1, 2, 3, 9999, 9999], (9999,)),
        ([-1000, -998, -999, -999, 5], ()),  # among its like
        ([1, 2, 3, -999], ()),  # once
    ],
)
def test_sentinels_are_far_repeated_and_at_the_end(numbers, found):
    assert find_sentinels(np.array(numbers, float)) == found


@pytest.mark.parametrize("unit", [1e-100, 1e-27, 1.0, 1e30])
def test_features_are_standardized_whatever_their_unit_and_blanks_the_median(unit):
    series = pl.Series("x", [1.0, None, 3.0, 8.0]) * unit
    choice = NumberColumn.fit(series, NumberFormat())
    known = np.array([1.0, 3, 8])
    expected = (np.array([1, 3, 3, 8]) - known.mean()) / known.std()
    found = encoded(choice.column, series)
    np.testing.assert_allclose(found, np.stack([expected, [0, 1, 0, 0]], axis=1), rtol=1e-5, atol=1e-6)
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
    assert column.beyond(column.parse(cells)).tolist() == [False, True, False, True, False, False, False]


def test_an_infinity_counts_as_blank_in_new_cells_as_in_fitted_ones():
    fitted = pl.Series("x", ["1", "2.5", "inf", "4", "1e400"])
    column = NumberColumn.fit(fitted, NumberFormat()).column
    cells = column.parse(fitted)
    assert column.known(cells).tolist() == [True, True, False, True, False]
    assert not column.beyond(cells).any()
    assert column.encode(cells.values)[[2, 4], 0].tolist() == column.encode(np.array([2.5, 2.5]))[:, 0].tolist()


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


PERCENTS = [f"{v}%" for v in range(3, 98)]
AS_IF = "2 numbers without '%' are read as if they had it"


@pytest.mark.parametrize(
    ("more", "notes", "doubtful"),
    [
        ([], [], True),
        (["0.25", "0.371"], [f"{AS_IF}, though they look like fractions of 1: use one form for all"], False),
        (["25", "37.1"], [AS_IF], False),
        (["-999", "-999"], ["-999 treated as blank 2 times"], True),
    ],
)
def test_numbers_without_the_unit_that_all_had_are_doubtful_unless_they_are_of_the_same_size(more, notes, doubtful):
    choice = NumberColumn.fit(texts(*PERCENTS, *more), NumberFormat(unit="%", plain=False))
    assert choice.notes == ["unit '%' removed", *notes]
    column = from_plain(NumberColumn, json.loads(json.dumps(to_plain(choice.column, {}))), {})
    for cells, wrong in [
        (texts("0.664", "0.1", "12%", None), [True, True, False, False]),
        (pl.Series([0.664, 0.1, None]), [True, True, False]),
        (texts("66.4", "10", "12%"), [False] * 3),
        (texts("66.4%", "0.1%"), [False] * 2),
    ]:
        assert column.unsigned(column.parse(cells)).tolist() == [doubtful and each for each in wrong]
    if "-999" in more:  # a sentinel needs no unit
        assert not column.unsigned(column.parse(texts("-999", "5%"))).any()


UTC = dt.timezone.utc


def seconds(*moment):
    return dt.datetime(*moment, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2024-12-31", (2024, 12, 31)),
        ("2024-12-31 23:59", (2024, 12, 31, 23, 59)),
        ("2024-12-31T23:59:58.5Z", (2024, 12, 31, 23, 59, 58, 500_000)),
        ("2024-12-31T23:59:58+02:00", (2024, 12, 31, 21, 59, 58)),
        ("2024/12/31", (2024, 12, 31)),
        ("20241231", (2024, 12, 31)),
        ("2024-12", (2024, 12, 1)),
        ("31.12.2024", (2024, 12, 31)),
        ("31.12.24 07:05", (2024, 12, 31, 7, 5)),
        ("12/31/2024", (2024, 12, 31)),
        ("12/31/2024 11:59 PM", (2024, 12, 31, 23, 59)),
        ("12/31/2024 12:05 am", (2024, 12, 31, 0, 5)),
        ("31-Dec-2024", (2024, 12, 31)),
        ("31 December 2024", (2024, 12, 31)),
        ("31. Dezember 2024", (2024, 12, 31)),
        ("1. März 2024", (2024, 3, 1)),
        ("March 3rd, 2024", (2024, 3, 3)),
        ("Dec 31, 2024", (2024, 12, 31)),
        ("Tue, 31 Dec 2024 10:00:00 +0100", (2024, 12, 31, 9)),
        ("29.02.2024", (2024, 2, 29)),
        ("2024-07-10 06:42:30+00", (2024, 7, 10, 6, 42, 30)),
        ("2024-07-10 06:42:30.123456-05", (2024, 7, 10, 11, 42, 30, 123_456)),
        ("10 juil. 2024", (2024, 7, 10)),
        ("10 juin 2024", (2024, 6, 10)),
        ("3 févr. 2024", (2024, 2, 3)),
        ("22/Jul/2024:01:16:00 +0100", (2024, 7, 22, 0, 16)),
        ("[22/Jul/2024:01:16:00 +0100]", (2024, 7, 22, 0, 16)),
        ("2024年7月22日", (2024, 7, 22)),
        ("2024年7月22日 13:05", (2024, 7, 22, 13, 5)),
        ("31.12.1899", (1899, 12, 31)),
    ],
)
def test_dates_in_the_usual_forms(text, moment):
    moments, _ = parse_dates(pl.Series([text]))
    assert moments.values[0] == pytest.approx(seconds(*moment))


@pytest.mark.parametrize("text", ["29.02.2023", "31.04.2024", "2024-13-01", "2024-00-10", "1.2.3", "soon", "12.05"])
def test_what_is_no_date_is_none(text):
    assert np.isnan(parse_dates(pl.Series([text]))[0].values[0])


@pytest.mark.parametrize(
    ("cells", "day_first", "ambiguous"),
    [
        (["01/02/2024", "13/02/2024"], True, False),
        (["01/02/2024", "02/13/2024"], False, False),
        (["01/02/2024", "03/02/2024"], False, True),
        (["01.02.2024", "03.02.2024"], True, True),
    ],
)
def test_a_part_above_twelve_decides_which_is_the_day(cells, day_first, ambiguous):
    style = parse_dates(pl.Series(cells))[1]
    assert (style.day_first, style.ambiguous) == (day_first, ambiguous)


def test_cycles_are_of_those_parts_that_vary():
    days = pl.Series("d", [f"2024-{m:02}-15" for m in range(1, 13)])
    column = DateColumn.fit(days).column
    assert column.cycles == ("month", "weekday")
    X = encoded(column, days)
    np.testing.assert_allclose(X[:, 1], np.sin(2 * np.pi * np.arange(12) / 12), atol=1e-6)
    hours = pl.Series("d", [f"2024-01-15 {h:02}:00" for h in range(24)])
    assert DateColumn.fit(hours).column.cycles == ("hour",)
    clock = DateColumn.fit(pl.Series("t", ["07:30", "12:00", "18:45", None])).column
    assert (clock.cycles, clock.flag) == (("hour",), True)


@pytest.mark.parametrize(
    ("cells", "dates"),
    [
        (["20240131", "20231224", "19991231"], True),  # whole numbers, where all of them are
        (["20240131", "20241399", "12345678"], False),
        ([*(f"2024-01-{day:02d}" for day in range(1, 10)), "0"], True),
        ([*(f"2024-01-{day:02d}" for day in range(1, 9)), "0", "1"], False),
    ],
)
def test_nearly_all_cells_of_a_column_of_dates_are_dates(cells, dates):
    assert looks_like_dates(pl.Series(cells)) == dates


def test_a_cell_is_read_alike_whatever_stands_beside_it():
    clock = DateColumn.fit(pl.Series("t", ["07:30", "12:00", "18:45"])).column
    days = DateColumn.fit(pl.Series("d", ["2024-01-15 07:30", "2024-02-15", "2024-05-01 09:00"])).column
    cells = pl.Series("t", ["07:30", "2024-05-01 09:00"])
    assert clock.parse(cells).read.tolist() == [True, False]
    assert days.parse(cells).read.tolist() == [False, True]
    for column in (clock, days):
        for row in range(2):
            np.testing.assert_array_equal(encoded(column, cells[row : row + 1]), encoded(column, cells)[row : row + 1])
    assert not days.parse(pl.Series("d", ["07:30"]).str.to_time("%H:%M")).read.any()


def test_dates_written_otherwise_than_the_fitted_ones_are_read_by_their_sign():
    column = DateColumn.fit(pl.Series("d", ["2024-01-05", "2024-03-04", "2024-07-09", "2024-08-12"])).column
    expected = encoded(column, pl.Series("d", ["2024-03-04", "2024-01-12"]))
    restored = from_plain(DateColumn, to_plain(column, {}), {})
    for cells in (["03/04/2024", "01/12/2024"], ["04.03.2024", "12.01.2024"]):
        np.testing.assert_array_equal(encoded(restored, pl.Series("d", cells)), expected)


@pytest.mark.parametrize(
    ("fitted", "new", "wrong"),
    [
        (["01/02/2024", "02/13/2024"], ["05/01/2024", "13/01/2024 10:00"], "13/01/2024 10:00"),
        (["01/02/2024", "13/02/2024"], ["05/01/2024", "01/13/2024"], "01/13/2024"),
        (["2024-01-02", "2024-02-13"], ["05/01/2024", "13/01/2024"], "13/01/2024"),
        (["2024-01-02", "2024-02-13"], ["01.05.2024", "13.01.2024"], None),
        (["01/02/2024", "02/13/2024"], ["05/01/2024", "01/13/2024", "", "x", "2024-12-31"], None),
        (["01/02/2024", "02/13/2024"], ["01/13/2024", "13/01/2024"], None),
    ],
)
def test_day_and_month_the_other_way_round_are_noticed(fitted, new, wrong):
    encoding = Encoding(TableEncoder().fit({"d": [*fitted, *fitted], "n": [1.5, 2.5, 4.5, 3.5]}))
    frame = pl.DataFrame({"d": new, "n": [1.0] * len(new)})
    if wrong is None:
        encoding.batch(frame)
    else:
        with pytest.raises(ValueError, match=f"Column 'd' has day and month in the opposite order .* as in '{wrong}'"):
            encoding.batch(frame)


def test_dates_that_contradict_one_another_are_mentioned():
    cells = ["13/02/2024", "02/14/2024", "05/06/2024"] * 9
    choice = DateColumn.fit(pl.Series("d", cells))
    assert choice.outcome == "date"
    assert choice.notes[0].startswith("dates contradict one another")
    assert "contradict" not in str(DateColumn.fit(pl.Series("d", ["13/02/2024", "05/06/2024"] * 9)).notes)


def fit(*counts, rare_below=1):
    """The column of some values, each a number of times."""
    return CategoryColumn.fit("c", texts(*(value for value, count in counts for _ in range(count))), rare_below).column


@pytest.mark.parametrize(
    ("counts", "rare_below", "names"),
    [
        ([("b", 5), ("a", 3), ("x", 2), ("y", 2)], 3, ["c=a", "c=b", "c (rare)"]),
        ([("a", 3), ("b", 3), ("d", 9)], 3, ["c=a", "c=b", "c=d"]),  # exactly as many rows as the limit
        ([("a", 9), ("b", 1)], 3, ["c=a", "c=b"]),  # a single rare value
        ([("a", 1), ("b", 1)], 3, ["c=a", "c=b"]),  # all are rare
        ([("a", 5), ("b", 5), (None, 5)], 1, ["c=a", "c=b", "c (blank)"]),
        ([("a", 5)], 1, None),
        ([("m", 5), ("M", 9)], 1, ["c=M", "c=m"]),  # letters are kept apart
        ([("ja", 5), ("Ja", 9)], 1, None),
    ],
)
def test_each_value_that_is_frequent_enough_has_a_feature_and_the_others_share_one(counts, rare_below, names):
    column = fit(*counts, rare_below=rare_below)
    assert (column and column.feature_names()) == names
    if column is None:
        return
    cells = [*(value for value, _ in counts if value), "never seen", None]
    place = {name: i for i, name in enumerate(names)}
    wanted = [place.get(f"c={cell}", place.get("c (rare)")) if cell else place.get("c (blank)") for cell in cells]
    found = [np.flatnonzero(row).tolist() for row in encoded(column, texts(*cells))]
    assert found == [[] if i is None else [i] for i in wanted]
    assert column.parse(texts("never seen", None)).read.tolist() == ["c (rare)" in names, False]


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


def test_words_that_differ_in_capitals_alone_are_one_value():
    fitted = fit(("ja", 5), ("Ja", 9), ("JA", 1), ("nein", 6), rare_below=1)
    assert fitted.values == ("Ja", "nein")
    cells = pl.Series("c", ["JA", "jA", "Nein", "vielleicht", None])
    assert encoded(fitted, cells).tolist() == [[1, 0], [1, 0], [0, 1], [0, 0], [0, 0]]
    assert fitted.parse(cells).read.tolist() == [True, True, True, False, False]
    encoder = TableEncoder().fit({"c": ["ja", "Ja", "nein"] * 9})
    assert "Column c: values that differ only in capitals are merged." in encoder.notes_


def test_codes_that_come_as_floats_are_the_codes():
    encoder = TableEncoder().fit({"c": ["1", "2", "x", "-3"] * 20})
    wanted = encoder.transform({"c": ["1", "2", None, "-3"]})
    np.testing.assert_array_equal(encoder.transform({"c": [1.0, 2.0, float("nan"), -3.0]}), wanted)
    assert wanted.any(axis=1).tolist() == [True, True, False, True]
    floats = CategoryColumn("c", ("1.0", "2.5"), False)
    assert encoded(floats, pl.Series("c", ["1", "1.0", "2.5", "2"])).tolist() == [[1, 0], [1, 0], [0, 1], [0, 0]]


LISTS = [[1.0, 10.0], [3.0, 20.0], None, [5.0, 60.0], *[[3.0, 30.0]] * 8]


def vectors(cells):
    return VectorColumn.fit(cells, as_lists(cells))


@pytest.mark.parametrize(
    "cells",
    [
        pl.Series("v", LISTS),
        pl.Series("v", LISTS, dtype=pl.Array(pl.Float64, 2)),
        pl.Series("v", [None if cell is None else f"[{cell[0]}; {cell[1]}]" for cell in LISTS]),
    ],
    ids=["lists", "arrays", "text"],
)
def test_vectors_are_centered_on_the_mean_of_those_given_and_blanks_lie_there(cells):
    choice = vectors(cells)
    known = np.array([cell for cell in LISTS if cell is not None])
    found = encoded(choice.column, cells)
    rows = [i for i, cell in enumerate(LISTS) if cell is not None]
    np.testing.assert_allclose(found[rows], known - known.mean(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(found[2], [0, 0])
    assert choice.notes == ["1 blank or of another length, set to the mean"]
    assert choice.column.feature_names() == ["v [0]", "v [1]"]


def test_a_cell_that_is_no_vector_of_this_length_is_blank_and_its_neighbors_are_read():
    column = vectors(pl.Series("v", LISTS)).column
    odd = encoded(column, pl.Series("v", [[1.0, 2.0, 3.0], [float("nan"), 1.0], [1.0, None], [], [4.0, 31.0]]))
    assert odd.any(axis=1).tolist() == [False, False, False, False, True]
    cells = column.parse(pl.Series("v", ["[1, 2]", "soon", None, "[4, 31]"]))
    assert cells.read.tolist() == [True, False, False, True]
    assert column.encode(cells.values).any(axis=1).tolist() == [True, False, False, True]


def test_vectors_that_are_all_the_same_or_of_many_lengths_are_no_column():
    assert vectors(pl.Series("v", [[1.0, 2.0]] * 10)).outcome == "constant"
    choice = vectors(pl.Series("v", [[1.0], [1.0, 2.0], [1.0, 2.0, 3.0]] * 5))
    assert (choice.column, choice.outcome) == (None, "vectors of different lengths")
