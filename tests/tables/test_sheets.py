"""Excel sheets."""

from __future__ import annotations

import gzip
import zipfile
from xml.sax.saxutils import escape

import numpy as np
import polars as pl
import pytest

from sobgnn import cli
from sobgnn.tables import batches, read_table

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"


class Day(float):
    """A day as Excel counts it, in a cell formatted as a date."""


def cell(value):
    if isinstance(value, bool):
        return f'<c t="b"><v>{int(value)}</v></c>'
    if isinstance(value, Day):
        return f'<c s="1"><v>{float(value)}</v></c>'
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{escape(value)}</t></is></c>'
    return "<c/>" if value is None else f"<c><v>{value}</v></c>"


def workbook(path, **sheets):
    """An Excel file of sheets, each a list of rows."""
    names = "".join(f'<sheet name="{n}" sheetId="{i}" r:id="s{i}"/>' for i, n in enumerate(sheets, 1))
    parts = "".join(
        f'<Relationship Id="s{i}" Type="{OFFICE}/worksheet" Target="{i}.xml"/>' for i in range(1, len(sheets) + 1)
    )
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{PACKAGE}/content-types"/>')
        file.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{PACKAGE}/relationships"><Relationship Id="r" Type="{OFFICE}/officeDocument" '
            'Target="xl/workbook.xml"/></Relationships>',
        )
        book = f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets>{names}</sheets></workbook>'
        file.writestr("xl/workbook.xml", book)
        parts += f'<Relationship Id="f" Type="{OFFICE}/styles" Target="styles.xml"/>'
        file.writestr(
            "xl/_rels/workbook.xml.rels", f'<Relationships xmlns="{PACKAGE}/relationships">{parts}</Relationships>'
        )
        styles = f'<styleSheet xmlns="{MAIN}"><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs></styleSheet>'
        file.writestr("xl/styles.xml", styles)
        for i, rows in enumerate(sheets.values(), 1):
            data = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
            file.writestr(f"xl/{i}.xml", f'<worksheet xmlns="{MAIN}"><sheetData>{data}</sheetData></worksheet>')
    return path


ROWS = [[i / 7, Day(45000 + 3 * i), i % 3 == 0, "red" if i % 2 else "blue", "uv"[i % 2]] for i in range(30)]
ROWS[4] = [None, None, None, "blue", None]
HEADER = ["size", "day", "new", "color", "label"]


def test_a_sheet_is_read_as_the_same_table_in_a_csv_file(tmp_path):
    path = workbook(tmp_path / "t.xlsx", data=[["Export of 2024"], [], HEADER, *ROWS], notes=[])
    table = read_table(path)
    days = np.datetime64("1899-12-30") + np.arange(45000, 45090, 3)
    lines = [f"{i / 7},{days[i]},{str(i % 3 == 0).lower()},{row[3]},{row[4]}" for i, row in enumerate(ROWS)]
    lines[4] = ",,,blue,"
    (tmp_path / "t.csv").write_text("\n".join([",".join(HEADER), *lines]))
    plain = read_table(tmp_path / "t.csv")
    assert table.encoding.encoder.outcomes_ == plain.encoding.encoder.outcomes_
    assert table.encoding.encoder.outcomes_ == dict.fromkeys(("new", "color"), "categories") | {
        "size": "number", "day": "date",
    }  # fmt: skip
    np.testing.assert_allclose(table.X, plain.X, atol=1e-6)
    assert (table.classes, table.codes.tolist()) == (plain.classes, plain.codes.tolist())
    assert "Lines above the header were skipped: 1." in table.notes
    np.testing.assert_array_equal(next(batches(path, table.encoding)).X, table.X)
    np.testing.assert_allclose(next(batches(path, plain.encoding)).X, plain.X, atol=1e-6)


def test_of_several_sheets_one_is_named(tmp_path, capsys):
    path = workbook(tmp_path / "t.xlsx", old=[HEADER, *ROWS[:9]], current=[HEADER, *ROWS], empty=[])
    with pytest.raises(ValueError, match=r"^t\.xlsx has 2 sheets: 'old', 'current'\. Name one with --sheet\.$"):
        read_table(path)
    with pytest.raises(ValueError, match=r"^--sheet names 'last', but t\.xlsx has 'old', 'current', 'empty'\.$"):
        read_table(path, sheet="last")
    with pytest.raises(ValueError, match=r"t\.xlsx is empty"):
        read_table(path, sheet="empty")
    table = read_table(path, sheet="current")
    assert table.frame.height == 30
    assert next(batches(path, table.encoding, sheet="old")).X.shape[0] == 9
    (tmp_path / "t.csv").write_text("a,label\n1,u\n2,v\n")
    with pytest.raises(ValueError, match="--sheet is for Excel files"):
        read_table(tmp_path / "t.csv", sheet="old")
    assert cli.main(["fit", str(path), "--out", str(tmp_path / "run")]) == 2
    assert "Name one with --sheet" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["t.parquet", "t.csv.gz", "t.xlsx"])
@pytest.mark.parametrize("part", [0.0, 0.5, 0.9])
def test_a_damaged_file_is_said_in_words_of_no_library(tmp_path, name, part):
    whole, path = tmp_path / f"whole.{name}", tmp_path / name
    if name.endswith("gz"):
        whole.write_bytes(gzip.compress(b"x,label\n" + np.random.default_rng(0).bytes(9999).hex(",").encode()))
    elif name.endswith("xlsx"):
        workbook(whole, a=[["x", "label"], *([i, "uv"[i % 2]] for i in range(99))])
    else:
        pl.DataFrame({"x": range(99), "label": ["u", "v", "u"] * 33}).write_parquet(whole)
    path.write_bytes(whole.read_bytes()[: int(part * whole.stat().st_size)] or b"junk")
    said = rf"^{name} cannot be read: it is damaged, cut off, or not what its name says\. Copy or save it again\.$"
    with pytest.raises(ValueError, match=said):
        read_table(path)


def test_a_sheet_with_a_cell_far_from_all_others_is_refused(tmp_path):
    path = workbook(tmp_path / "t.xlsx", a=[["x", "label"], *([i, "uv"[i % 2]] for i in range(9))])
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    parts["xl/1.xml"] = parts["xl/1.xml"].replace(
        b"</sheetData>", b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row></sheetData>'
    )
    with zipfile.ZipFile(path, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    with pytest.raises(
        ValueError, match=r"^t\.xlsx cannot be read: it has 1 cells, spread over 1,048,576 rows and 16,384"
    ):
        read_table(path)


def test_a_workbook_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = workbook(tmp_path / "t.xlsx", a=[["x", "label"], [1, "u"], [2, "v"]])
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file, file.open("xl/sharedStrings.xml", "w") as part:
        for _ in range(520):
            part.write(bytes(2**20))
    with pytest.raises(ValueError, match=r"^t\.xlsx cannot be read: its [\d,]+ bytes unpack to over [\d,]+\.$"):
        read_table(path)


def test_without_the_package_that_reads_excel_the_way_out_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("sobgnn.tables.reading.readers.installed", lambda name: False)
    path = workbook(tmp_path / "t.xlsx", data=[HEADER, *ROWS])
    with pytest.raises(ValueError, match=r'install it with `pip install "sobgnn\[excel\]"`, or save the sheet as CSV'):
        read_table(path)
