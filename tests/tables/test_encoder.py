from __future__ import annotations

import contextlib
import datetime as dt
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import sobgnn
from sobgnn.tables import Encoding, TableEncoder

ROWS = 60
WORDS = ["server", "down", "invoice", "paid", "refund", "login", "password", "reset"]


def messy(rows=ROWS):
    rng = np.random.default_rng(0)
    day = [dt.date(2024, 1, 1) + dt.timedelta(days=5 * i) for i in range(rows)]
    return {
        "id": np.arange(rows),
        "number": rng.normal(size=rows),
        "german": [f"{v:.2f}".replace(".", ",") for v in rng.normal(size=rows)],
        "gaps": np.where(rng.random(rows) < 0.3, np.nan, rng.normal(size=rows)),
        "color": rng.choice(["red", "green", "blue"], rows),
        "tags": ["; ".join(rng.choice(list("uvwxyz"), 2, replace=False)) for _ in range(rows)],
        "day": [d.strftime("%d.%m.%Y") for d in day],
        "name": [f"{['Ann', 'Bob', 'Cleo', 'Dave'][i % 4]} Number{i * 7}" for i in range(rows)],
        "body": [" ".join(rng.choice(WORDS, 12)) for _ in range(rows)],
        "vector": [rng.normal(size=4) for _ in range(rows)],
        "flat": ["x"] * rows,
        "nothing": [None] * rows,
        "moment": [dt.datetime(2024, 1, 1) + dt.timedelta(hours=37 * i) for i in range(rows)],
        "yes": [True, False, None] * (rows // 3),
    }


OUTCOMES = {
    "id": "id", "number": "number", "german": "number", "gaps": "number", "color": "categories", "tags": "set",
    "day": "date", "name": "short text", "body": "text", "vector": "vectors", "flat": "constant", "nothing": "empty",
    "moment": "date", "yes": "number",
}  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    encoder = TableEncoder()
    return encoder, encoder.fit_transform(pd.DataFrame(messy()))


def test_pandas_polars_and_dictionaries_give_the_same_features(fitted):
    encoder, X = fitted
    assert encoder.outcomes_ == OUTCOMES
    for table in (pl.DataFrame(messy()), messy()):
        other = TableEncoder()
        np.testing.assert_array_equal(other.fit_transform(table), X)
        assert other.notes_ == encoder.notes_
    assert X.dtype == np.float32
    assert np.isfinite(X).all()


def test_it_is_a_transformer_like_any_other(fitted):
    encoder, X = fitted
    assert sobgnn.TableEncoder is TableEncoder
    assert clone(encoder).get_params() == encoder.get_params()
    names = encoder.get_feature_names_out()
    assert len(names) == X.shape[1] == len(set(names)) == encoder.n_features_out_
    assert {"number", "color=red", "gaps (blank)"} <= set(names)
    np.testing.assert_array_equal(encoder.transform(pd.DataFrame(messy())), X)
    np.testing.assert_array_equal(TableEncoder().fit(pl.DataFrame(messy())).transform(messy()), X)
    with pytest.raises(ValueError, match="not fitted yet"):
        TableEncoder().transform(messy())


def test_rows_are_encoded_one_by_one_as_together_and_columns_in_any_order(fitted):
    encoder, X = fitted
    frame = pl.DataFrame(messy())
    np.testing.assert_allclose(encoder.transform(frame[7:9]), X[7:9], atol=1e-6)
    np.testing.assert_array_equal(encoder.transform(frame.select(reversed(frame.columns))), X)
    assert encoder.transform(frame[:0]).shape == (0, X.shape[1])
    with pytest.raises(ValueError, match="Missing column 'body'"):
        encoder.transform(frame.drop("body"))


def test_columns_have_the_variance_of_their_weight(fitted):
    encoder, X = fitted
    for name, place in encoder.slices_.items():
        heavy = encoder.outcomes_[name] in ("text", "vectors")
        assert X[:, place].var(axis=0).sum() == pytest.approx(10 if heavy else 1, rel=1e-3), name
    other = TableEncoder(text_weight=3).fit(messy())
    assert other.transform(messy())[:, other.slices_["body"]].var(axis=0).sum() == pytest.approx(3, rel=1e-3)
    assert encoder.suggested_scale == "unit"
    assert TableEncoder().fit({"a": [1.0, 2.0, 3.0]}).suggested_scale == "auto"


def test_what_is_saved_holds_no_pickle_and_encodes_alike(fitted, tmp_path):
    encoder, X = fitted
    encoder.save(tmp_path / "made" / "here")
    again = TableEncoder.load(tmp_path / "made" / "here")
    np.testing.assert_array_equal(again.transform(messy()), X)
    assert (again.notes_, again.outcomes_) == (encoder.notes_, encoder.outcomes_)
    assert sorted(p.name for p in (tmp_path / "made" / "here").iterdir()) == ["encoder.json", "encoder.npz"]
    with np.load(tmp_path / "made" / "here" / "encoder.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype.kind in "fi" for name in arrays.files)


def test_what_is_loaded_has_the_settings_that_were_saved(tmp_path):
    encoder = TableEncoder(drop=["number"], text=["color"], n_components=3, random_state=5).fit(messy())
    encoder.save(tmp_path)
    again = TableEncoder.load(tmp_path)
    assert again.get_params() == encoder.get_params()
    np.testing.assert_array_equal(clone(again).fit_transform(messy()), encoder.transform(messy()))


@pytest.mark.parametrize("kind", [pd.DataFrame, dict])
def test_fields_that_the_first_row_lacks_are_read(kind):
    cells = [{"u": 0.5}, None, *({"u": i / 7, "v": {"w": (i * 37) % 11 / 3}} for i in range(50))]
    assert TableEncoder().fit(kind({"a": cells})).outcomes_ == {"a.u": "number", "a.v.w": "number"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_forged_values_that_are_not_finite_are_refused(fitted, value):
    content, arrays = fitted[0].to_parts()
    places = [(i, key) for i, entry in enumerate(content["columns"]) for key in entry if isinstance(entry[key], float)]
    assert {"center", "scale", "fill", "low", "factor"} <= {key for _, key in places}
    for i, key in places:
        bad = json.loads(json.dumps(content))
        bad["columns"][i][key] = value
        with pytest.raises(ValueError, match=r"^The table's encoding is damaged: .*finite.*\. Fit the run again\.$"):
            TableEncoder.from_parts(bad, arrays)
    for name in (name for name in arrays if arrays[name].dtype.kind == "f"):
        with pytest.raises(ValueError, match="damaged: a value is not finite"):
            TableEncoder.from_parts(content, {**arrays, name: np.full_like(arrays[name], value)})


def test_forged_values_that_repeat_and_factors_past_float32_are_refused(fitted):
    content, arrays = fitted[0].to_parts()
    kinds = {entry["kind"]: i for i, entry in enumerate(content["columns"])}
    bad = json.loads(json.dumps(content))
    bad["columns"][kinds["categories"]]["values"][1] = bad["columns"][kinds["categories"]]["values"][0]
    grams = json.loads(json.dumps(content))
    vocabulary = grams["columns"][kinds["text"]]["vocabulary"]
    vocabulary[1] = vocabulary[0]
    huge = json.loads(json.dumps(content))
    huge["columns"][kinds["number"]]["factor"] = 1e300
    for forged, said in ((bad, "a value twice"), (grams, "a value twice"), (huge, "too large")):
        with pytest.raises(ValueError, match=rf"^The table's encoding is damaged: .*{said}\. Fit the run again\.$"):
            TableEncoder.from_parts(forged, arrays)


def test_numbers_that_overflow_by_a_forged_scale_are_clipped_without_a_warning():
    content, arrays = TableEncoder().fit({"a": np.random.default_rng(0).normal(size=50)}).to_parts()
    content["columns"][0]["scale"] = 1e-320
    assert np.isfinite(TableEncoder.from_parts(content, arrays).transform({"a": [1e30, -1e30]})).all()


def test_a_damaged_encoder_is_refused_in_one_line(fitted, tmp_path):
    content, arrays = fitted[0].to_parts()
    entries = [(i, key) for i, entry in enumerate(content["columns"]) for key in entry]
    for number, (i, key) in enumerate(entries * 3):
        bad = json.loads(json.dumps(content))
        bad["columns"][i][key] = [None, {"a": []}, [[]]][number // len(entries)]
        with contextlib.suppress(ValueError):  # anything else is a fault
            assert np.isfinite(TableEncoder.from_parts(bad, arrays).transform(messy())).all()
    for name in arrays:
        for wrong in (arrays[name].astype(str), arrays[name].astype(np.float16), arrays[name][None]):
            with pytest.raises(ValueError, match=r"^The table's encoding is damaged: [^\n]*$"):
                TableEncoder.from_parts(content, {**arrays, name: wrong})
    fitted[0].save(tmp_path)
    for text in ("", "[", "3", "{}", "[" * 100_000):
        (tmp_path / "encoder.json").write_text(text)
        with pytest.raises(ValueError, match="damaged"):
            TableEncoder.load(tmp_path)


def test_wide_one_hot_tables_are_sparse_and_equal_the_dense_ones():
    rng = np.random.default_rng(0)
    table = {f"c{i}": rng.choice([f"v{j}" for j in range(30)], 200) for i in range(40)}
    encoder = TableEncoder()
    X = encoder.fit_transform(table)
    assert sp.issparse(X)
    assert X.format == "csr"
    np.testing.assert_allclose(X.toarray(), TableEncoder(sparse=False).fit_transform(table), rtol=1e-6)
    assert X.dtype == np.float32


WEIRD = {
    "one row of each kind": [1, "two", 3.5, None, True, b"x", (1, 2), {"k": 1}, dt.date(2024, 1, 1), float("nan")] * 3,
    "only infinities": [float("inf"), float("-inf")] * 15,
    "infinities and numbers": [float("inf"), 1.0, 2.0] * 10,
    "huge": [1e308, -1e308, 1.0] * 10,
    "tiny": [1e-320, 2e-320, 3e-320] * 10,
    "huge whole numbers": [2**70, 2**70 + 1, 3] * 10,
    "only blanks": ["", "NA", None] * 10,
    "blanks and one value": ["", "a", None] * 10,
    "spaces": [" ", "\t", "\u00a0"] * 10,
    "zero characters": ["a\0", "a", "\0"] * 10,
    "emoji": ["🙂", "🙃", "🌲"] * 10,
    "unique emoji": [chr(0x1F300 + i) * 3 for i in range(30)],
    "chinese text": [f"服务器已经停止响应请尽快处理{i}号机房" * 3 for i in range(30)],
    "lone surrogates": ["\ud800", "b", "c"] * 10,
    "long strings": ["word " * 5000, "other " * 5000, "x"] * 10,
    "one very long word": ["x" * 100_000, "y", "z"] * 10,
    "ragged lists": [[1.0], [1.0, 2.0], []] * 10,
    "empty lists": [[]] * 30,
    "lists with holes": [[1.0, None], [2.0, 3.0], None] * 10,
    "vectors with NaN": [[1.0, float("nan")], [2.0, 3.0], [4.0, 5.0]] * 10,
    "lists of text": [["a", "b"], ["b"], []] * 10,
    "sets": [{"a", "b"}, {"b"}, set()] * 10,
    "dictionaries": [{"k": 1}, {"k": 2, "j": 3}, {}] * 10,
    "bytes": [b"a", b"b", b"c"] * 10,
    "complex": [1 + 2j, 3j, 0j] * 10,
    "decimals and words": ["1,5", "2,5", "many"] * 10,
    "dates that are none": ["31.02.2024", "99.99.9999", "2024-13-45"] * 10,
    "early and late dates": ["0001-01-01", "9999-12-31", "2024-01-01"] * 10,
    "times": ["12:00", "25:99", "23:59:59"] * 10,
    "timedeltas": [dt.timedelta(days=1), dt.timedelta(seconds=3), None] * 10,
    "clock times": [dt.time(1, 2), dt.time(23, 59), None] * 10,
    "booleans as text": ["True", "False", ""] * 10,
    "percent and plain": ["5%", "7", "12 %"] * 10,
    "units that differ": ["5 kg", "7 g", "3 lb"] * 10,
    "formulas": ["=1+1", "@x", "-cmd"] * 10,
    "uuids": [f"{i:08x}-0000-4000-8000-{i:012x}" for i in range(30)],
    "separators only": [";;", ";", ",,,"] * 10,
    "unclosed quotes": ['"a', "'b", '"'] * 10,
    "regular expressions": ["(", "[a-", "\\"] * 10,
    "braces": ["{}", "{0}", "%s"] * 10,
}  # fmt: skip


KINDS = ("pandas", "polars", "dictionary")
# A column of polars cannot hold a lone surrogate.
PAIRS = [(name, kind) for name in WEIRD for kind in KINDS if (name, kind) != ("lone surrogates", "polars")]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_every_weird_column_gives_finite_features_and_one_line_notes(name, kind):
    values = WEIRD[name]
    table = {name: values, "other": np.arange(len(values)) % 7}
    if kind == "pandas":
        table = pd.DataFrame({name: pd.Series(values, dtype=object), "other": table["other"]})
    elif kind == "polars":
        table = pl.DataFrame(table, strict=False)
    encoder = TableEncoder()
    X = encoder.fit_transform(table)
    X = X.toarray() if sp.issparse(X) else X
    assert X.shape[0] == len(values)
    assert np.isfinite(X).all()
    assert all("\n" not in note and len(note) < 400 for note in encoder.notes_)
    assert np.isfinite(encoder.transform({name: ["surprise", None, "-7"], "other": [1, 2, 3]})).all()


OTHER_TYPES = [
    [["a"], ["b", "c"]] * 15,
    [[["a"]], [["b"], []]] * 15,
    np.ones((30, 2, 3)),
    [b"\xff", b"a"] * 15,
    [dt.timedelta(1), dt.timedelta(2)] * 15,
]


@pytest.mark.parametrize("cells", OTHER_TYPES, ids=["lists", "nested lists", "arrays", "bytes", "durations"])
def test_cells_of_a_type_that_their_column_cannot_have_are_blank_and_an_error_in_a_file(cells):
    other = pl.DataFrame({"c": cells, "n": np.arange(30) / 7})
    bodies = [f"the server {i} is {'up' if i % 2 else 'down'}" for i in range(30)]
    for fitted in (["red", "green", "blue"] * 10, bodies, [f"2024-01-{i + 1:02}" for i in range(30)]):
        encoder = TableEncoder(text_model="none").fit({"c": fitted, "n": other["n"]})
        blank = encoder.transform({"c": [None] * 30, "n": other["n"]})
        np.testing.assert_array_equal(encoder.transform(other), blank)
        with pytest.raises(ValueError, match=r"^Column 'c' held .* when the model was fitted, but holds .* here\.$"):
            Encoding(encoder).batch(other)


@pytest.mark.parametrize("kind", [pl.Categorical, pl.Enum])
def test_numbers_in_a_column_of_categories_are_numbers(kind):
    cells = [f"{i * 37 % 101 / 7:.2f}" for i in range(60)]
    table = pl.DataFrame({"a": pl.Series(cells).cast(pl.Enum(cells) if kind is pl.Enum else kind)})
    np.testing.assert_array_equal(TableEncoder().fit_transform(table), TableEncoder().fit_transform({"a": cells}))


def test_an_id_is_found_by_looking_left_out_and_said():
    rng = np.random.default_rng(0)
    table = {
        "counter": rng.permutation(100) + 5000,
        "ticket": [f"T-{i:05}" for i in range(100)],
        "uuid": [f"{i:08x}-0000-4000-8000-{i:012x}" for i in range(100)],
        "price": rng.permutation(100_000)[:100],  # all different too, but they do not count rows
        "x": rng.normal(size=100),
    }
    encoder = TableEncoder().fit(table)
    found = [name for name, outcome in encoder.outcomes_.items() if outcome == "id"]
    assert found == ["counter", "ticket", "uuid"]
    assert any("Left out, ids: counter, ticket, uuid" in note for note in encoder.notes_)


def test_an_id_alone_is_better_than_nothing():
    assert TableEncoder().fit_transform({"n": np.arange(100)}).shape == (100, 1)
    assert TableEncoder().fit_transform({"n": ["x"] * 5}).shape == (5, 0)


WORDY = {"a": ["one two three", "two three four", "three four five"] * 5}


@pytest.mark.parametrize(
    ("options", "table", "said"),
    [
        ({"text": ["b"]}, WORDY, "`text` names 'b'"),
        ({"drop": ["b"]}, WORDY, "`drop` names 'b'"),
        ({"text": "a"}, WORDY, "lists of column names"),
        ({"sparse": "no"}, WORDY, "`sparse` must be True, False or 'auto'"),
        *(
            ({"n_components": value}, WORDY, "`n_components` must be None or an integer")
            for value in (0, 1.5, "a", True)
        ),
        *(({"random_state": value}, WORDY, "`random_state` must be an integer") for value in (None, "a", -1, 0.5)),
        ({"max_categories": 1}, WORDY, "`max_categories` must be an integer of at least 2"),
        ({"text_weight": 0}, WORDY, "`text_weight` must be a positive number"),
        ({}, {"a": []}, "no rows"),
        ({}, 3, "but got int"),
        ({}, {"a": [1], "b": [1, 2]}, "one length"),
    ],
    ids=str,
)
def test_options_and_tables_are_checked_in_one_line(options, table, said):
    with pytest.raises((ValueError, TypeError), match=rf"^[^\n]*{said}[^\n]*$"):
        TableEncoder(**options).fit(table)


def test_true_and_false_of_a_file_are_the_booleans_of_a_frame():
    flags = pl.Series("flag", [True, False, None, True] * 5)
    encoder = TableEncoder().fit(pl.DataFrame([flags, pl.Series("x", range(20))]))
    as_words = ["TRUE", " false", None, "True"] * 5
    expected = encoder.transform({"flag": flags, "x": range(20)})
    np.testing.assert_array_equal(encoder.transform({"flag": as_words, "x": range(20)}), expected)
    # In other columns of numbers they are words without a number, and count as blank.
    other = TableEncoder().fit({"n": [0.0, 1.0, 0.0] * 5}).transform({"n": ["true", None, "1"]})
    assert other[0] == other[1]


def test_text_can_be_forced_and_columns_dropped():
    table = {"a": ["one two", "two three", "three one"] * 5, "b": [1.0, 2.0, 3.0] * 5}
    assert TableEncoder().fit(table).outcomes_["a"] == "categories"
    assert TableEncoder(text=["a"], drop=["b"]).fit(table).outcomes_ == {"a": "short text"}


def test_texts_of_a_small_table_are_text_although_they_are_few():
    bodies = [f"the {a} is {b} again today" for a in ("server", "router", "cable") for b in ("down", "slow", "lost")]
    table = {"body": bodies, "name": [f"Name {chr(65 + i)}nn" for i in range(9)], "color": ["red", "blue", "red"] * 3}
    found = TableEncoder().fit(table).outcomes_
    assert found == {"body": "text", "name": "short text", "color": "categories"}
