from __future__ import annotations

import gzip
import json
import tracemalloc

import numpy as np
import polars as pl
import pytest
import scipy.sparse as sp

from sobgnn.runtime.files import atomic_file
from sobgnn.tables import batches, file_stem, frames, is_file_name, npz, read_table, write_predictions
from sobgnn.tables.encoding import Encoding, parse_labels


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def all_rows(path, encoding):
    parts = list(batches(path, encoding))
    assert [part.first_row for part in parts] == list(np.cumsum([0, *(len(p.X) for p in parts[:-1])]))
    return np.concatenate([part.X for part in parts])


CSV = """\
id,height,color,note,flat,label
a1,1.5,red,first,7,yes
a2,,blue,second,7,no
a3,2.5,red,third,7,
a4,9.5,?,fourth,7,yes
"""


def test_a_csv_becomes_features_classes_and_ids_by_rule(tmp_path):
    table = read_table(write(tmp_path / "t.csv", CSV), drop=["note"])
    assert table.classes == ["no", "yes"]
    assert table.codes.tolist() == [1, 0, -1, 1]
    assert table.ids.tolist() == ["a1", "a2", "a3", "a4"]
    # height with its median for the blank, then one column per colour; a blank colour is neither.
    np.testing.assert_array_equal(table.X, [[1.5, 0, 1], [2.5, 1, 0], [2.5, 0, 1], [9.5, 0, 0]])
    said = " ".join(table.notes)
    assert "One-hot encoded: color (2)" in said
    assert "constant or empty: flat" in said
    assert "median: height (1)" in said


def test_text_with_many_values_is_dropped_and_said_so(tmp_path):
    rows = "\n".join(f"{i}.5,name{i},{'ab'[i % 2]}" for i in range(50))
    table = read_table(write(tmp_path / "t.csv", "x,name,y\n" + rows))
    assert table.X.shape == (50, 1)
    assert any("more than 20 distinct values: name" in note for note in table.notes)


def test_the_encoding_survives_json_and_encodes_a_new_file_alike(tmp_path):
    table = read_table(write(tmp_path / "t.csv", CSV), drop=["note"])
    encoding = Encoding.from_json(json.loads(json.dumps(table.encoding.to_json())))
    assert encoding == table.encoding
    new = write(tmp_path / "new.csv", "color,id,height,extra\ngreen,b1,,5\nblue,b2,4,5\n")
    np.testing.assert_array_equal(all_rows(new, encoding), [[2.5, 0, 0], [4, 1, 0]])
    assert next(iter(batches(new, encoding))).ids.tolist() == ["b1", "b2"]


def test_a_missing_column_and_a_word_among_numbers_are_named(tmp_path):
    encoding = read_table(write(tmp_path / "t.csv", CSV), drop=["note"]).encoding
    with pytest.raises(ValueError, match=r"Missing column 'height'.*color"):
        all_rows(write(tmp_path / "n.csv", "color\nred\n"), encoding)
    with pytest.raises(ValueError, match="'height' must hold numbers, but row 1 holds 'tall'"):
        all_rows(write(tmp_path / "n.csv", "color,height\nred,1\nred,tall\n"), encoding)


