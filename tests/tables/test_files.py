from __future__ import annotations

import csv
import subprocess
import sys
import tracemalloc

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from sobgnn import tables
from sobgnn.tables import Encoding, batches, file_stem, is_file_name, read_table
from sobgnn.tables.reading import formats, records
from sobgnn.tables.reading.readers import open_reader


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def all_rows(path, encoding):
    parts = list(batches(path, encoding))
    assert [part.first_row for part in parts] == list(np.cumsum([0, *(part.X.shape[0] for part in parts[:-1])]))
    return np.concatenate([part.X.toarray() if sp.issparse(part.X) else part.X for part in parts])


def column(table, name):
    """The features of a column, and where they begin."""
    return np.asarray(table.X)[:, table.encoding.slices[name]]


def agrees(found, expected):
    """Whether a feature is the expected numbers up to shift and scale."""
    a, b = (np.asarray(v, float) - np.mean(v) for v in (found, expected))
    return np.allclose(a / np.abs(a).max(), b / np.abs(b).max(), atol=1e-4)


CSV = """\
id,height,color,flat,label
a1,1.5,red,7,yes
a2,,blue,7,no
a3,2.5,red,7,
a4,9.5,?,7,yes
"""


def test_a_csv_becomes_features_classes_and_ids_by_rule(tmp_path):
    table = read_table(write(tmp_path / "t.csv", CSV))
    assert table.classes == ["no", "yes"]
    assert table.codes.tolist() == [1, 0, -1, 1]
    assert table.ids.tolist() == ["a1", "a2", "a3", "a4"]
    height, color = column(table, "height"), column(table, "color")
    assert agrees(height[:, 0], [1.5, 2.5, 2.5, 9.5])  # the median for the blank
    assert height[:, 1].astype(bool).tolist() == [False, True, False, False]  # and a flag: a quarter is blank
    assert (color > 0).tolist() == [
        [False, True, False],
        [True, False, False],
        [False, True, False],
        [False, False, True],
    ]
    said = " ".join(table.notes)
    assert "One-hot encoded: color (3 features)" in said
    assert "constant or empty: flat" in said
    assert "median: height (1 cell)" in said


def test_a_row_shows_its_content_without_its_label(tmp_path):
    table = read_table(write(tmp_path / "t.csv", CSV))
    assert table.content(0) == {"id": "a1", "height": "1.5", "color": "red", "flat": "7"}
    assert table.content(1) == {"id": "a2", "color": "blue", "flat": "7"}
    with pytest.raises(IndexError, match="between 0 and 3"):
        table.content(4)
    np.savez(tmp_path / "t.npz", X=np.arange(60.0).reshape(2, 30), y=np.array([0, 1]))
    shown = read_table(tmp_path / "t.npz").content(1)
    assert (len(shown), shown["0"]) == (20, "30")


@pytest.mark.parametrize("umlauts", [1, 2000])
def test_a_latin_1_byte_in_a_utf_8_file_is_mended_and_its_line_named(tmp_path, umlauts):
    cells = [f"grün {i % 5}" if i < umlauts else f"red {i % 5}" for i in range(2500)]
    lines = [f"{i * 0.5},{cell},{'uv'[i % 2]}" for i, cell in enumerate(cells)]
    content = "\n".join(["x,farbe,label", *lines]).encode()
    broken = content.replace("5.0,grün 0".encode() if umlauts > 1 else b"5.0,red 0", b"5.0,Caf\xe9", 1)
    (tmp_path / "t.csv").write_bytes(broken)
    table = read_table(tmp_path / "t.csv")
    assert table.frame["farbe"].to_list() == [*cells[:10], "Café", *cells[11:]]
    note = "Read as UTF-8, but 1 byte that is not, as Latin-1 (Windows-1252): the first is in line 12."
    assert note in table.notes
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + broken)
    assert read_table(tmp_path / "t.csv").frame["farbe"][10] == "Café"


