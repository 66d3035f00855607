"""What a sample of the rows decides: how columns are scaled, and the labels in their folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.frequencies import chosen_by_class
from sobgnn.estimator.labels import Labels, class_weights, copies_together, with_folds
from sobgnn.estimator.scaling import decide_scales
from sobgnn.estimator.state import from_state, to_state
from sobgnn.sharded.steps import Run
from sobgnn.sharded.store import Store

Array = npt.NDArray[Any]
T = TypeVar("T")

# Rows beside the labeled ones that heads read while they learn, and rows that columns are scaled by.
CHOSEN, _SCALED = 40_000, 200_000
# Points that recall is measured on.
PROBES = 500


@dataclass(frozen=True)
class Folded:
    """Labels as they are saved: :class:`~sobgnn.estimator.labels.Labels` among the chosen rows."""

    index: npt.NDArray[np.int64]
    codes: npt.NDArray[np.int64]
    weight: npt.NDArray[np.float64]
    fold: npt.NDArray[np.int64]
    classes: int
    chosen: bool
    counted: npt.NDArray[np.bool_]


def make_labels(run: Run, labeled: npt.NDArray[np.int64], points: Array) -> None:
    """Put labels in folds; and choose the rows that heads read, and those that recall is measured on.

    Args:
        run: The run.
        labeled: Rows and numbers of labels, [L, 2].
        points: Their points [L, F].
    """
    plan, store = run.plan, run.store
    order = np.argsort(labeled[:, 0])
    rows, codes = labeled[order, 0], store.load("label-codes")[labeled[order, 1]]
    total = sum(rows for _url, rows, _size in plan["source"]["files"])
    generator = np.random.default_rng([plan["seed"], 2])
    sampled = generator.choice(total, min(total, CHOSEN), replace=False)
    chosen = np.union1d(rows, sampled)
    probes = np.isin(chosen, sampled[:PROBES])
    if total > len(chosen) and not probes.any():
        raise AssertionError("no point to measure recall on")
    among = np.full(len(chosen), -1)
    among[np.searchsorted(chosen, rows)] = codes
    classes = len(plan["classes"])
    by_class = chosen_by_class(codes, classes)
    names = np.arange(classes)
    weight = class_weights("balanced" if by_class else None, names, codes)[codes]
    together = copies_together(points[order], codes)
    own = with_folds(among, weight, classes, np.random.default_rng([plan["seed"], 1]), by_class, together)
    counted = np.ones(len(rows), bool) if own.counted is None else own.counted
    write_state(store, "labels", Folded(own.index, own.codes, own.weight, own.fold, classes, by_class, counted))
    store.save("label-rows", rows)
    store.save("label-order-codes", codes)
    store.save("label-known", own.known())
    store.save("chosen", chosen)
    store.save("probes", probes)


def read_labels_in_folds(run: Run) -> Labels:
    """The labels; ``index`` is their place among the chosen rows."""
    own = read_state(Folded, run.store, "labels")
    return Labels(own.index, own.codes, own.weight, own.fold, own.classes, own.chosen, own.counted)


def make_map(run: Run, sample: Array, points: Array, codes: npt.NDArray[np.int64]) -> FeatureMap:
    """Choose and fit a scaling of the columns: that of the neighbor search, which all families read."""
    plan, settings = run.plan, run.plan["settings"]
    some = sample[:: -(-len(sample) // _SCALED)]
    generator = np.random.default_rng([plan["seed"], 0])
    option = settings["scale"]
    seen = np.concatenate([points, some])
    known = np.concatenate([codes, np.full(len(some), -1)])
    scale = decide_scales(option, seen, known, int(plan["k"]), settings["n_components"], generator).neighbors
    made = FeatureMap.fit(some, scale=scale, n_components=settings["n_components"], seed=plan["seed"])
    write_state(run.store, "map", made)
    return made


def read_map(run: Run) -> FeatureMap:
    """The map of columns that :func:`make_map` fitted."""
    return read_state(FeatureMap, run.store, "map")


def write_state(store: Store, name: str, value: Any) -> None:
    """Write a dataclass as JSON and safetensors."""
    from safetensors.numpy import save

    state, arrays = to_state(value)
    store.write(f"{name}.safetensors", save({key: np.ascontiguousarray(array) for key, array in arrays.items()}))
    store.write_json(name, state)


def read_state(kind: type[T], store: Store, name: str) -> T:
    """Read what :func:`write_state` wrote."""
    from safetensors.numpy import load

    return from_state(kind, store.read_json(name), load(store.files.cat_file(store.path(f"{name}.safetensors"))))
