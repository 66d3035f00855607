"""What is noticed in a file for prediction: gaps, cells that are not read, and columns with other names."""

from __future__ import annotations

import json
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from PIL import Image

from sobgnn.tables import Encoding, batches, read_table
from sobgnn.tables.table import from_arrays


def fitted(folder, header, row, rows=60, **options):
    """The encoding of a file whose cells are given by the number of the row, as it is and as it was saved."""
    (folder / "old.csv").write_text("\n".join([header, *map(row, range(rows))]) + "\n")
    encoding = read_table(folder / "old.csv", **options).encoding
    content, arrays = encoding.to_parts()
    return encoding, Encoding.from_parts(json.loads(json.dumps(content)), arrays)


def read(folder, encoding, text):
    (folder / "new.csv").write_text(text)
    return next(batches(folder / "new.csv", encoding))


YES = ("no", "yes")
# Header and rows of the fitted file; of the new one; gaps, rows with one, unread cells, cells without their unit.
NOTICED = {
    "blank or unread cells of columns that had none": (
        "x,kind,z,label", lambda i: f"{i / 7:.3f},{'ab'[i % 2]},{'' if i == 5 else i * 0.1:},{YES[i % 2]}",
        "x,kind,z\n1.5,a,0.3\n,a,0.3\nsoon,a,0.3\n2.5,c,0.3\n2.5,,0.3\n2.5,b,\n3.5,b,1\n4.5,b,1\n",
        {"x": 2, "kind": 2}, [1, 2, 3, 4], {"x": 1, "kind": 1}, {},
    ),
    "a category that was never seen, though blank cells were learned": (
        "x,kind,label", lambda i: f"{i / 7:.3f},{('a', 'b', '')[i % 3]},{YES[i % 2]}",
        "x,kind\n1.5,a\n1.5,\n1.5,c\n2.5,b\n", {"kind": 1}, [2], {"kind": 1}, {},
    ),
    "a mark of a missing number is none": (
        "x,label", lambda i: f"{'-' if i % 3 == 0 else i / 7:},{'ab'[i % 2]}", "x,b\n-,1\n", {}, [], {}, {},
    ),
    "a word that is no such mark": (
        "height,size,label", lambda i: f"{'k.A.' if i % 10 == 0 else i / 7},{i % 5},{'uv'[i % 2]}",
        "height,size\nk.A.,1\n2.5,2\ntall,3\n1.5,4\n2.0,1\n", {}, [], {"height": 1}, {},
    ),
    "numbers without the unit of the fit": (
        "share,label", lambda i: f"{i + 3}%,{'uv'[i % 2]}", "share\n0.664\n12%\n0.25\n",
        {}, [0, 2], {}, {"share without %": 2},
    ),
    "rows without any cell, though blanks were learned": (
        "x,kind,label",
        lambda i: f"{'' if i % 3 else i / 7},{'' if i % 3 == 1 else 'ab'[i % 2]},{'uv'[i % 2]}",
        "x,kind,other\n1.5,,u\n,a,u\n , ,u\nNA,,u\n", {}, [2, 3], {}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("title", NOTICED)
def test_what_the_fit_never_met_is_noticed(tmp_path, title):
    header, row, new, gaps, gappy, unread, unsigned = NOTICED[title]
    for encoding in fitted(tmp_path, header, row):
        batch = read(tmp_path, encoding, new)
        found = batch.gaps, np.flatnonzero(batch.gappy).tolist(), batch.unread, batch.unsigned
        assert found == (gaps, gappy, unread, unsigned)


def test_a_word_in_place_of_most_numbers_is_an_error(tmp_path):
    encoding, _ = fitted(tmp_path, "x,label", lambda i: f"{'-' if i % 3 == 0 else i / 7:},{'ab'[i % 2]}")
    with pytest.raises(ValueError, match="must hold numbers"):
        read(tmp_path, encoding, "x,b\nsoon,1\n")


def test_gaps_of_arrays_lists_and_sentinels(tmp_path):
    old = pl.DataFrame({"x": np.arange(60) / 7, "s": ["a;b", "b;c", "c;d"] * 20, "z": [-999.0, 1.5, 2.5, 3.5] * 15,
                        "label": ["p", "q"] * 30})  # fmt: skip
    old.write_parquet(tmp_path / "old.parquet")
    encoding = read_table(tmp_path / "old.parquet").encoding
    new = pl.DataFrame({"x": [1.0, float("nan")], "s": [None, "a;b"], "z": [None, 1.5]})
    new.write_parquet(tmp_path / "new.parquet")
    assert next(batches(tmp_path / "new.parquet", encoding)).gaps == {"x": 1, "s": 1}
    encoding = read_table(tmp_path / "old.parquet", drop=["s", "z"]).encoding
    np.savez(tmp_path / "new.npz", X=np.array([[1.0], [np.nan]]))
    assert next(batches(tmp_path / "new.npz", encoding)).gappy.tolist() == [False, True]


def test_rows_of_an_array_without_any_number_are_doubtful(tmp_path):
    table = from_arrays(np.arange(60.0).reshape(20, 3), np.arange(20) % 2)
    np.savez(tmp_path / "new.npz", X=np.array([[1.0, np.nan, 2.0], [np.nan] * 3]))
    assert next(batches(tmp_path / "new.npz", table.encoding)).gappy.tolist() == [False, True]
    assert read(tmp_path, table.encoding, "a,b,c\n1,,\n,,\n").gappy.tolist() == [False, True]


def test_gaps_are_judged_on_the_rows_with_labels(tmp_path):
    rows = [f"{'' if i % 9 == 8 else i / 7},{-999 if i % 9 == 8 else i % 5},{'uv'[i % 2]}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["x,z,label", *rows]))
    table = read_table(tmp_path / "t.csv")
    assert not any(column.complete for column in table.encoding.columns)
    judged = table.encoding.judged_on(table.frame.filter(np.arange(60) % 9 != 8))
    assert all(column.complete for column in judged.columns)
    assert judged.gaps(judged.features_of(table.frame))[1].tolist() == [i % 9 == 8 for i in range(60)]
    assert not any(column.complete for column in table.encoding.judged_on(table.frame).columns)


MATCHED = "Columns whose names differ from the model's only in capitals were matched: {}."


@pytest.mark.parametrize(
    ("text", "ids", "labels", "said"),
    [
        ("ID,HEIGHT,size\nk1,1.5,2\nk2,2.5,3\n", ["k1", "k2"], None, (MATCHED.format("HEIGHT as Height, ID as id"),)),
        ("id,size,constant,Height,mood,label\nk1,1,1,2,x,u\nk2,2,1,3,x,\nk3,3,1,1,x,NA\n", ["k1", "k2", "k3"],
         ["u", None, None], ("Columns that the model was not fitted with, ignored: mood.",)),
        ("Height,size\n1.5,2\n", None, None, ()),
        ("Height,size,Label\n1.5,2,u\n", None, ["u"], (MATCHED.format("Label as label"),)),
    ],
)  # fmt: skip
def test_ids_labels_and_unknown_columns_are_read_whatever_their_capitals(tmp_path, text, ids, labels, said):
    encoding, _ = fitted(
        tmp_path, "id,Height,size,constant,label", lambda i: f"k{i:03},{i / 7},{i % 5},1,{'uv'[i % 2]}"
    )
    batch = read(tmp_path, encoding, text)
    assert (None if batch.ids is None else batch.ids.tolist()) == ids
    assert (None if batch.labels is None else batch.labels.tolist()) == labels
    assert batch.said == said
    with pytest.raises(ValueError, match="Missing column 'Height'"):
        read(tmp_path, encoding, "HEIGHT,height,size\n1.5,1.5,2\n")


def test_labels_of_pictures_that_cannot_be_read_are_not_compared(tmp_path):
    for number in range(6):
        (tmp_path / "ab"[number % 2]).mkdir(exist_ok=True)
        Image.new("RGB", (16, 16), (number * 40, 0, 90)).save(tmp_path / "ab"[number % 2] / f"{number}.png")
    encoding = read_table(tmp_path).encoding
    (tmp_path / "a" / "broken.png").write_bytes(b"no picture")
    batch = next(batches(tmp_path, encoding))
    assert dict(zip(batch.ids, batch.labels, strict=True))["a/broken.png"] is None
    assert sum(label is not None for label in batch.labels) == 6


@pytest.mark.parametrize("cell", [["u"], timedelta(days=1), b"\xff"])
def test_a_label_column_that_cannot_be_text_does_not_prevent_predictions(tmp_path, cell):
    encoding, _ = fitted(tmp_path, "height,size,label", lambda i: f"{i / 7},{i % 5},{'uv'[i % 2]}")
    pl.DataFrame({"height": [1.5, 2.0], "size": [2, 3], "label": [cell, cell]}).write_parquet(tmp_path / "new.parquet")
    batch = next(batches(tmp_path / "new.parquet", encoding))
    assert batch.labels is None
    assert batch.X.shape[0] == 2


def test_another_decimal_sign_is_named_though_some_cells_are_words(tmp_path):
    encoding, _ = fitted(tmp_path, "id;size;label", lambda i: f"P-{i};{i % 13},5;{'ab'[i % 2]}")
    new = "id;size\n" + "".join(f"P-{i};{cell}\n" for i, cell in enumerate(["k.A.", "3.09", "4.5", "", "1.25"]))
    with pytest.raises(ValueError, match=r"'size' had a decimal comma .* has a decimal point here, as in '3.09'"):
        read(tmp_path, encoding, new)
