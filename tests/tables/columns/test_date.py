from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl
import pytest

from sobgnn.tables import Encoding, TableEncoder
from sobgnn.tables.columns.base import from_plain, to_plain
from sobgnn.tables.columns.date import DateColumn, looks_like_dates, parse_dates


def encoded(column, series):
    """The features of a series, dense."""
    found = column.encode(column.parse(series).values)
    return found.toarray() if hasattr(found, "toarray") else found


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


@pytest.mark.parametrize(
    "text", ["29.02.2023", "31.04.2024", "2024-13-01", "2024-00-10", "1.2.3", "soon", "12.05", "99"]
)
def test_what_is_no_date_is_none(text):
    assert np.isnan(parse_dates(pl.Series([text]))[0].values[0])


def test_a_part_above_twelve_decides_which_is_the_day():
    assert parse_dates(pl.Series(["01/02/2024", "13/02/2024"]))[1].day_first
    assert not parse_dates(pl.Series(["01/02/2024", "02/13/2024"]))[1].day_first
    style = parse_dates(pl.Series(["01/02/2024", "03/02/2024"]))[1]
    assert (style.day_first, style.ambiguous) == (False, True)
    assert parse_dates(pl.Series(["01.02.2024", "03.02.2024"]))[1].day_first


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


def test_whole_numbers_are_dates_only_where_all_of_them_are():
    assert looks_like_dates(pl.Series(["20240131", "20231224", "19991231"]))
    assert not looks_like_dates(pl.Series(["20240131", "20241399", "12345678"]))


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


def test_one_number_among_ten_cells_leaves_dates_dates():
    assert looks_like_dates(pl.Series([*(f"2024-01-{day:02d}" for day in range(1, 10)), "0"]))
    assert not looks_like_dates(pl.Series([*(f"2024-01-{day:02d}" for day in range(1, 9)), "0", "1"]))


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S+00", "%d/%b/%Y:%H:%M:%S +0100", "%Y年%m月%d日"])
def test_columns_of_databases_logs_and_asia_are_dates(form):
    cells = [(dt.datetime(2024, 1, 3) + dt.timedelta(hours=31 * i)).strftime(form) for i in range(50)]
    encoder = TableEncoder().fit({"when": cells, "x": np.arange(50) / 7})
    assert encoder.outcomes_["when"] == "date"


def test_dates_that_contradict_one_another_are_mentioned():
    cells = ["13/02/2024", "02/14/2024", "05/06/2024"] * 9
    choice = DateColumn.fit(pl.Series("d", cells))
    assert choice.outcome == "date"
    assert choice.notes[0].startswith("dates contradict one another")
    assert "contradict" not in str(DateColumn.fit(pl.Series("d", ["13/02/2024", "05/06/2024"] * 9)).notes)
