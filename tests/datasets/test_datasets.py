"""Data sets by name: small files with known hashes stand in for the real ones, which are tested where they are."""

import gzip
import hashlib
import io
import json
import os
import urllib.error
import zipfile

import numpy as np
import pytest
import scipy.sparse as sp

from sobgnn import datasets
from sobgnn.datasets import load, locate, names, news
from sobgnn.datasets.catalogue import CATALOGUE

real = pytest.mark.skipif("SOBGNN_DATA" not in os.environ, reason="SOBGNN_DATA names no folder of data files")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("SOBGNN_DATA", raising=False)
    monkeypatch.setenv("SOBGNN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


@pytest.fixture
def put(folder, monkeypatch):
    """Write a stand-in for a data set's file, and make its hash the expected one."""

    def write(name, content=None, **arrays):
        if content is None:
            buffer = io.BytesIO()
            np.savez(buffer, **arrays)
            content = buffer.getvalue()
        path = folder / CATALOGUE[name].file
        path.write_bytes(content)
        known = CATALOGUE[name]._replace(sha256=hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(datasets.CATALOGUE, name, known)
        return path

    return write


def graph_arrays():
    X = sp.random_array((5, 4), density=0.5, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    return {
        "X_data": X.data,
        "X_indices": X.indices,
        "X_indptr": X.indptr,
        "X_shape": np.array(X.shape),
        "edge_index": np.array([[0, 1, 2, 3], [1, 0, 3, 2]], np.int32),
        "y": np.array([0, 1, 0, 2, 1]),
        "splits": np.array([[1, 2, 3, 1, 0]] * 2, np.int8),
    }


def test_points_keep_their_split_groups_and_class_names(folder, put):
    X = np.arange(12.0).reshape(4, 3)
    arrays = {"split": np.array([0, 0, 1, 1], np.int8), "subject": np.array([1, 1, 2, 3], np.int16)}
    put("har", X=X, y=np.array([0, 1, 1, 0]), class_names=np.array(["SIT", "STAND"]), **arrays)
    data = load("har", folder)
    np.testing.assert_array_equal(data.X, X)
    assert (data.X.dtype, data.y.dtype, data.groups.dtype) == (np.float32, np.int64, np.int64)
    assert (data.class_names, data.edge_index) == (("SIT", "STAND"), None)
    np.testing.assert_array_equal(data.splits, [[1, 1, 3, 3]])
    np.testing.assert_array_equal(data.groups, [1, 1, 2, 3])


def test_a_graph_comes_with_sparse_features_edges_and_its_published_splits(folder, put):
    arrays = graph_arrays()
    put("texas", **arrays)
    data = load("texas", folder)
    assert data.X.shape == (5, 4)
    np.testing.assert_array_equal(data.edge_index, arrays["edge_index"])
    np.testing.assert_array_equal(data.splits, arrays["splits"])
    assert data.class_names == ("0", "1", "2")


def test_missing_entries_of_cancer_become_their_column_s_median(folder, put):
    X = np.array([[1.0, 5.0], [2.0, np.nan], [9.0, 7.0], [np.nan, 9.0]])
    arrays = {"X": X, "y": np.array([0, 1, 2, 0]), "class_names": np.array(["01_TUMOR", "02_STROMA", "08_EMPTY"])}
    put("cancer", **arrays)
    put("cancer-binary", **arrays)
    data = load("cancer", folder)
    np.testing.assert_array_equal(data.X, [[1, 5], [2, 7], [9, 7], [2, 9]])
    assert data.class_names == ("TUMOR", "STROMA", "EMPTY")
    binary = load("cancer-binary", folder)
    np.testing.assert_array_equal(binary.y, [1, 0, 0, 1])
    assert binary.class_names == ("other", "TUMOR")


def test_the_folder_comes_before_the_environment(folder, put, tmp_path, monkeypatch):
    path = put("isolet", X=np.ones((2, 2)), y=np.array([0, 1]))
    assert locate("isolet") == ("isolet", "missing", None)
    assert locate("isolet", folder) == ("isolet", "file", path)
    monkeypatch.setenv("SOBGNN_DATA", str(folder))
    assert locate("isolet").path == path
    assert locate("isolet", tmp_path).source == "missing"
    assert locate("mnist").source == "download"
    assert locate("digits").source == "shipped"


def test_digits_come_with_scikit_learn_and_are_checked_too(folder, monkeypatch):
    data = load("digits")
    assert data.X.shape == (1797, 64)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(np.bincount(data.y)[:3], [178, 182, 177])
    monkeypatch.setattr("sklearn.datasets.load_digits", lambda return_X_y: (np.zeros((3, 64)), np.arange(3)))
    with pytest.raises(ValueError, match="scikit-learn's copy of 'digits' is truncated or altered"):
        load("digits")


def refused(error, message, *given):
    with pytest.raises(error) as caught:
        load(*given)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_name_is_answered_with_close_ones_and_a_missing_file_with_where_it_was_looked_for(folder):
    refused(ValueError, "no data set 'amazon-phto'. Did you mean 'amazon-photo'", "amazon-phto")
    refused(ValueError, "Known: isolet, har", "zzzz")
    refused(FileNotFoundError, f"isolet.npz is not in {folder}", "isolet", folder)
    refused(FileNotFoundError, "SOBGNN_DATA is not set and no folder was given. Set SOBGNN_DATA to", "cora")


@pytest.mark.parametrize(("name", "fetcher"), [("mnist", "fetch_openml"), ("20news", "fetch_20newsgroups")])
def test_no_network_is_one_line_that_says_how_to_get_the_file(folder, monkeypatch, name, fetcher):
    def offline(*args, **kwargs):
        raise urllib.error.URLError("Name or service not known")

    monkeypatch.setattr(f"sklearn.datasets.{fetcher}", offline)
    refused(FileNotFoundError, "could not be downloaded", name)
    refused(FileNotFoundError, CATALOGUE[name].file, name)


def test_an_altered_or_truncated_file_is_refused_before_it_is_read(folder, put):
    path = put("isolet", X=np.ones((2, 2)), y=np.array([0, 1]))
    whole = path.read_bytes()
    for broken in (whole[:-40], b"", whole + b" "):
        path.write_bytes(broken)
        refused(ValueError, "isolet.npz is truncated or altered: its sha256 is", "isolet", folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("isolet", b"PK\x03\x04 no archive", "isolet.npz cannot be read as the file of 'isolet'"),
        ("20news", b"text", "20news.jsonl.gz cannot be read as the file of '20news'"),
        ("cora", {"y": None}, "y"),
        ("cora", {"X_indptr": None}, "X_indptr"),
        ("cora", {"y": np.zeros(4, int)}, "y has 4 entries for 5 rows"),
        ("cora", {"splits": np.zeros((1, 3), np.int8)}, "splits has 3 entries for 5 rows"),
        ("cora", {"edge_index": np.array([[0], [5]])}, "an edge leads outside its 5 rows"),
        ("isolet", {"X_data": None, "X": np.array([[{"a": 1}]], object)}, "allow_pickle=False"),  # is never unpickled
    ],
)
def test_a_file_that_lacks_an_array_or_does_not_fit_together_is_refused(folder, put, name, content, message):
    if isinstance(content, dict):
        put(name, **{key: value for key, value in (graph_arrays() | content).items() if value is not None})
    else:
        put(name, content)
    refused(ValueError, message, name, folder)


# --------------------------------------------------------------------------------------------------- news

POST = """From: someone@example.org
Subject: keys

In article <1@example.org> other wrote:
> is the key {word}?
The key of {word} is {word} and more {word}.

--
Someone
"""


@pytest.fixture
def posts(put, monkeypatch):
    monkeypatch.setattr(news, "TFIDF", news.TFIDF | {"min_df": 1, "max_df": 1.0})
    monkeypatch.setattr(news, "SVD", news.SVD | {"n_components": 3})
    words, lines = ["encryption", "hockey", "orbit", "engine"], []
    for i, label in enumerate((3, 1, 0, 2, 3, 1, 0, 2)):
        text = POST.format(word=f"{words[label]} {words[(label + i) % 4]}")
        kind = {"split": "test" if i < 4 else "train", "label": label, "label_name": words[label]}
        lines.append({"id": str(90 - i), **kind, "text": text})
    content = gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode())
    for name in ("20news", "20news-stripped"):
        put(name, content)


def test_posts_come_in_one_order_with_features_made_from_their_text(folder, posts):
    data = load("20news", folder)
    assert data.X.shape == (8, 3)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.y, [0, 1, 2, 3, 0, 1, 2, 3])
    np.testing.assert_array_equal(data.splits[0], [1, 1, 1, 1, 3, 3, 3, 3])
    assert data.class_names == ("encryption", "hockey", "orbit", "engine")
    assert "Subject: keys" in data.texts[0]
    stripped = load("20news-stripped", folder)
    assert all(not set(text) & {">", "@"} and "The key of" in text for text in stripped.texts)
    assert not np.allclose(stripped.X, data.X)


