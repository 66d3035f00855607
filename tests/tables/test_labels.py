from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn.tables.labels import begun_labels, parse_labels


@pytest.mark.parametrize(
    ("values", "codes", "classes"),
    [
        (["b", "a", None, "b"], [1, 0, -1, 1], ["a", "b"]),
        (["2", "10", "", "2"], [0, 1, -1, 0], [2, 10]),
        (["1.0", "3.0", None], [0, 1, -1], [1, 3]),
        (["0", "1", "-1", "2"], [0, 1, -1, 2], [0, 1, 2]),
        (["-1", "1", "", "-1"], [0, 1, -1, 0], ["-1", "1"]),
        (["-1", "0", "", "1"], [0, 1, -1, 2], ["-1", "0", "1"]),
        (["-2", "-1", "3"], [0, 1, 2], ["-2", "-1", "3"]),
        ([" x", "x", "y "], [0, 0, 1], ["x", "y"]),
        ([True, False, None], [1, 0, -1], ["false", "true"]),
        ([0.5, 1.5, float("nan")], [0, 1, -1], ["0.5", "1.5"]),
        (["1", "1.0", "1.5"], [0, 0, 1], ["1", "1.5"]),
        (["9007199254740992", "9007199254740993"], [0, 1], ["9007199254740992", "9007199254740993"]),
        (["007", "7", "8"], [0, 1, 2], ["007", "7", "8"]),
        (["01", "02", "01"], [0, 1, 0], ["01", "02"]),
        (["1e3", "2", "2"], [0, 1, 1], ["1e3", "2"]),
        (["+", "-", "+"], [0, 1, 0], ["+", "-"]),
        (["a", "-1", "b", "-1"], [0, -1, 1, -1], ["a", "b"]),
        (["a", "-1", "2"], [2, 0, 1], ["-1", "2", "a"]),
        (["a\0", "a", "b"], [1, 0, 2], ["a", "a\0", "b"]),
    ],
)
def test_labels_are_whole_numbers_or_text_and_blanks_are_unlabelled(values, codes, classes):
    found, names, _ = parse_labels(pl.Series("y", values, strict=False), "y")
    assert (found.tolist(), list(names)) == (codes, classes)


def test_columns_that_are_no_classes_are_refused():
    with pytest.raises(ValueError, match="look like measurements"):
        parse_labels(pl.Series(np.linspace(0, 1, 100)), "y")
    with pytest.raises(ValueError, match="look like ids"):
        parse_labels(pl.Series([f"n{i}" for i in range(100)]), "y")
    with pytest.raises(ValueError, match="single class"):
        parse_labels(pl.Series(["a", None, "a"]), "y")
    with pytest.raises(ValueError, match="is empty"):
        parse_labels(pl.Series([None, ""]), "y")
    with pytest.raises(ValueError, match=r"is empty.* count as blank, .*: 'n\.a\.' \(2\)"):
        parse_labels(pl.Series(["n.a.", "n.a."]), "y")


def test_minus_one_beside_blank_cells_alone_is_a_single_class():
    with pytest.raises(ValueError, match="holds a single class, '-1'"):
        parse_labels(pl.Series(["-1", "", "-1"]), "y")


def test_minus_one_among_other_negative_numbers_is_a_class():
    codes, classes, notes = parse_labels(pl.Series("label", ["-2", "-1", "0", "3", None]), "label")
    assert classes == ["-2", "-1", "0", "3"]
    assert codes.tolist() == [0, 1, 2, 3, -1]
    assert not notes


def test_minus_one_beside_blank_cells_is_a_class_and_without_them_unlabelled():
    _, classes, notes = parse_labels(pl.Series(["-1", "0", "1", None]), "label")
    assert classes == ["-1", "0", "1"]
    assert notes == ["-1 is a class, since blank cells mark the unlabeled rows."]
    _, classes, notes = parse_labels(pl.Series(["-1", "0", "1", "1"]), "label")
    assert classes == [0, 1]
    assert notes == ["Rows with label -1 count as unlabeled: 1. If -1 is a class, give it a name."]


@pytest.mark.parametrize(
    ("rare", "common", "alike"),
    [
        ("biling", "billing", True),
        ("billling", "billing", True),
        ("biliing", "billing", True),
        ("bliling", "billing", True),
        ("billing ltd", "billing", False),
        ("week1", "week2", False),
        ("type A", "type B", False),
        ("typeA", "typeB", False),
        ("alpha", "Alpha", False),
        ("good", "food", False),
        ("billing", "shipping", False),
    ],
)
def test_a_rare_class_one_letter_from_a_common_one_is_mentioned(rare, common, alike):
    _, classes, notes = parse_labels(pl.Series([rare] + [common] * 9 + ["another"] * 9), "y")
    assert len(classes) == 3
    assert (
        any(f"{rare!r} (1 label) looks like a misspelling of {common!r} (9 labels)" in note for note in notes) == alike
    )


def test_two_common_classes_one_letter_apart_are_no_misspelling():
    assert not parse_labels(pl.Series(["grade A"] * 9 + ["grade B"] * 9), "y")[2]


def test_a_class_whose_name_may_mean_no_label_is_mentioned():
    _, classes, notes = parse_labels(pl.Series(["a", "None", "b", None]), "label")
    assert classes == ["None", "a", "b"]
    assert any("Treated as a class: 'None'" in note for note in notes)


