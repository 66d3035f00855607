from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sobgnn.tables.labels import parse_labels


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
        ([f"n{i:02}" for i in range(30)] + [None] * 40, [*range(30)] + [-1] * 40, [f"n{i:02}" for i in range(30)]),
    ],
)
def test_labels_are_whole_numbers_or_text_and_blanks_are_unlabelled(values, codes, classes):
    found, names, _ = parse_labels(pl.Series("y", values, strict=False), "y")
    assert (found.tolist(), list(names)) == (codes, classes)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.linspace(0, 1, 100), "look like measurements"),
        ([f"n{i}" for i in range(100)], "look like ids"),
        (["a", None, "a"], "single class"),
        (["-1", "", "-1"], "holds a single class, '-1'"),
        (["NA", "EU"], r"holds a single class, 'EU'.*'NA' \(1 row\)"),
        ([None, ""], "is empty"),
        (["n.a.", "n.a."], r"is empty.* count as blank, .*: 'n\.a\.' \(2 rows\)"),
    ],
)
def test_columns_that_are_no_classes_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        parse_labels(pl.Series(values), "y")


BLANK = "Labels that count as blank, so that their rows are unlabeled: {}. If one is a class, give it another name."
CLASS = "Treated as a class: {}. If it means unlabeled, leave the cell empty."
MINUS = "Rows with label -1 count as unlabeled: {}. If -1 is a class, give it a name."


@pytest.mark.parametrize(
    ("values", "codes", "classes", "notes"),
    [
        (["-2", "-1", "0", "3", None], [0, 1, 2, 3, -1], ["-2", "-1", "0", "3"], []),
        (["-1", "0", "1", None], [0, 1, 2, -1], ["-1", "0", "1"],
         ["-1 is a class, since blank cells mark the unlabeled rows."]),
        (["-1", "0", "1", "1"], [-1, 0, 1, 1], [0, 1], [MINUS.format(1)]),
        (["-1", "1", "-1", None], [0, 1, 0, -1], ["-1", "1"], [CLASS.format("'-1' (2 rows)")]),
        (["+", "-", "+", None], [0, 1, 0, -1], ["+", "-"], []),
        (["a", "None", "b", None], [1, 0, 2, -1], ["None", "a", "b"], [CLASS.format("'None' (1 row)")]),
        (["a", "unknown", "-", "unknown"], [1, 2, 0, 2], ["-", "a", "unknown"],
         [CLASS.format("'-' (1 row)"), CLASS.format("'unknown' (2 rows)")]),
        (["NA", "EU", "APAC", "", "NA", None], [-1, 1, 0, -1, -1, -1], ["APAC", "EU"], [BLANK.format("'NA' (2 rows)")]),
        (["a", "b", "Unlabeled", "unlabelled", "a", "not labeled"], [0, 1, -1, -1, 0, -1], ["a", "b"],
         [BLANK.format("'Unlabeled' (1 row), 'unlabelled' (1 row), 'not labeled' (1 row)")]),
        (["todo", None, "Done", "tbd"], [1, -1, 0, -1], ["Done", "todo"], [BLANK.format("'tbd' (1 row)")]),
        *((["a", none, "b"], [0, -1, 1], ["a", "b"], [BLANK.format(f"{none!r} (1 row)")])
          for none in ("n.a.", "k.A.", "k. A.", "TBD", "tba", "TBC", "todo", "??", "???")),
        (["grade A"] * 9 + ["grade B"] * 9, [0] * 9 + [1] * 9, ["grade A", "grade B"], []),
        (["spam", "Spam", "ham", "spam"], [2, 0, 1, 2], ["Spam", "ham", "spam"],
         ["Classes that differ only in capitals, such as 'Spam' and 'spam', are different classes. Spell them the same "
          "to merge them."]),
    ],
)  # fmt: skip
def test_what_labels_were_taken_for_is_said(values, codes, classes, notes):
    found, names, said = parse_labels(pl.Series("y", values), "y")
    assert (found.tolist(), names, said) == (codes, classes, notes)


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


@pytest.mark.parametrize(
    ("values", "codes", "classes", "notes"),
    [
        (["-1", "-1", "-1"], [-1, -1, -1], [], [MINUS.format(3)]),
        ([2, 2, -1], [0, 0, -1], ["2"], [MINUS.format(1)]),
        ([1.0, None, -1.0], [1, -1, 0], ["-1", "1"], [CLASS.format("'-1' (1 row)")]),
        ([1, -1, 1], [1, 0, 1], ["-1", "1"], [CLASS.format("'-1' (1 row)")]),  # there is nothing else to label
        ([None, None], [-1, -1], [], []),
        ([0, 1, -1], [0, 1, -1], [0, 1], [MINUS.format(1)]),
        (["-1", "cat", "cat", None], [-1, 0, 0, -1], ["cat"], [MINUS.format(1)]),
    ],
)
def test_labels_that_are_only_begun(values, codes, classes, notes):
    found, names, said = parse_labels(pl.Series("y", values, strict=False), "y", begun=True)
    assert (found.tolist(), list(names), said) == (codes, classes, notes)


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
