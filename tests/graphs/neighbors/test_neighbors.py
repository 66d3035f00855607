"""Neighbors against their definition: float64 distances of all pairs, ordered by (distance, index)."""

import copy
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sobgnn.graphs.knn import nearest
from sobgnn.graphs.neighbors import exact, index, points, tiles
from sobgnn.graphs.neighbors.cells import Cells
from sobgnn.graphs.neighbors.index import NeighborIndex


def brute(X, k, queries=None, metric="euclidean"):
    X = np.asarray(X, np.float64)
    Q = X if queries is None else np.asarray(queries, np.float64)
    if metric == "cosine":
        X, Q = (A / np.linalg.norm(A, axis=1, keepdims=True) for A in (X, Q))
    D = np.sqrt(((Q[:, None] - X[None]) ** 2).sum(-1))
    if metric == "cosine":
        D = D**2 / 2
    if queries is None:
        np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, 1)


def assert_nearest(found, X, k, queries=None, metric="euclidean", rtol=1e-6):
    expected, far = brute(X, k, queries, metric)
    indices, distances = found[:2]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_allclose(distances, far, rtol=rtol, atol=1e-12 * np.abs(far).max())
    assert (indices.dtype, distances.dtype) == (np.int64, np.float32)


def gaussian(n=300, d=12, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


HARD = {
    "gaussian": gaussian(),
    "line at 1e4": 1e4 + 1e-3 * np.arange(300.0)[:, None],
    "shuffled line at 1e4": 1e4 + 1e-3 * np.random.default_rng(1).permutation(300)[:, None],
    "cloud at 1e4": 1e4 + 1e-3 * gaussian(d=4),
    "float32 line at 1e4": (1e4 + 1e-3 * np.arange(300)[:, None]).astype(np.float32),
    "clusters smaller than float32 resolves": np.repeat(gaussian(5, 8), 60, 0) + 1e-6 * gaussian(300, 8, seed=2),
    "all equal": np.ones((120, 4)),
    "all zero": np.zeros((50, 3)),
    "lattice": np.random.default_rng(3).integers(0, 3, (300, 3)),
    "bits": np.random.default_rng(4).random((300, 9)) < 0.5,
    "bytes": np.random.default_rng(5).integers(0, 256, (300, 20), dtype=np.uint8),
    "huge": 1e30 * gaussian(),
    "tiny": 1e-30 * gaussian(),
    "an outlier": np.vstack([gaussian(200, 5), np.full((1, 5), 1e30)]),
    "one feature": gaussian(200, 1),
}


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("k", [1, 10, 49])
def test_neighbors_are_those_of_float64_distances_ties_by_index(name, k):
    assert_nearest(nearest(HARD[name], k), HARD[name], k)


@pytest.mark.parametrize("name", HARD)
def test_sparse_rows_have_the_neighbors_of_the_same_dense_rows(name):
    X = HARD[name].astype(np.float64)
    assert_nearest(nearest(sp.csr_matrix(X), 7), X, 7)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_small_set_of_points_has_its_definition_s_neighbors(data):
    n, d = data.draw(st.integers(2, 60)), data.draw(st.integers(1, 5))
    seed = data.draw(st.integers(0, 2**16))
    scale = 2.0 ** data.draw(st.integers(-60, 60))  # a power of two: ties stay ties in float64
    offset = data.draw(st.sampled_from([0.0, 1.0, 1e6]))
    rng = np.random.default_rng(seed)
    X = scale * (offset + rng.integers(0, data.draw(st.sampled_from([2, 5, 1000])), (n, d)).astype(float))
    k = data.draw(st.integers(1, n - 1))
    assert_nearest(nearest(X, k), X, k)


def test_tiles_of_any_size_give_the_same_answer_without_compiled_code(monkeypatch):
    monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    X = gaussian(1100, 6)
    for tile in (16, 48, 333, 4096):
        monkeypatch.setitem(tiles._TILE, "cpu", tile)
        assert_nearest(nearest(X, 9), X, 9)
        assert_nearest(NeighborIndex(torch.from_numpy(X)).nearest(X[:77] + 0.1, 9), X, 9, queries=X[:77] + 0.1)
    monkeypatch.setattr(tiles, "keeps_float32", lambda device: False)  # such as TF32
    assert_nearest(nearest(X, 9), X, 9)


def test_blocks_of_any_size_give_the_same_answer_on_rows_that_need_float64(monkeypatch):
    X = HARD["clusters smaller than float32 resolves"]
    monkeypatch.setattr(exact, "_BLOCK_BYTES", 8 * len(X) * 7)
    monkeypatch.setattr(points, "_PIECE_BYTES", 8 * X.shape[1] * 11)
    assert_nearest(nearest(X, 8), X, 8)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_many_equal_rows_are_not_compared_each_with_each(make, metric, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.integers(1, 4, (6, 3)).astype(float)[rng.integers(0, 6, 900)]
    compared = []
    count = exact.measure
    monkeypatch.setattr(exact, "measure", lambda b, q, at, to: compared.append(to.numel()) or count(b, q, at, to))
    found = nearest(make(X), 5, metric=metric)
    D = brute(X, 899, metric=metric)
    np.testing.assert_allclose(found.distances, D[1][:, :5], atol=1e-7)
    if metric == "euclidean":
        np.testing.assert_array_equal(found.indices, D[0][:, :5])
    assert sum(compared) < 900 * 60  # each with each: 900 × 150


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
def test_cosine_distance_is_one_minus_cos_whatever_the_size_of_the_values(make):
    X = np.abs(gaussian()) * np.random.default_rng(1).choice([1e-300, 1e-31, 1.0, 1e38, 1e300], (300, 1))
    unit = X / X.max(1, keepdims=True)
    assert_nearest(nearest(make(X), 9, metric="cosine"), unit, 9, metric="cosine")
    X = np.outer([1.0, 3.0, 0.0, 7.0, 0.1, 0.0], [0.3, 0.7, 0.9])  # parallel rows are equal, and no row is one of zeros
    found = nearest(make(X), 5, metric="cosine")
    np.testing.assert_array_equal(found.indices[[0, 2]], [[1, 3, 4, 2, 5], [5, 0, 1, 3, 4]])
    np.testing.assert_allclose(found.distances[[0, 2]], [[0, 0, 0, 1, 1], [0, 1, 1, 1, 1]], rtol=1e-7)


def test_every_kind_of_input_gives_the_same_answer_and_is_left_alone(tmp_path):
    X = gaussian().astype(np.float32)
    kept = X.copy()
    np.save(tmp_path / "points.npy", X)
    read_only = X.copy()
    read_only.flags.writeable = False
    expected = nearest(X, 8)
    kinds = {
        "float64": X.astype(np.float64),
        "fortran": np.asfortranarray(X),
        "strided": np.repeat(X, 2, 0)[::2],
        "read only": read_only,
        "big-endian": X.astype(">f4"),
        "memory map": np.load(tmp_path / "points.npy", mmap_mode="r"),
        "tensor": torch.from_numpy(X.copy()),
        "tensor with gradient": torch.from_numpy(X.copy()).requires_grad_(),
        "transposed tensor": torch.from_numpy(X.T.copy()).T,
        "frame": pd.DataFrame(X),
        "nullable frame": pd.DataFrame(X).astype("Float64"),
        "csr": sp.csr_array(X),
        "coo": sp.coo_matrix(X),
        "list": X.tolist(),
    }
    for name, kind in kinds.items():
        got = nearest(kind, 8)
        np.testing.assert_array_equal(got.indices, expected.indices, err_msg=name)
        np.testing.assert_allclose(got.distances, expected.distances, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(kinds["csr"].toarray(), kept)


def test_numbers_in_columns_of_any_kind_are_numbers():
    X = np.arange(8.0).reshape(4, 2)
    mixed = pd.Series([1, 3.0, Decimal(5), np.int8(7)], dtype=object)
    for frame in (
        pd.DataFrame({"a": pd.array([0, 2, 4, 6], "Int64"), "b": mixed}),
        pd.DataFrame({"a": pd.Categorical([0.0, 2.0, 4.0, 6.0]), "b": [1, 3, 5, 7]}),
        pd.DataFrame([[0, 1.0], [2, 3.0], [4, 5.0], [6, 7.0]], columns=["a", "a"]).astype({"a": "Float64"}),
        pl.DataFrame({"a": [0, 2, 4, 6], "b": [1.0, 3.0, 5.0, 7.0]}),
    ):
        np.testing.assert_array_equal(points.check_points(frame, cosine=False)[0], X)


def test_a_memory_map_is_never_copied_whole_to_float64(tmp_path, monkeypatch):
    X = gaussian(4000, 16).astype(np.float32)
    np.save(tmp_path / "points.npy", X)
    monkeypatch.setattr(points, "_PIECE_BYTES", 8 * 16 * 100)
    rows = []
    copied = points.to_float64
    monkeypatch.setattr(points, "to_float64", lambda block: rows.append(len(block)) or copied(block))
    nearest(np.load(tmp_path / "points.npy", mmap_mode="r"), 3)
    assert 0 < max(rows) <= 100


def test_progress_ends_with_all_rows_done():
    for X in (gaussian(), sp.csr_array(gaussian())):
        calls = []
        nearest(X, 3, progress=lambda done, total: calls.append((done, total)))  # noqa: B023
        assert calls[-1] == (300, 300)
        assert calls == sorted(calls)


def with_values(value, rows):
    X = gaussian()
    X[rows, 1] = value
    return X


def frame_with(value, dtype=None):
    return pd.DataFrame({"a": [1.0, 2.0], "b": pd.Series([value, value], dtype=dtype)})


NEEDLESS = "X has 3 rows with NaN (first: row 17). Impute or drop them: neighbors are undefined there."
TOO_MANY = "`k` must be smaller than the number of points, but got k=30 for 12 points. Pass k=11 or fewer."
BAD = {
    "k < 1": (gaussian(), 0, ValueError, "`k` must be at least 1, but got k=0"),
    "k >= N": (gaussian(12), 30, ValueError, TOO_MANY),
    "one point": (gaussian(1), 1, ValueError, "Give at least two points"),
    "k float": (gaussian(), 2.0, TypeError, "`k` must be an integer, but got 2.0"),
    "k bool": (gaussian(), True, TypeError, "`k` must be an integer"),
    "NaN": (with_values(np.nan, [17, 30, 31]), 3, ValueError, NEEDLESS),
    "inf": (with_values(-np.inf, [4]), 3, ValueError, "X has 1 row with infinite values (first: row 4). Replace"),
    "sparse NaN": (sp.csr_array(with_values(np.nan, [5, 9])), 3, ValueError, "(first: row 5)"),
    "frame NaN": (pd.DataFrame(with_values(np.nan, [2])), 3, ValueError, "X has 1 row with NaN"),
    "missing": (
        pd.DataFrame({"a": pd.array([0, None, 4], "Int64"), "b": [1.0, 3.0, 5.0]}),
        1,
        ValueError,
        "X has 1 row with NaN (first: row 1)",
    ),
    "too large": (1e300 * gaussian(), 3, ValueError, "overflow float32. Rescale X"),
    "too small": (1e-50 * gaussian(), 3, ValueError, "distances vanish in float32"),
    "too small, sparse": (sp.csr_array(1e-200 * gaussian()), 3, ValueError, "vanish in float32"),
    "no rows": (np.empty((0, 3)), 1, ValueError, "`X` is empty: its shape is (0, 3)"),
    "no features": (np.empty((3, 0)), 1, ValueError, "`X` is empty"),
    "1-D": (np.ones(5), 1, ValueError, "two dimensions (rows, features), but got shape (5,). Reshape"),
    "3-D": (np.ones((5, 2, 2)), 1, ValueError, "but got shape (5, 2, 2)"),
    "object": (np.array([["a", 1], ["b", 2]], object), 1, TypeError, "must be numeric"),
    "complex": (np.ones((3, 2), complex), 1, TypeError, "must be numeric"),
    "text column": (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), 1, TypeError, "not: 'b'. Encode or drop"),
    "date column": (frame_with("2024-01-01", "datetime64[ns]"), 1, TypeError, "not: 'b'"),
    "complex column": (frame_with(1 + 2j), 1, TypeError, "dtype complex128"),
    "text among numbers": (frame_with("1", object), 1, TypeError, "not: 'b'"),
    "polars text": (pl.DataFrame({"a": ["x", "y"], "b": [1, 2]}), 1, TypeError, "not: 'a'"),
    "masked": (
        np.ma.masked_greater(np.arange(8.0).reshape(4, 2), 5),
        1,
        ValueError,
        "X has 1 row with NaN (first: row 3)",
    ),
    "sparse tensor": (torch.eye(3).to_sparse(), 1, TypeError, "scipy sparse"),
}


@pytest.mark.parametrize("name", BAD)
def test_points_without_neighbors_are_refused_in_one_line(name):
    X, k, kind, message = BAD[name]
    with pytest.raises(kind) as caught:
        nearest(X, k)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"metric": "l1"}, "`metric` must be 'euclidean' or 'cosine'"),
        ({"method": "tree"}, "`method` must be"),
        ({"method": "cells"}, "needs dense X"),
        ({"recall": 1.5}, "`recall` must be"),
        ({"device": "abacus"}, "There is no device 'abacus' here"),
    ],
)
def test_options_that_do_not_exist_or_fit_are_refused(option, message):
    with pytest.raises(ValueError, match=message):
        nearest(sp.csr_array(gaussian()), 1, **option)