def test_the_encoding_survives_saving_and_encodes_a_new_file_alike(tmp_path):
    table = read_table(write(tmp_path / "t.csv", CSV))
    table.encoding.save(tmp_path)
    encoding = Encoding.load(tmp_path)
    np.testing.assert_array_equal(all_rows(tmp_path / "t.csv", encoding), table.X)
    new = write(tmp_path / "new.csv", "color,id,height,extra\ngreen,b1,,5\nblue,b2,9.5,5\n")
    rows = all_rows(new, encoding)
    np.testing.assert_array_equal(rows[0], [table.X[1, 0], table.X[1, 1], 0, 0, 0])
    np.testing.assert_array_equal(rows[1, :2], table.X[3, :2])
    assert next(iter(batches(new, encoding))).ids.tolist() == ["b1", "b2"]


NO_ROWS = "x,label\n"
LATE = "\n".join(["id,flat,x,label", *(f"{i},c,{i + 1}e307,{'uv'[i % 2]}" for i in range(30))])
LAND = "\n".join(["a,land,label", *(f"{i},{('DE', 'FR')[i % 2]},{'xy'[i % 2]}" for i in range(12))])
PACKED = b"\x00\xff" * 100
# Name, content and options of a file that is not read, and what the one line of error says.
REFUSED = [
    (
        "t.csv",
        "a,b\n1,u\n2,v\n",
        {},
        r"no column named label, y, class or target.*'b'.*--label.*`sobgnn label` opens a page",
    ),
    ("t.csv", "a,label\n1,\n2,\n", {}, "`sobgnn label` opens a page"),
    ("t.csv", "a,y\n1,u\n2,v\n", {"label": "z"}, "--label names 'z'"),
    ("t.csv", "1,2\n1,2\n", {}, "looks like data"),
    ("t.csv", CSV, {"identity": "label"}, "'label' holds the labels"),
    ("t.csv", CSV, {"drop": ["label"]}, "'label' holds the labels"),
    ("t.csv", CSV, {"drop": ["height", "color", "flat", "id"]}, "No column is left"),
    ("t.csv", CSV, {"text_model": "./nowhere"}, "There is no folder '.*nowhere' with a model"),
    ("t.csv", CSV, {"image_model": "nowhere"}, "no model 'nowhere' on this machine, and the hub cannot be reached"),
    ("t.csv", LAND, {"identity": "land"}, "its 2 values do not identify 12 rows"),
    ("t.csv", LATE, {}, r"left to learn from: id \(ids\), flat \(constant\), x \(too large\), label \(labels\)\. Give"),
    ("t.csv", "a,y,a,y\n1,u,2,v\n2,v,1,u\n", {"label": "y"}, "t.csv has more than one column 'y'.*--drop y_2"),
    ("t.csv", "id,a,y,id\n1,5,u,3\n2,6,v,4\n", {"identity": "id"}, "t.csv has more than one column 'id'.*--drop id_2"),
    ("t.csv", NO_ROWS, {}, "has no rows"),
    ("t.csv", b"PK\x03\x04" + PACKED, {}, r"Name an Excel file \.xlsx"),
    ("t.csv", b"\xd0\xcf\x11\xe0" + PACKED, {}, r"Name an Excel file \.xlsx"),
    *(("t.csv", CSV, {"encoding": n}, "--encoding must be a codec of Python") for n in ("klingon", "base64", "")),
    ("t.npz", b"", {"encoding": "gbk"}, "--encoding is for text files"),
    ("cat.png", b"x", {}, "Pictures are given as a folder, but got the file 'cat.png'"),
    ("cat.heic", b"x", {}, "Pictures are given as a folder"),
    ("t.xls", b"x", {}, r"Save the sheet as \.xlsx or CSV"),
    ("t.doc", b"x", {}, r"must end in \.csv, .*\.txt\.gz, .*\.xlsx, .*\.npy, but got"),
]


