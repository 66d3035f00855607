"""A fitted estimator as JSON values and arrays, and back; :mod:`sobgnn.estimator.artifact` writes the folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.artifact import Arrays
from sobgnn.estimator.blend import Blend
from sobgnn.estimator.families import FAMILIES, make_family
from sobgnn.estimator.features import FeatureMap
from sobgnn.estimator.fit import Member
from sobgnn.estimator.placing import Attaching, Maps, view_of
from sobgnn.estimator.predictor import Predictor
from sobgnn.estimator.problem import NEIGHBORS, Problem, View
from sobgnn.estimator.settings import Networks, check_settings, check_whole
from sobgnn.estimator.smoothing import Smoothing
from sobgnn.graphs.graph import Graph

# Fitted values that JSON holds.
SCALARS = (
    "n_features_in_", "n_iter_", "temperature_", "out_of_fold_accuracy_", "out_of_fold_log_loss_", "scale_",
    "neighbor_scale_", "family_accuracy_", "filter_importance_",
)  # fmt: skip
# Fitted arrays by their attributes' names.
ARRAYS = (
    "labelled_", "labelled_codes_", "folds_", "out_of_fold_probabilities_", "out_of_fold_interval_", "embedding_",
    "class_prior_",
)  # fmt: skip
# Parts that hold integers, by the last part of their name; all others but ``unit_rows`` hold floats.
_INTEGER_PARTS = {
    "labelled_", "labelled_codes_", "folds_", "indptr", "indices", "num_features", "column", "left", "right", "root",
    "target", "levels", "neighbors", "entry", "effort",
}  # fmt: skip
_INTEGERS, _FLOATS = ("int32", "int64"), ("float32", "float64")


def take_apart(estimator: Any) -> tuple[dict[str, Any], Arrays]:
    """A fitted :class:`~sobgnn.SobolevClassifier` as JSON values and arrays."""
    config, arrays = _pack(estimator.predictor_)
    config["classes"] = {"values": estimator.classes_.tolist(), "dtype": _kind(estimator.classes_)}
    config["settings"] = {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
    config["fitted"] = {name: getattr(estimator, name) for name in SCALARS}
    config["feature_names"] = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    config["history"] = estimator.history_
    arrays |= {name: np.asarray(getattr(estimator, name)) for name in ARRAYS}
    return config, arrays


def settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator as they were before JSON turned them into lists."""
    restored = dict(stored)
    for name in ("class_weight", "class_priors"):
        if isinstance(stored.get(name), list):
            restored[name] = dict(stored[name])
    if isinstance(stored.get("scale"), list):
        restored["scale"] = tuple(stored["scale"])
    return restored


def put_together(estimator: Any, config: dict[str, Any], arrays: Arrays, device: str | torch.device) -> None:
    """Set an estimator's attributes from :func:`take_apart`, except those that follow from the predictor."""
    _check_types(arrays)
    estimator.classes_ = _classes(config["classes"])
    _check_scalars(config)
    for name in SCALARS:
        setattr(estimator, name, config["fitted"][name])
    for name in ARRAYS:
        setattr(estimator, name, arrays[name])
    if config["feature_names"]:
        estimator.feature_names_in_ = np.array(config["feature_names"], dtype=object)
    estimator.history_ = config["history"]
    estimator.predictor_ = _unpack(config, arrays, torch.device(device))
    codes, count = estimator.labelled_codes_, estimator.predictor_.problem.count
    known = codes.shape
    fits = (
        len(known) == 1
        and known == estimator.labelled_.shape == estimator.folds_.shape
        and estimator.out_of_fold_probabilities_.shape == (*known, len(estimator.classes_))
        and estimator.out_of_fold_interval_.shape == (2,)
        and estimator.class_prior_.shape == (len(estimator.classes_),)
        and estimator.embedding_.ndim == 2
        and len(estimator.embedding_) == count
        and len(estimator.classes_) == estimator.predictor_.problem.classes
        and len(estimator.feature_names_in_ if config["feature_names"] else []) in (0, estimator.n_features_in_)
        and estimator.n_features_in_ == estimator.predictor_.maps.networks.num_features
        and bool(((codes >= 0) & (codes < len(estimator.classes_))).all())
        and bool(((estimator.labelled_ >= 0) & (estimator.labelled_ < count)).all())
    )
    if not fits:
        raise ValueError("its labels and its points contradict each other")


