from __future__ import annotations

import io

import numpy as np
import pytest

from sobgnn.tables import are_predictions, read_table, write_predictions
from sobgnn.tables.predictions import Sheet, neutral, spreadsheet_name, write_spreadsheet


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ('=HYPERLINK("http://x")', '\'=HYPERLINK("http://x")'),
        ("+cmd", "'+cmd"),
        ("-2+3", "'-2+3"),
        ("@sum", "'@sum"),
        ("＝1+1", "'＝1+1"),
        ("＋1-1", "'＋1-1"),
        ("－2+3", "'－2+3"),
        ("＠sum", "'＠sum"),
        ("\tx", "'\tx"),
        ("-1", "-1"),
        ("+1.5e3", "+1.5e3"),
        ("-", "-"),
        ("+", "+"),
        ("a=b", "a=b"),
        ("", ""),
    ],
)
def test_formulas_are_neutralised_and_numbers_are_not(text, written):
    assert neutral(text) == written


def test_predictions_hold_no_formula_and_count_those_that_were():
    file = io.BytesIO()
    count = write_predictions(
        file, ["=u", "v"], 5, np.array(["=u"], object), np.array([[0.75, 0.25]]), np.array(["a,b"], object), header=True
    )
    assert file.getvalue().decode() == 'row,id,label,probability_=u,probability_v\n5,"a,b",\'=u,0.750000,0.250000\n'
    assert count == 1


def test_a_table_says_that_its_formulas_will_be_neutralised(tmp_path):
    (tmp_path / "t.csv").write_text("id,a,label\n=1+1,1,u\nb,2,v\nc,3,u\n")
    table = read_table(tmp_path / "t.csv")
    assert any("formulas" in note and note.endswith(": 1.") for note in table.notes)


@pytest.mark.parametrize(
    ("text", "theirs"),
    [
        ("row,id,label,probability_a\n", True),
        ("row,label,far,probability_a\n", True),
        ("", True),
        ("\nmine\n", False),
        ("row,label,text\n", False),
        ("a,b\n1,2\n", False),
    ],
)
def test_predictions_are_told_from_other_files(tmp_path, text, theirs):
    (tmp_path / "x.csv").write_text(text)
    assert are_predictions(tmp_path / "x.csv") == theirs


def test_a_spreadsheet_opens_what_is_written_for_it(tmp_path):
    label, ids = np.array(["ä;b", "1.5"], object), np.array(["x.1", 'q"'], object)
    with (tmp_path / "p.csv").open("wb") as file:
        write_predictions(file, ["1.5", "ä;b"], 0, label, np.array([[0.25, 0.75], [1, 0]]), ids, header=True)
    target = spreadsheet_name(tmp_path / "p.csv")
    assert target.name == "p.spreadsheet.csv"
    with target.open("wb") as file:
        write_spreadsheet(tmp_path / "p.csv", file, Sheet(";", ","))
    assert target.read_bytes().decode() == (
        '\ufeffrow;id;label;probability_1.5;"probability_ä;b"\r\n'
        '0;x.1;"ä;b";0,250000;0,750000\r\n1;"q""";1.5;1,000000;0,000000\r\n'
    )
    assert are_predictions(target)


def test_a_spreadsheet_may_have_ids_that_are_long_texts(tmp_path):
    with (tmp_path / "p.csv").open("wb") as file:
        ids = np.array(["a" * 200_000], object)
        write_predictions(file, ["a"], 0, np.array(["a"], object), np.ones((1, 1)), ids, header=True)
    with (tmp_path / "s.csv").open("wb") as file:
        write_spreadsheet(tmp_path / "p.csv", file, Sheet())
    assert (tmp_path / "s.csv").stat().st_size > 200_000