@pytest.mark.parametrize(("name", "content", "options", "said"), REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(tmp_path, name, content, options, said):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"^[^\n]*{said}[^\n]*$"):
        read_table(tmp_path / name, **options)


def test_a_missing_column_and_words_in_place_of_numbers_are_named(tmp_path):
    encoding = read_table(write(tmp_path / "t.csv", CSV)).encoding
    with pytest.raises(ValueError, match=r"Missing column 'height'.*color"):
        all_rows(write(tmp_path / "n.csv", "color\nred\n"), encoding)
    with pytest.raises(ValueError, match=r"'height' must hold numbers, but row 1 \(counted from 0\) holds 'tall'"):
        all_rows(write(tmp_path / "n.csv", "color,height\nred,1\nred,tall\n"), encoding)


@pytest.mark.parametrize("name", ["Label", " y", "CLASS", "target"])
def test_the_label_column_is_found_by_name(tmp_path, name):
    assert read_table(write(tmp_path / "t.csv", f"a,{name}\n1,u\n2,v\n")).classes == ["u", "v"]


def test_a_table_without_labels_can_be_read_for_labelling(tmp_path):
    table = read_table(write(tmp_path / "t.csv", "a,b\n1,u\n2,v\n"), need_labels=False)
    assert (table.codes.tolist(), list(table.classes)) == ([-1, -1], [])
    assert table.labels(table.codes).tolist() == [None, None]
    begun = read_table(write(tmp_path / "t.csv", "a,label\n1,u\n2,\n"), need_labels=False)
    assert (begun.codes.tolist(), list(begun.classes)) == ([0, -1], ["u"])


def test_parquet_and_csv_give_the_same_table(tmp_path):
    csv = read_table(write(tmp_path / "t.csv", CSV))
    pl.read_csv(CSV.encode(), null_values=["?"]).write_parquet(tmp_path / "t.parquet")
    parquet = read_table(tmp_path / "t.parquet")
    np.testing.assert_array_equal(parquet.X, csv.X)
    assert (parquet.codes.tolist(), parquet.ids.tolist()) == (csv.codes.tolist(), csv.ids.tolist())
    np.testing.assert_array_equal(all_rows(tmp_path / "t.parquet", csv.encoding), csv.X)


@pytest.mark.parametrize("block", [1, 7, 64, 10_000])
def test_blocks_of_any_size_give_the_whole_csv(tmp_path, monkeypatch, block):
    text = 'a,t,y\n1,"x, ""quoted""\nover two lines",u\n2,x,v\n\n3,"y",u\r\n4,y,v\n\n'
    table = read_table(write(tmp_path / "t.csv", text))
    monkeypatch.setattr(formats, "BLOCK_BYTES", block)
    # The blank line is a row of blanks, so that rows after it keep their place; those at the end are none.
    rows = all_rows(tmp_path / "t.csv", table.encoding)
    np.testing.assert_array_equal(rows, table.X)
    assert table.frame["a"].to_list() == ["1", "2", "", "3", "4"]
    assert "Empty rows, whose predictions mean nothing: 1 (first: row 2)." in table.notes


def test_a_model_of_unnamed_features_takes_a_table_with_as_many_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(4), y=np.array([0, 1, 0, 1]))
    encoding = read_table(tmp_path / "t.npz").encoding
    encoding.save(tmp_path)
    encoding = Encoding.load(tmp_path)
    new = write(tmp_path / "n.csv", "a,b,c,d,label\n1,2,3,4,0\n")
    np.testing.assert_array_equal(all_rows(new, encoding), [[1, 2, 3, 4]])
    with pytest.raises(ValueError, match="4 unnamed features, but the file has 2"):
        all_rows(write(tmp_path / "n.csv", "a,b\n1,2\n"), encoding)