@pytest.mark.cuda
@pytest.mark.parametrize("name", HARD)
def test_cuda_gives_the_neighbors_of_float64_distances(name):
    X = HARD[name]
    assert_nearest(nearest(X, 7, device="cuda"), X, 7)
    assert_nearest(nearest(torch.from_numpy(X).cuda(), 7), X, 7)


# ----------------------------------------------------------------------------------------------- kept points


@pytest.mark.parametrize("name", ["gaussian", "lattice", "clusters smaller than float32 resolves", "cloud at 1e4"])
def test_queries_find_their_nearest_points_themselves_included(name):
    X = np.asarray(HARD[name], np.float64)
    kept, Q = NeighborIndex(torch.from_numpy(X)), np.vstack([X[:5], X[5:20] + 1e-3])
    assert_nearest(kept.nearest(Q, 6), X, 6, queries=Q)
    indices, distances = kept.nearest(X[:3], len(X))
    assert (np.sort(indices, 1) == np.arange(len(X))).all()
    assert (distances[:, 0] == 0).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("factor", [1e-12, 0.3, 3.0, 1e6, 1e12])
def test_queries_may_be_much_smaller_or_larger_than_the_points(metric, factor):
    X, Q = gaussian(300, 5), factor * gaussian(20, 5, seed=1)
    assert_nearest(NeighborIndex(torch.from_numpy(X), metric).nearest(Q, 6), X, 6, queries=Q, metric=metric)