def _pack(predictor: Predictor) -> tuple[dict[str, Any], Arrays]:
    """A predictor as JSON values and arrays."""
    problem, maps = predictor.problem, predictor.maps
    arrays: Arrays = {f"maps.networks.{name}": part for name, part in maps.networks.arrays().items()}
    if maps.neighbors is not maps.networks:
        arrays |= {f"maps.neighbors.{name}": part for name, part in maps.neighbors.arrays().items()}
        arrays["places"] = _numpy(predictor.places)
    if maps.trees is not None:
        arrays |= {f"maps.trees.{name}": part for name, part in maps.trees.arrays().items()}
    for name, view in problem.views.items():
        graph = view.graph
        parts = {"indptr": graph.indptr, "indices": graph.indices, "weight": graph.weight}
        arrays |= {f"graphs.{name}.{part}": _numpy(value) for part, value in parts.items()}
    members = []
    for number, member in enumerate(predictor.members):
        arrays |= {f"families.{number}.{name}": _numpy(value) for name, value in member.fitted.arrays().items()}
        if member.around is not None:
            arrays[f"around.{number}"] = _numpy(member.around)
        members.append({"name": member.family.name, "view": member.view, "smoothing": member.smoothing})
    how = predictor.attaching
    if how.reach is not None:
        arrays["reach"] = np.asarray(how.reach)
    arrays |= {"points": _numpy(problem.points), "distributions": predictor.distributions, "ratio": predictor.ratio}
    config = {
        "networks": asdict(problem.networks),
        "classes_count": problem.classes,
        "graphs": {
            name: {"neighbor_recall": view.graph.neighbor_recall, "reweighted": view.reweighted}
            for name, view in problem.views.items()
        },
        "attaching": {name: getattr(how, name) for name in ("k", "metric", "method", "recall", "bandwidth")},
        "members": members,
        "blend": asdict(predictor.blend),
        "temperature": predictor.temperature,
    }
    return config, arrays


def _unpack(config: dict[str, Any], arrays: Arrays, device: torch.device) -> Predictor:
    """Rebuild a predictor from :func:`_pack`."""
    _check_finite(arrays)
    check_settings({**settings(config["settings"]), **_as_settings(config["networks"])}, list(FAMILIES))
    tensors = {name: torch.from_numpy(array).to(device) for name, array in arrays.items() if array.ndim}
    points, networks = tensors["points"], Networks(**config["networks"])
    if points.ndim != 2 or points.dtype != torch.float32:
        raise ValueError("its points are not rows of numbers")
    classes = _check_distributions(config["classes_count"], arrays, len(points))
    views = {
        name: _view(name, about, tensors, len(points), networks, device) for name, about in config["graphs"].items()
    }
    own = FeatureMap.from_arrays(_under("maps.networks.", arrays))
    near, trees = _under("maps.neighbors.", arrays), _under("maps.trees.", arrays)
    maps = Maps(own, FeatureMap.from_arrays(near) if near else own, FeatureMap.from_arrays(trees) if trees else None)
    places = tensors["places"] if near else points
    if (
        own.num_outputs != points.shape[1]
        or places.shape != (len(points), maps.neighbors.num_outputs)
        or any(m is not None and m.num_features != own.num_features for m in (maps.neighbors, maps.trees))
    ):
        raise ValueError("its points and their maps contradict each other")
    # Trees read only columns of new points, so those of training points are not saved: one row gives their number.
    columns = np.zeros((1, maps.trees.num_outputs if maps.trees is not None else points.shape[1]), np.float32)
    rows = np.zeros((0, own.num_features), np.float32)
    problem = Problem(points, columns, views, classes, networks, rows)
    blend = Blend(tuple(config["blend"]["shares"]), tuple(config["blend"]["temperatures"]))
    _check_blend(blend, float(config["temperature"]), len(config["members"]))
    members = [_member(number, about, tensors, problem) for number, about in enumerate(config["members"])]
    if NEIGHBORS not in views:
        raise ValueError("its neighbors are missing")
    attaching = _attaching(config["attaching"], arrays, len(points))
    return Predictor(
        maps, problem, places, attaching, members, blend, float(config["temperature"]), arrays["ratio"],
        arrays["distributions"],
    )  # fmt: skip


def _member(number: int, about: dict[str, Any], tensors: dict[str, Tensor], problem: Problem) -> Member:
    name, view = about["name"], about["view"]
    if name not in FAMILIES or (FAMILIES[name].on_graph and view not in problem.views):
        raise ValueError(f"its family {name!r} is unknown")
    family = make_family(name, view)
    smoothing = None if about["smoothing"] is None else Smoothing(*about["smoothing"])
    around = tensors.get(f"around.{number}")
    if smoothing is not None and (smoothing.view not in problem.views or not 0 <= smoothing.strength < 1):
        raise ValueError("its smoothing is invalid")
    if around is not None and around.shape != (problem.count, problem.classes):
        raise ValueError("its smoothed probabilities do not fit its points")
    return Member(family, view, family.restore(_under(f"families.{number}.", tensors), problem), smoothing, around)


def _view(
    name: str, about: dict[str, Any], tensors: dict[str, Tensor], count: int, networks: Networks, device: torch.device
) -> View:
    """A graph, after checking that its pattern cannot be read out of bounds."""
    indptr, indices, weight = (tensors[f"graphs.{name}.{part}"] for part in ("indptr", "indices", "weight"))
    steps, edges = indptr.diff(), indices.numel()
    good = (
        indptr.dtype == torch.int64
        and indices.dtype in (torch.int32, torch.int64)
        and weight.dtype == torch.float32
        and indptr.numel() == count + 1
        and int(indptr[0]) == 0
        and int(indptr[-1]) == edges == weight.numel()
        and bool((steps >= 0).all())
        and (edges == 0 or (int(indices.min()) >= 0 and int(indices.max()) < count and bool((weight > 0).all())))
    )
    if not good:
        raise ValueError("the graph's arrays contradict each other")
    graph = Graph(indptr, indices, weight, neighbor_recall=about["neighbor_recall"])
    # Models without this entry were saved before new points' edges were reweighted.
    return view_of(graph, networks.alpha, networks.epsilon, device, reweighted=bool(about.get("reweighted", False)))