def test_streaming_a_csv_holds_a_few_blocks_and_not_the_file(tmp_path, monkeypatch):
    rows = [",".join(f"{v:.9f}" for v in r) for r in np.random.default_rng(0).random((10_000, 20))]
    head = ",".join(f"c{i}" for i in range(20)) + ",y\n"
    lines = [f"{row},{'uv'[i % 2]}\n" for i, row in enumerate(rows)]
    encoding = read_table(write(tmp_path / "small.csv", head + "".join(lines[:100]))).encoding
    path = write(tmp_path / "big.csv", head + "".join(lines))
    monkeypatch.setattr(formats, "BLOCK_BYTES", 2**16)
    tracemalloc.start()
    count = sum(len(batch.X) for batch in batches(path, encoding))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 10_000
    assert peak < path.stat().st_size / 3


def test_a_stray_quote_neither_holds_the_file_nor_joins_its_rows(tmp_path):
    lines = [f'{i},{i % 7}" pipe,u\n' if i == 5 else f"{i % 11},{i % 7},{'uv'[i % 2]}\n" for i in range(50)]
    lines[20] = '3,"5 inch,v\n'
    path = write(tmp_path / "t.csv", "a,b,y\n" + "".join(lines))
    table = read_table(path)
    assert table.frame.height == 50
    assert table.frame["b"][5] == '5" pipe'
    assert table.frame["b"][20] == '"5 inch'
    assert any("Unclosed quotes" in note for note in table.notes)
    assert sum(batch.X.shape[0] for batch in batches(path, table.encoding)) == 50


@pytest.mark.parametrize("stray", ['1,"5 inch,v\n', '"1,5,v\n', '1","5,v\n'])
def test_many_stray_quotes_join_no_rows_and_lines_are_read_a_few_times_at_most(tmp_path, monkeypatch, stray):
    lines = [stray if i % 3 == 0 else f"{i % 11},{i % 7},{'uv'[i % 2]}\n" for i in range(3000)]
    path = write(tmp_path / "t.csv", "a,b,y\n" + "".join(lines))
    read = 0
    plain = csv.reader

    def counted(lines, **options):
        def each():
            nonlocal read
            for line in lines:
                read += 1
                yield line

        return plain(each(), **options)

    monkeypatch.setattr("csv.reader", counted)
    monkeypatch.setattr(records, "_LONGEST_RECORD", 2**12)
    assert sum(frame.height for frame in open_reader(path).frames()) == 3000
    assert read < 10 * 3000


@pytest.mark.parametrize("between", ["", "4,'\"',c\n"])
def test_lines_that_repeat_the_header_are_no_rows_and_no_class(tmp_path, between):
    head, rows = "size, kind,label\n", "1,u,a\n2,v,b\n3,u,a\n" + between
    table = read_table(write(tmp_path / "t.csv", head + rows + head + rows))
    assert table.classes == sorted({"a", "b", *between[-2:-1]})
    assert table.X.shape[0] == 6 + 2 * bool(between)
    assert "Lines that repeat the header were left out: 1." in table.notes
    assert sum(batch.X.shape[0] for batch in batches(tmp_path / "t.csv", table.encoding)) == table.X.shape[0]


def test_the_column_that_is_probably_meant_is_named_first_among_many(tmp_path):
    path = write(tmp_path / "t.csv", ",".join([*"abcdefghij", "klasse"]) + "\n" + ",".join("1" * 11) + "\n")
    with pytest.raises(ValueError, match=r"'klass', but the columns of t.csv are 'klasse', 'a', .*, …. Did you mean"):
        read_table(path, "klass")


def test_names_of_files_and_of_data_sets_are_told_apart(tmp_path):
    assert is_file_name("no/such.csv")
    assert is_file_name(str(tmp_path))
    assert not is_file_name("digits")
    assert file_stem(tmp_path / "a.b.csv.gz") == "a.b"


