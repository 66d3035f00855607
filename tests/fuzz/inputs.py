"""Hostile points, labels and parameters for the estimator: few points, and one kind of thing at a time is hostile."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

ODD = (None, True, -1, 0, 0.5, 1, 1.5, 10**9, 10**30, float("nan"), float("inf"), 1e-300, 1e300, "5", "x", [], {}, [1])
# Values that only one parameter would take for good, beside those of ODD, and parameters without any.
SETTINGS: dict[str, tuple[Any, ...]] = {
    "k": (5, np.int64(3), 10**5), "alpha": (7, 100), "epsilon": (), "num_layers": (4, 10**6), "dropout": (0.99,),
    "hidden_channels": (10**12,), "n_members": (3,), "class_weight":
    ("balanced", {0: 0.0}, {0: float("nan")}, {9: 1}, {0: 1e-300, 1: 1e300}, {"a": 1}), "class_priors": ("auto", {0:
    1}, {0: 0.5, 1: 0.5}, {0: 1e-300, 1: 1e300}, {0: "x", 1: 1}, [0.5, 0.5]), "scale": ("range", "standard",
    "range-unit", "unit", "rank", ("rank", None), ("x",)), "n_components": (2,), "metric": ("cosine",), "bandwidth":
    ("local",), "symmetrize": ("mutual",), "method": ("exact", "cells"), "lr": (1e10,), "epochs": (), "weight_decay":
    (), "random_state": (2**63, np.random.RandomState(0)), "device": ("cpu", "cuda:99"), "families": (["s-sobgnn"],
    ["linear"], ["pagerank"], ["x"], "linear", [["linear"]], ["linear", "linear"], [("mine", 3)]),
    "verbose": (), "warm_start": (),
}  # fmt: skip
CHEAP = (["linear"], ["diffusion"], ["linear", "diffusion"], ["sobolev"])


@dataclass
class Case:
    """What an estimator is given."""

    X: Any
    y: Any
    new: Any
    settings: dict[str, Any] = field(default_factory=dict)
    graph: Any = None


@st.composite
def cases(draw: Any) -> Case:
    """About half of them could be fitted."""
    rows, width = draw(st.sampled_from([12, 30, 5])), draw(st.sampled_from([4, 2, 60]))
    if draw(st.integers(0, 19)) == 0:
        rows, width = draw(st.sampled_from([0, 1, 2, 12])), draw(st.sampled_from([0, 1, 4]))
    generator = np.random.default_rng(draw(st.integers(0, 99)))
    codes = np.arange(rows) % draw(st.sampled_from([2, 2, 3, 3, 12, 1]))
    X = generator.normal(size=(rows, width)) + 3 * codes[:, None]
    hidden = generator.random(rows) < draw(st.sampled_from([0, 0.3, 0.8]))
    case = Case(X, np.where(hidden, -1, codes), generator.normal(size=(3, width)))
    case.settings = {"k": 3, "epochs": 2, "n_members": 1, "hidden_channels": 4, "random_state": 0}
    case.settings |= {"families": draw(st.sampled_from(CHEAP)), "scale": draw(st.sampled_from(["range", "auto"]))}
    what = draw(st.sampled_from(["new", "X", "y", "settings", "graph", "nothing"]))
    if what in ("X", "new"):
        setattr(case, what, draw(st.sampled_from(points(getattr(case, what)))))
    elif what == "y":
        case.y = draw(st.sampled_from(labels(case.y, codes, hidden)))
    elif what == "graph":
        case.graph = draw(st.sampled_from(graphs(rows, generator)))
    elif what == "settings":
        for name in draw(st.lists(st.sampled_from(sorted(SETTINGS)), min_size=1, max_size=2)):
            case.settings[name] = draw(st.sampled_from((*SETTINGS[name], *ODD)))
    return case


def points(X: Any) -> list[Any]:
    """The same points in other forms, sizes and types, and with values that are none."""
    spoiled = []
    for value in (np.nan, np.inf, -np.inf, 1e308, 1e-320, 0):
        spoiled += [np.where(np.arange(X.size).reshape(X.shape) % every == 0, value, X) for every in (1, 7)]
    return [
        *spoiled, X * 1e300, X * 1e-300, X + 1e12, X * 1e160, X * 0, np.repeat(X[:1], len(X), axis=0), X.tolist(), (X
        * 1e38).clip(-3e38, 3e38).astype(np.float32), X.astype(object), X.astype(str), X.round().astype(np.int8), X >
        0, X + 1j, sp.csr_matrix(X), sp.csc_array(X), sp.coo_array(X), np.ma.masked_array(X, X > 0), X.ravel(),
        X[None], X.astype(np.float16), np.asfortranarray(X), X[:, ::-1], X[:0], X[:, :0], None, "x", 3,
    ]  # fmt: skip


def labels(y: Any, codes: Any, hidden: Any) -> list[Any]:
    """The same labels in other forms, and what are none."""
    texts = [None if h else f"class {c}" for h, c in zip(hidden, codes, strict=True)]
    return [
        y.tolist(), np.array([*texts, None], dtype=object)[:-1], texts, np.where(hidden, np.nan, codes), codes * 2 -
        1, y + 0.5, y > 0, y.astype(np.int8), y[:, None], y[:-1], np.zeros((len(y), 2)), None, y * 0 - 1, "x", y *
        10**15, [{"a": 1}] * len(y), [[]] * len(y), np.array(["a\0", "a"])[codes % 2], np.where(hidden, np.inf,
        codes), [1, "a", None] * len(y), np.ma.masked_array(codes, hidden), codes.astype("M8[s]"), codes * 1j, [b"a",
        b"b"] * len(y), ["x" * 5000, "y"] * len(y),
    ]  # fmt: skip


def graphs(rows: int, generator: np.random.Generator) -> list[Any]:
    """Graphs in every form, and what are none."""
    pairs, weight = generator.integers(0, max(1, rows), (2, 3 * rows)), generator.random(3 * rows)
    dense = np.triu(generator.random((rows, rows)) < 0.4, 1).astype(float)
    dense = dense + dense.T
    return [
        pairs, (pairs, weight), (pairs, weight * 0), (pairs, weight * np.nan), (pairs, -weight), (pairs, weight[:-1]),
        pairs.T, pairs + rows, pairs.astype(float), pairs.tolist(), sp.csr_array(dense), sp.csr_array(dense * 1e300),
        dense, "x", 3, [], sp.csr_array(np.triu(dense)), sp.csr_array(dense[:-1]), sp.csr_array(dense + np.eye(rows)),
        np.zeros((2, 0), int),
    ]  # fmt: skip