def _check_blend(blend: Blend, temperature: float, count: int) -> None:
    shares, temperatures = np.array(blend.shares, float), np.array([*blend.temperatures, temperature], float)
    good = len(shares) == len(blend.temperatures) == count > 0 and (shares >= 0).all() and abs(shares.sum() - 1) < 1e-3
    if not (good and np.isfinite(temperatures).all() and (temperatures > 0).all()):
        raise ValueError("its shares or temperatures are invalid")


def _check_distributions(classes: Any, arrays: Arrays, count: int) -> int:
    """The number of classes, checked against the training points' probabilities: everything else has its size."""
    distributions, ratio = arrays["distributions"], arrays["ratio"]
    fits = distributions.shape == (count, classes) and ratio.shape == (classes,) and classes > 1
    if not (fits and (ratio > 0).all() and (distributions >= 0).all()):
        raise ValueError("its probabilities do not fit its points")
    return int(classes)


def _attaching(about: dict[str, Any], arrays: Arrays, count: int) -> Attaching:
    how = Attaching(**about, reach=arrays.get("reach"))
    check_whole("k", how.k, most=max(1, count - 1))
    known = how.metric in ("euclidean", "cosine") and how.method in ("auto", "exact", "cells")
    if how.reach is None:
        # It is 0 if every neighbor is a copy of its point.
        known = known and isinstance(how.bandwidth, (int, float)) and 0 <= how.bandwidth < np.inf
    if not known or not 0 < how.recall <= 1 or (how.reach is not None and how.reach.shape != (count,)):
        raise ValueError("its settings for attaching new points are invalid")
    return how


def _classes(about: dict[str, Any]) -> npt.NDArray[Any]:
    values, kind = about["values"], about["dtype"]
    if kind == "object":
        if not all(isinstance(value, str) for value in values):
            raise ValueError("its classes are not all texts")
        return np.array([*values, None], dtype=object)[:-1]
    dtype = np.dtype(kind)
    if dtype.kind not in "iubfU" or dtype.itemsize > 2**20:
        raise ValueError(f"its classes have type {dtype}")
    classes = np.array(values, dtype=dtype)
    if classes.ndim != 1 or classes.tolist() != values:
        raise ValueError("its classes do not match their declared type")
    return classes


def _check_scalars(config: dict[str, Any]) -> None:
    """Raise if a fitted value, a name or a curve has a type that no fit produces."""
    fitted = {name: config["fitted"][name] for name in SCALARS}
    for name in ("n_features_in_", "n_iter_"):
        check_whole(name, fitted[name])
    numbers = [fitted[name] for name in ("temperature_", "out_of_fold_accuracy_", "out_of_fold_log_loss_")]
    for name in ("family_accuracy_", "filter_importance_"):
        numbers += dict(fitted[name]).values()
    for curves in dict(config["history"]).values():
        for curve in dict(curves).values():
            numbers += curve
    good = all(isinstance(number, (int, float)) for number in numbers)
    good &= all(fitted[name] is None or isinstance(fitted[name], str) for name in ("scale_", "neighbor_scale_"))
    if not good or not all(isinstance(name, str) for name in config["feature_names"]):
        raise ValueError("its fitted values are not numbers")


def _check_types(arrays: Arrays) -> None:
    """Raise if an array's type does not match its name: bytes of one type read as another are meaningless."""
    for name, array in arrays.items():
        part = name.rsplit(".", 1)[-1]
        kinds = ("bool",) if part == "unit_rows" else _INTEGERS if part in _INTEGER_PARTS else _FLOATS
        if array.dtype.name not in kinds:
            raise ValueError(f"its array {name[:60]} has type {array.dtype}")


def _as_settings(networks: dict[str, Any]) -> dict[str, Any]:
    """The networks' settings, by the names of the estimator's parameters."""
    return {"n_members" if name == "members" else name: value for name, value in networks.items()}


def _check_finite(arrays: Arrays) -> None:
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != "out_of_fold_probabilities_" and not np.isfinite(array).all():
            raise ValueError(f"its array {name} holds values that are not finite")


def _under(prefix: str, values: dict[str, Any]) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def _numpy(tensor: Tensor) -> npt.NDArray[Any]:
    array: npt.NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def _kind(classes: npt.NDArray[Any]) -> str:
    return "object" if classes.dtype.kind == "O" else classes.dtype.str


def _plain(value: Any) -> Any:
    """A setting as a JSON value."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    if isinstance(value, torch.device):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