def test_a_column_that_came_with_the_labels_is_left_out(tmp_path):
    rng, known = np.random.default_rng(0), np.arange(60) < 25
    team = np.where(rng.random(60) < 0.5, "red", "blue")
    given, seen = np.where(known, team, ""), np.where(rng.random(60) < 0.5, "seen", "")
    frame = pl.DataFrame({"size": rng.normal(size=60), "reviewed_as": given, "note": seen, "team": given})
    frame.write_csv(tmp_path / "a.csv")
    table = read_table(tmp_path / "a.csv", "team")
    assert table.encoding.names == {"size", "note"}
    assert any("filled almost only in labeled rows: reviewed_as" in note for note in table.notes)
    # Where every row has its label, a full column tells nothing of how it came there.
    frame.with_columns(team=pl.Series(team), reviewed_as=pl.Series(team)).write_csv(tmp_path / "b.csv")
    assert "reviewed_as" in read_table(tmp_path / "b.csv", "team").encoding.names


def test_structs_and_durations_in_parquet_are_encoded_alike_by_fit_and_predict(tmp_path):
    frame = pl.DataFrame({
        "s": [{"k": float(i), "kind": "abc"[i % 3]} for i in range(30)],
        "took": pl.Series([i * 1000 for i in range(30)]).cast(pl.Duration("ms")),
        "label": ["u", "v", "w"] * 10,
    })  # fmt: skip
    frame = frame.with_columns(raw=pl.Series([b"\xff\x01", b"\xff\x02"] * 15))
    frame.write_parquet(tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    assert table.encoding.encoder.outcomes_["raw"] == "bytes"
    np.testing.assert_array_equal(all_rows(tmp_path / "rows.parquet", table.encoding), table.X)


def test_labels_and_ids_may_repeat_if_the_others_are_left_out(tmp_path):
    path = write(tmp_path / "t.csv", "id,a,y,id,y\n1,5,u,3,v\n2,6,v,4,u\n")
    table = read_table(path, "y", "id", ["id_2", "y_2"])
    assert (table.classes, table.ids.tolist(), table.encoding.names) == (["u", "v"], ["1", "2"], {"a"})


def test_a_column_that_is_there_more_often_than_the_model_knows_it_is_an_error(tmp_path):
    once = read_table(write(tmp_path / "t.csv", "a,b,y\n1,5,u\n2,7,v\n4,6,u\n")).encoding
    path = write(tmp_path / "n.csv", "a,b,c,c,a\n1,5,0,0,2\n")
    with pytest.raises(ValueError, match="more columns 'a' than the model was fitted with"):
        all_rows(path, once)
    all_rows(write(tmp_path / "n.csv", "a,b,c,c\n1,5,0,0\n"), once)  # columns that it does not read may repeat


@pytest.mark.parametrize("drop", [[], ["a_2"]])
def test_a_file_whose_columns_repeat_is_predicted_as_it_was_fitted(tmp_path, drop):
    path = write(tmp_path / "t.csv", "a,b,a,y\n1,5,3,u\n2,7,9,v\n4,6,4,u\n")
    table = read_table(path, drop=drop)
    table.encoding.save(tmp_path)
    np.testing.assert_array_equal(all_rows(path, Encoding.load(tmp_path)), table.X)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        (
            range(99),
            "Rows are named by column 'id', which is no feature then. 2 rows share theirs with others, such as '0'.",
        ),
        (
            [i % 7 for i in range(99)],
            "Column 'id' repeats values, so it is a feature. If it should not be, leave it out: --drop id.",
        ),
    ],
)
def test_an_id_column_with_repeats_is_said_to_be_what_it_is(tmp_path, ids, said):
    lines = [f"{name},{i / 7:.3f},{'uv'[i % 2]}" for i, name in enumerate([*ids, 0])]
    assert said in read_table(write(tmp_path / "t.csv", "\n".join(["id,x,label", *lines]))).notes


