"""Hostile points, labels and parameters for the estimator, each from its seed alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp


@dataclass
class Case:
    """What an estimator is given."""

    X: Any
    y: Any
    new: Any
    settings: dict[str, Any] = field(default_factory=dict)
    graph: Any = None


ODD_SETTINGS: dict[str, list[Any]] = {
    "k": [1, 10**5, 10**30, 0, -1, 2.5, True, None, "5", np.int64(3), float("nan")],
    "alpha": [1, 7, 100, 10**9, 0, 1.5, None],
    "epsilon": [0, 1e-300, 1e300, float("nan"), float("inf"), -1, None, "1"],
    "hidden_channels": [1, 0, 10**12, None],
    "num_layers": [1, 4, 10**6],
    "dropout": [0, 0.99, 1, -0.1, float("nan"), None],
    "n_members": [1, 3, 10**9, 0],
    "smoothing": ["auto", 0, 0.999, 1, -1, "x", None, np.ones(2)],
    "class_weight": ["balanced", {0: 0.0}, {0: float("nan")}, {9: 1}, {}, [1], "x", {0: 1e-300, 1: 1e300}, {"a": 1}],
    "class_priors": [None, "auto", {0: 1}, {0: 0.5, 1: 0.5}, {0: 1e-300, 1: 1e300}, {0: "x", 1: 1}, 3, [0.5, 0.5]],
    "scale": [None, "range", "standard", "range-unit", "unit", "rank", ("rank", None), ("x",), [], "x", 1],
    "n_components": [None, 1, 2, 10**30, 0, True],
    "metric": ["cosine", "x", None, 3],
    "bandwidth": ["local", 1e-300, 1e300, 0, -1, float("nan"), "x", None],
    "symmetrize": ["mutual", "x", None],
    "method": ["exact", "cells", "x"],
    "epochs": [1, 0, 10**30, 1.5],
    "lr": [1e-300, 1, 1e10, float("nan"), 0, -1, "x", None],
    "weight_decay": [0, 1, float("nan"), -1, "x"],
    "random_state": [None, 0, 2**63, -1, 1.5, "x", np.random.RandomState(0)],
    "device": ["cpu", None, "cuda:99", "x", 3],
    "families": [
        ["s-sobgnn"],
        ["sobolev"],
        ["linear"],
        ["pagerank"],
        ["links"],
        ["x"],
        [],
        "mlp",
        [["mlp"]],
        None,
        ["mlp", "mlp"],
    ],
    "verbose": [0, None],
    "warm_start": [True, "x"],
}


def estimator_case(seed: int) -> Case:
    """Points that are few but odd, labels, new points and parameters; about half of them could be fitted."""
    draw = np.random.default_rng([seed, 3])
    rows, width = int(draw.choice([2, 3, 5, 12, 12, 30, 30])), int(draw.choice([1, 2, 4, 60]))
    if draw.random() < 0.05:
        rows, width = int(draw.choice([0, 1])), int(draw.choice([0, 1, 3]))
    # One thing at a time is hostile in most cases: otherwise nearly all would be refused at once.
    hostile = [{"X", "new"}, {"X"}, {"y"}, {"new"}, {"settings"}, {"graph"}][int(draw.integers(6))]
    codes = draw.permutation(rows) % int(draw.choice([2, 2, 3, 12]))
    if "y" in hostile:
        codes = draw.integers(0, int(draw.choice([1, 2, 3])), rows)
    X: Any = draw.normal(size=(rows, width)) + 3 * (codes[:, None] if rows else 0)
    case = Case(X, _labels(codes, draw, 0.0 if "y" in hostile else 1.0), None)
    case.X = _points(X, draw, 0.0 if "X" in hostile else 1.0)
    case.new = _points(draw.normal(size=(3, width)), draw, 0.0 if "new" in hostile else 1.0)
    cheap = [["mlp"], ["diffusion"], ["mlp", "diffusion"], ["sobolev"]]
    case.settings = {
        "k": 3,
        "epochs": int(draw.integers(1, 3)),
        "n_members": 1,
        "hidden_channels": 4,
        "random_state": 0,
        "families": cheap[int(draw.integers(len(cheap)))],
        "scale": "range" if draw.random() < 0.7 else "auto",
    }
    for _ in range(int(draw.integers(0, 3)) if "settings" in hostile else int(draw.random() < 0.3)):
        name = list(ODD_SETTINGS)[int(draw.integers(len(ODD_SETTINGS)))]
        case.settings[name] = ODD_SETTINGS[name][int(draw.integers(len(ODD_SETTINGS[name])))]
    if "graph" in hostile:
        case.graph = _graph(rows, draw)
    return case


def _labels(codes: Any, draw: np.random.Generator, plainly: float) -> Any:
    hidden = draw.random(len(codes)) < draw.choice([0, 0, 0.3, 0.8])
    plain = np.where(hidden, -1, codes)
    texts = np.array([None if h else f"class {c}" for h, c in zip(hidden, codes, strict=True)] + [None], dtype=object)[
        :-1
    ]
    choices: list[Any] = [
        plain.tolist(),
        texts,
        texts.tolist(),
        np.where(hidden, np.nan, codes),
        codes * 2 - 1,
        plain.astype(float) + 0.5,
        plain.astype(bool),
        plain.astype(np.int8),
        plain[:, None],
        plain[:-1],
        np.zeros((len(codes), 2)),
        None,
        np.full(len(codes), -1),
        "x",
        plain * 10**15,
        [{"a": 1}] * len(codes),
        [[]] * len(codes),
        np.array(["a\0", "a"])[codes % 2],
        np.where(hidden, np.inf, codes),
        [1, "a", None] * len(codes),
        np.ma.masked_array(codes, hidden),
        codes.astype("M8[s]"),
        codes.astype(complex),
        [b"a", b"b"] * len(codes),
        ["x" * 5000, "y"] * len(codes),
    ]
    return plain if draw.random() < plainly else choices[int(draw.integers(len(choices)))]


def _points(X: Any, draw: np.random.Generator, plain: float) -> Any:
    if draw.random() < plain or not X.size:
        return X
    kind = int(draw.integers(28))
    if kind < 6:
        X = X.copy()
        X[draw.random(X.shape) < draw.choice([0.05, 0.5, 1])] = [np.nan, np.inf, -np.inf, 1e308, 1e-320, 0][kind]
        return X
    choices: list[Any] = [
        X * 1e300,
        X * 1e-300,
        X + 1e12,
        X * 1e160,
        np.zeros_like(X),
        np.repeat(X[:1], len(X), axis=0),
        X.astype(np.float32) * 1e38,
        X.tolist(),
        X.astype(object),
        X.astype(str),
        X.round().astype(np.int8),
        X > 0,
        X + 1j,
        sp.csr_matrix(X),
        sp.csc_array(X),
        sp.coo_array(X),
        np.ma.masked_array(X, X > 0),
        X.ravel(),
        X[None],
        X.astype(np.float16),
        np.asfortranarray(X),
        X[:, ::-1],
    ]
    return choices[kind - 6]


def _graph(rows: int, draw: np.random.Generator) -> Any:
    pairs = draw.integers(0, max(1, rows), (2, 3 * rows))
    weight = draw.random(3 * rows)
    dense = (draw.random((rows, rows)) < 0.4).astype(float)
    dense = np.triu(dense, 1) + np.triu(dense, 1).T
    choices: list[Any] = [
        pairs,
        (pairs, weight),
        (pairs, weight * 0),
        (pairs, weight * np.nan),
        (pairs, -weight),
        pairs + rows,
        pairs.astype(float),
        pairs.T,
        sp.csr_array(dense),
        sp.csr_array(dense * 1e300),
        sp.csr_array(np.triu(dense)),
        sp.csr_array(dense[:-1]),
        dense,
        "x",
        3,
        np.zeros((2, 0), int),
        (pairs, weight[:-1]),
        sp.csr_array(dense + np.eye(rows)),
        pairs.tolist(),
        [],
    ]
    return choices[int(draw.integers(len(choices)))]