@pytest.mark.parametrize(
    ("values", "codes", "classes"),
    [
        (["-1", "-1", "-1"], [-1, -1, -1], []),
        ([2, 2, -1], [0, 0, -1], ["2"]),
        ([1.0, None, -1.0], [1, -1, 0], ["-1", "1"]),
        ([1, -1, 1], [1, 0, 1], ["-1", "1"]),  # two classes, as there is nothing to label
        ([None, None], [-1, -1], []),
        ([0, 1, -1], [0, 1, -1], [0, 1]),
        (["-1", "cat", "cat", None], [-1, 0, 0, -1], ["cat"]),
    ],
)
def test_labels_that_are_only_begun(values, codes, classes):
    found, names, _ = begun_labels(pl.Series("y", values, strict=False), "y")
    assert (found.tolist(), list(names)) == (codes, classes)


def test_minus_beside_plus_is_plainly_a_class():
    assert not parse_labels(pl.Series(["+", "-", "+", None]), "label")[2]


def test_one_label_of_each_class_among_many_rows_is_no_column_of_ids():
    codes, classes, _ = parse_labels(pl.Series([f"n{i:02}" for i in range(30)] + [None] * 40), "y")
    assert len(classes) == 30
    assert (codes >= 0).sum() == 30


def test_classes_that_differ_in_capitals_alone_are_mentioned():
    _, classes, notes = parse_labels(pl.Series(["spam", "Spam", "ham", "spam"]), "y")
    assert len(classes) == 3
    assert any("'Spam' and 'spam', are different classes" in note for note in notes)


def test_classes_whose_name_counts_as_blank_are_mentioned():
    series = pl.Series("region", ["NA", "EU", "APAC", "", "NA", None])
    codes, classes, notes = parse_labels(series, "region")
    assert classes == ["APAC", "EU"]
    assert codes.tolist() == [-1, 1, 0, -1, -1, -1]
    assert notes == [
        "Labels that count as blank, so that their rows are unlabeled: 'NA' (2). If one is a class, give it another "
        "name."
    ]
    with pytest.raises(ValueError, match=r"holds a single class, 'EU'.*'NA' \(1\)"):
        parse_labels(pl.Series(["NA", "EU"]), "region")


def test_rows_called_unlabeled_are_unlabeled():
    series = pl.Series("y", ["a", "b", "Unlabeled", "unlabelled", "a", "not labeled"])
    for parse in (parse_labels, begun_labels):
        codes, classes, notes = parse(series, "y")
        assert classes == ["a", "b"]
        assert codes.tolist() == [0, 1, -1, -1, 0, -1]
        assert "'Unlabeled' (1), 'unlabelled' (1), 'not labeled' (1)" in notes[0]


def test_each_label_that_may_mean_none_is_named_with_its_rows():
    series = pl.Series("y", ["a", "b", "a"] * 20 + ["unknown"] * 12 + ["nil"] + ["-"] * 2)
    _, classes, notes = parse_labels(series, "y")
    assert classes == ["-", "a", "b", "nil", "unknown"]
    for said in ("'unknown' (12 rows)", "'nil' (1 row)", "'-' (2 rows)"):
        assert any(said in note and "leave the cell empty" in note for note in notes), said


@pytest.mark.parametrize("none", ["n.a.", "k.A.", "k. A.", "TBD", "tba", "TBC", "todo", "??", "???"])
def test_abbreviations_for_nothing_are_unlabelled_and_said_so(none):
    codes, classes, notes = parse_labels(pl.Series("y", ["a", none, "b", none]), "y")
    assert (codes.tolist(), classes) == ([0, -1, 1, -1], ["a", "b"])
    assert f"their rows are unlabeled: {none!r} (2)" in notes[0]


def test_todo_beside_done_is_a_class():
    assert parse_labels(pl.Series("y", ["todo", None, "Done", "tbd"]), "y")[1] == ["Done", "todo"]


def test_whole_numbers_nearly_all_of_which_differ_are_measurements():
    rng = np.random.default_rng(0)
    prices = [str(v) for v in rng.choice(np.arange(100, 2000), 150)] + [""] * 1000
    assert len(set(prices)) > 130
    with pytest.raises(ValueError, match=r"distinct whole numbers in 150 labeled rows, which look like measurements"):
        parse_labels(pl.Series("price", prices), "price")
    one_each = [str(v) for v in range(100)] + [""] * 1000
    assert len(parse_labels(pl.Series("y", one_each), "y")[1]) == 100  # codes of classes fill their range
    repeated = [str(v) for v in range(100, 2000, 60)] * 3 + [""] * 1000
    assert len(parse_labels(pl.Series("y", repeated), "y")[1]) == 32


@pytest.mark.parametrize(
    ("values", "notes"),
    [
        (["-1", "0", "1", "-1"], ["Rows with label -1 count as unlabeled: 2. If -1 is a class, give it a name."]),
        (["-1", "a", "a"], ["Rows with label -1 count as unlabeled: 1. If -1 is a class, give it a name."]),
        (["-1", "1"], []),
        (["a", None], []),
    ],
)
def test_labels_of_a_column_to_be_filled_that_count_as_none_are_said(values, notes):
    assert begun_labels(pl.Series("y", values), "y")[2] == notes