def test_a_column_that_tells_every_label_is_mentioned(tmp_path):
    rows = [f"{i * 7 % 60},{('there', 'gone')[i % 2]},{i % 3},{'nv'[i % 2] if i < 40 else ''}" for i in range(60)]
    notes = read_table(write(tmp_path / "t.csv", "\n".join(["x,left it,z,label", *rows]))).notes
    said = "'left it' determines the label of all 40 labeled rows"
    assert any(said in note and "--drop 'left it'" in note for note in notes)


@pytest.mark.parametrize("header", [None, "size,kind,answer"])
def test_the_first_row_of_categories_is_no_header_and_a_header_may_be_repeated(tmp_path, header):
    rows = [f"{('high', 'low')[i % 2]},{('big', 'small')[i // 2 % 2]},{('ok', 'bad')[i % 3 == 0]}" for i in range(30)]
    lines = rows if header is None else [header, *rows, header, *rows]
    table = read_table(write(tmp_path / "t.csv", "\n".join(lines)), need_labels=False)
    names = table.encoding.encoder.feature_names_in_.tolist()
    assert names == (["column_1", "column_2", "column_3"] if header is None else header.split(","))
    said = "The first line holds data, so columns are called column_1 to column_3."
    assert (said in table.notes) == (header is None)


def test_rows_with_too_few_or_too_many_cells_are_counted(tmp_path):
    lines = ["a,b,label", *(f"{i},{i % 7},{'uv'[i % 2]}" for i in range(40))]
    lines[1], lines[6], lines[9], lines[12] = lines[1] + ",7", "5,3", "8", lines[12] + ",7"
    lines.insert(21, "")
    notes = read_table(write(tmp_path / "t.csv", "\n".join(lines))).notes
    assert "Rows with fewer cells than columns: 2 (first: row 5). Their last cells are treated as blank." in notes
    assert "Rows with more cells than columns: 2 (first: row 0). Their last cells were left out." in notes


def test_a_column_without_a_name_is_named_where_none_is_left(tmp_path):
    pl.DataFrame({"label": ["a"], "": [0.5]}).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match="No column is left to learn from: label"):
        read_table(tmp_path / "t.parquet", need_labels=False)


CELLS = {
    "shift_jis": ["東京のデータ", "大阪のデータ", "カタカナ", "ひらがな"],
    "gbk": ["北京数据", "上海数据", "广州", "深圳"],
    "cp1251": ["Москва", "Казань", "Самара", "Уфа"],
    "cp850": ["Größe", "für", "über", "Straße"],
}


@pytest.mark.parametrize("name", CELLS)
def test_other_encodings_are_refused_and_read_where_they_are_named(tmp_path, name):
    path = tmp_path / "t.csv"
    rows = [f"{CELLS[name][i % 4]},{i / 7},{'uv'[i % 2]}" for i in range(40)]
    path.write_bytes("\n".join(["a,x,label", *rows, ""]).encode(name))
    with pytest.raises(ValueError, match=r"neither UTF-8 nor Latin-1.*--encoding"):
        read_table(path)
    table = read_table(path, encoding=name)
    assert table.frame["a"][0] == CELLS[name][0]
    assert f"Read as {name}, as --encoding says." in table.notes
    with pytest.raises(ValueError, match="--encoding"):
        next(batches(path, table.encoding))
    np.testing.assert_array_equal(next(batches(path, table.encoding, name)).X, table.X)


def patients(codes, name="PatID"):
    """A table of patients: a code, a number, and labels on half of the rows."""
    rows = [f"{code};{i % 13},5;{'ab'[i % 2] if i % 4 < 2 else ''}" for i, code in enumerate(codes)]
    return "\n".join([f"{name};size;label", *rows]) + "\n"


CODES = [f"P-{10_000 + 7 * i}" for i in range(60)]