@pytest.mark.parametrize(
    ("values", "codes", "classes"),
    [
        (["b", "a", None, "b"], [1, 0, -1, 1], ["a", "b"]),
        (["2", "10", "", "2"], [0, 1, -1, 0], [2, 10]),
        (["1.0", "3.0", None], [0, 1, -1], [1, 3]),
        (["0", "1", "-1", "2"], [0, 1, -1, 2], [0, 1, 2]),
        (["-1", "1", "", "-1"], [0, 1, -1, 0], ["-1", "1"]),
        (["-2", "-1", "3"], [0, -1, 1], [-2, 3]),
        ([" x", "x", "y "], [0, 0, 1], ["x", "y"]),
        ([True, False, None], [1, 0, -1], ["false", "true"]),
        ([0.5, 1.5, float("nan")], [0, 1, -1], ["0.5", "1.5"]),
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


def test_the_label_column_is_found_by_name_and_its_absence_is_said(tmp_path):
    for name in ("Label", " y", "CLASS", "target"):
        assert read_table(write(tmp_path / "t.csv", f"a,{name}\n1,u\n2,v\n")).classes == ["u", "v"]
    with pytest.raises(ValueError, match=r"no column named label, y, class or target.*'b'.*--label"):
        read_table(write(tmp_path / "t.csv", "a,b\n1,u\n2,v\n"))
    with pytest.raises(ValueError, match="--label names 'z'"):
        read_table(write(tmp_path / "t.csv", "a,y\n1,u\n2,v\n"), label="z")
    with pytest.raises(ValueError, match="numbers only"):
        read_table(write(tmp_path / "t.csv", "1,2\n1,2\n"))


def test_semicolons_tabs_spaces_and_gzip_are_read(tmp_path):
    expected = read_table(write(tmp_path / "t.csv", "a,b,y\n1,2,u\n3,4,v\n")).X
    for name, text in [("s.csv", "a;b;y\n1;2;u\n3;4;v\n"), ("t.tsv", "a\tb\ty\n1\t2\tu\n3\t4\tv\n")]:
        np.testing.assert_array_equal(read_table(write(tmp_path / name, text)).X, expected)
    np.testing.assert_array_equal(read_table(write(tmp_path / "p.csv", "a, b, y\n1, 2, u\n3, 4, v\n")).X, expected)
    (tmp_path / "z.csv.gz").write_bytes(gzip.compress(b"a,b,y\n1,2,u\n3,4,v\n"))
    table = read_table(tmp_path / "z.csv.gz")
    np.testing.assert_array_equal(table.X, expected)
    np.testing.assert_array_equal(all_rows(tmp_path / "z.csv.gz", table.encoding), expected)


def test_ids_stay_as_they_are_written(tmp_path):
    table = read_table(write(tmp_path / "t.csv", "code,a,y\n007,1,u\n1.10,2,v\n"), identity="code")
    assert table.ids.tolist() == ["007", "1.10"]


def test_parquet_and_csv_give_the_same_table(tmp_path):
    csv = read_table(write(tmp_path / "t.csv", CSV), drop=["note"])
    pl.read_csv(CSV.encode(), null_values=["?"]).write_parquet(tmp_path / "t.parquet")
    parquet = read_table(tmp_path / "t.parquet", drop=["note"])
    np.testing.assert_array_equal(parquet.X, csv.X)
    assert (parquet.codes.tolist(), parquet.ids.tolist()) == (csv.codes.tolist(), csv.ids.tolist())
    np.testing.assert_array_equal(all_rows(tmp_path / "t.parquet", csv.encoding), csv.X)


@pytest.mark.parametrize("block", [1, 7, 64, 10_000])
def test_blocks_of_any_size_give_the_whole_csv(tmp_path, monkeypatch, block):
    monkeypatch.setattr(frames, "_BLOCK_BYTES", block)
    text = 'a,t,y\n1,"x, ""quoted""\nover two lines",u\n2,x,v\n\n3,"y",u\r\n4,y,v'
    table = read_table(write(tmp_path / "t.csv", text))
    assert all_rows(tmp_path / "t.csv", table.encoding)[:, 0].tolist() == [1, 2, 3, 4]


def test_npz_files_dense_sparse_and_in_column_order_are_read_alike(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_BATCH_BYTES", 64)
    X = np.arange(30.0).reshape(10, 3)
    X[2, 1] = np.nan
    y = np.array([0, 1, 2, -1, 0, 1, 2, -1, 0, 1])
    names = np.array(["p", "q", "r"])
    np.savez(tmp_path / "dense.npz", X=X, y=y, class_names=names)
    np.savez_compressed(tmp_path / "fortran.npz", X=np.asfortranarray(X), y=y)
    np.savez_compressed(tmp_path / "packed.npz", X=X, y=y)
    table = read_table(tmp_path / "dense.npz")
    assert table.classes == ["p", "q", "r"]
    assert table.codes.tolist() == y.tolist()
    expected = np.where(np.isnan(X), np.nanmedian(X[:, 1]), X).astype(np.float32)
    np.testing.assert_array_equal(table.X, expected)
    for name in ("dense", "fortran", "packed"):
        np.testing.assert_array_equal(all_rows(tmp_path / f"{name}.npz", table.encoding), expected)
    csr = sp.csr_array(expected)
    parts = {"X_data": csr.data, "X_indices": csr.indices, "X_indptr": csr.indptr, "X_shape": np.array(csr.shape)}
    np.savez(tmp_path / "sparse.npz", **parts, y=y)
    np.testing.assert_array_equal(read_table(tmp_path / "sparse.npz").X.toarray(), expected)


def test_a_model_of_unnamed_features_takes_a_table_with_as_many_columns(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.eye(4), y=np.array([0, 1, 0, 1]))
    encoding = read_table(tmp_path / "t.npz").encoding
    new = write(tmp_path / "n.csv", "a,b,c,d,label\n1,2,3,4,0\n")
    np.testing.assert_array_equal(all_rows(new, encoding), [[1, 2, 3, 4]])
    with pytest.raises(ValueError, match="4 unnamed features, but the file has 2"):
        all_rows(write(tmp_path / "n.csv", "a,b\n1,2\n"), encoding)


def test_objects_in_an_npz_file_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", X=np.array([[object()]], dtype=object), y=np.array([0]))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_table(tmp_path / "t.npz")


def test_streaming_a_csv_holds_a_few_blocks_and_not_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "_BLOCK_BYTES", 2**16)
    row = ",".join(["0.123456789"] * 20)
    path = write(tmp_path / "big.csv", ",".join(f"c{i}" for i in range(20)) + ",y\n")
    with path.open("a") as file:
        file.writelines(f"{row},{'uv'[i % 2]}\n" for i in range(10_000))
    encoding = Encoding.from_json(
        {
            "columns": [{"name": f"c{i}", "kind": "number", "fill": 0, "categories": []} for i in range(20)],
            "named": True,
            "label": "y",
            "id": None,
        }
    )
    tracemalloc.start()
    rows = sum(len(batch.X) for batch in batches(path, encoding))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 10_000
    assert peak < path.stat().st_size / 3


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = write(tmp_path / "out.csv", "before")

    def fail_midway():
        with atomic_file(target) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_midway()
    assert target.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    with atomic_file(target) as file:
        write_predictions(
            file, ["u", "v"], 5, np.array(["v"]), np.array([[0.25, 0.75]]), np.array(["a,b"]), header=True
        )
    assert target.read_text() == 'row,id,label,probability_u,probability_v\n5,"a,b",v,0.250000,0.750000\n'


def test_names_of_files_and_of_data_sets_are_told_apart(tmp_path):
    assert is_file_name("no/such.csv")
    assert is_file_name(str(tmp_path))
    assert not is_file_name("digits")
    assert file_stem(tmp_path / "a.b.csv.gz") == "a.b"