def test_features_are_kept_and_made_anew_when_the_kept_file_is_broken(folder, posts, tmp_path, monkeypatch):
    first = load("20news", folder).X
    (kept,) = (tmp_path / "cache").iterdir()
    made = news._tfidf_svd
    monkeypatch.setattr(news, "_tfidf_svd", lambda texts: pytest.fail("made again"))
    np.testing.assert_array_equal(load("20news", folder).X, first)
    monkeypatch.setattr(news, "_tfidf_svd", made)
    for broken in (b"", kept.read_bytes()[:100], b"nonsense"):
        kept.write_bytes(broken)
        np.testing.assert_array_equal(load("20news", folder).X, first)
        assert zipfile.is_zipfile(kept)
    assert list((tmp_path / "cache").iterdir()) == [kept]
    monkeypatch.setattr(news, "SVD", news.SVD | {"n_components": 2})
    assert load("20news", folder).X.shape == (8, 2)
    monkeypatch.setenv("SOBGNN_CACHE", str(folder / CATALOGUE["20news"].file))  # is no folder
    with pytest.warns(UserWarning, match="Set SOBGNN_CACHE"):
        assert load("20news", folder).X.shape == (8, 2)


# --------------------------------------------------------------------------------------- the real files

SHAPES = {"isolet": (7797, 617, 26), "har": (10299, 561, 6), "cancer": (5000, 80, 8), "cora": (2708, 1433, 7)}
SHAPES |= {"citeseer": (3327, 3703, 6), "squirrel": (5201, 2089, 5), "amazon-photo": (7650, 745, 8)}


@real
@pytest.mark.parametrize("name", [n for n in names() if n != "mnist" and not n.startswith("20news")])
def test_a_real_file_is_what_the_catalogue_says(name):
    data = load(name)
    assert name not in SHAPES or (*data.X.shape, len(data.class_names)) == SHAPES[name]
    assert np.isfinite(data.X.data if sp.issparse(data.X) else data.X).all()
    assert set(np.unique(data.y)) == set(range(len(data.class_names)))