@pytest.mark.parametrize(
    ("codes", "end"),
    [
        (CODES, ";;\n" * 20),
        ([*CODES[:-1], CODES[0]], ""),
        ([*CODES[:-1], ""], ""),
        ([*CODES[:-2], "", CODES[0]], ";;\n"),
    ],
)
def test_codes_identify_rows_though_some_rows_are_empty_and_a_few_codes_repeat_or_lack(tmp_path, codes, end):
    table = read_table(write(tmp_path / "t.csv", patients(codes) + end))
    assert table.encoding.id == "PatID"
    assert table.ids.tolist()[: len(codes)] == codes
    assert table.encoding.names == {"size"}


def test_codes_that_often_repeat_and_counts_that_hardly_do_are_no_ids(tmp_path):
    assert read_table(write(tmp_path / "t.csv", patients([*CODES[:50], *CODES[:10]]))).encoding.id is None
    counts = [*range(59), 0]
    assert read_table(write(tmp_path / "t.csv", patients(counts, "stock"))).encoding.id is None
    assert read_table(write(tmp_path / "t.csv", patients(counts, "KundenNr"))).encoding.id == "KundenNr"


def test_a_column_without_repeats_is_the_id_before_one_with_some(tmp_path):
    rows = [f"{b};{c};{i % 13}" for i, (b, c) in enumerate(zip([CODES[1], *CODES[1:]], reversed(CODES), strict=True))]
    table = read_table(write(tmp_path / "t.csv", "\n".join(["b;c;label", *rows])), drop=[], need_labels=False)
    assert table.encoding.id == "c"


def test_empty_rows_are_counted_and_count_as_far_in_a_new_file(tmp_path):
    table = read_table(write(tmp_path / "t.csv", patients(CODES) + ";;\n;;a\n"))
    assert "Empty rows, whose predictions mean nothing: 2 (first: row 60)." in table.notes
    part = next(
        batches(write(tmp_path / "n.csv", f"PatID;size;label\n{CODES[0]};1,5;\n;;\nP-1;;\n;;a\n"), table.encoding)
    )
    assert part.empty.tolist() == part.beyond.tolist() == [False, True, False, True]
    assert part.gappy.tolist() == [False, True, True, True]


@pytest.mark.parametrize(
    ("text", "separator", "decimal"),
    [
        ("x;label\n1,5;a\n2,5;b\n3,5;a\n", ";", ","),
        ("x\tlabel\n1,5\ta\n2,5\tb\n3,5\ta\n", ";", ","),
        ("x;label\n1;a\n2;b\n4;a\n", ";", ","),
        ("x;label\n1;a\n2;b\n3;a\n5;b\n", ";", ","),
        ("x;label\n1.5;a\n2.5;b\n4.5;a\n", ";", "."),
        ("x,label\n1.5,a\n2.5,b\n4.5,a\n", ",", "."),
        ("x\tlabel\n1.5\ta\n2.5\tb\n4.5\ta\n", ",", "."),
    ],
)
def test_a_spreadsheet_gets_the_separator_and_decimal_sign_of_the_file(tmp_path, text, separator, decimal):
    table = read_table(write(tmp_path / "t.csv", text))
    sheet = table.encoding.sheet(table.separator)
    assert (sheet.separator, sheet.decimal) == (separator, decimal)
    assert tables.file_sheet(tmp_path / "t.csv", table.encoding) == sheet


@pytest.mark.parametrize("text", [None, "", "a,b\n1,2\n3,4\n"])
def test_a_wrong_file_is_named_before_large_libraries_are_imported(tmp_path, text):
    path = tmp_path / "t.csv"
    if text is not None:
        write(path, text)
    code = "\n".join(
        [
            "import sys, pathlib, sobgnn.tables",
            "try:",
            "    sobgnn.tables.read_table(pathlib.Path(sys.argv[1]))",
            "except ValueError:",
            "    print(sorted({'torch', 'sklearn', 'pandas', 'PIL'} & set(sys.modules)))",
        ]
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "[]\n"