def test_no_queries_have_no_neighbors():
    indices, distances = NeighborIndex(torch.from_numpy(gaussian(50, 3))).nearest(np.empty((0, 3), np.float32), 4)
    assert (indices.shape, distances.shape) == ((0, 4), (0, 4))
    assert (indices.dtype, distances.dtype) == (np.int64, np.float32)


def test_kept_points_are_clustered_once_and_answer_for_a_query_whatever_was_asked_before(monkeypatch):
    built = []
    monkeypatch.setattr(index, "Cells", lambda *given: built.append(1) or Cells(*given))
    X = gaussian(3000, 6)
    kept = NeighborIndex(torch.from_numpy(X), recall=0.9)
    together = kept.nearest(X[:200] + 0.1, 10, approximate=True)
    kept.nearest(X[200:210], 10)
    alone = kept.nearest(X[100:200] + 0.1, 10, approximate=True)
    np.testing.assert_array_equal(together[0][100:], alone[0])
    np.testing.assert_allclose(together[1][100:], alone[1], rtol=1e-6)
    assert len(built) == 1
    truth = brute(X, 10, queries=X[:200] + 0.1)[0]
    assert np.mean([len(set(a) & set(b)) for a, b in zip(together[0], truth, strict=True)]) / 10 > 0.97
    again = copy.deepcopy(kept).nearest(X[:200] + 0.1, 10, approximate=True)
    np.testing.assert_array_equal(again[0], together[0])
