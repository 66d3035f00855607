"""A fitted estimator as JSON values and arrays, and back; :mod:`sobgnn.estimator.artifact` makes a folder of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.estimator.artifact import Arrays, pack_predictor, unpack_predictor

# Fitted values that JSON holds.
SCALARS = (
    "n_features_in_", "n_iter_", "mixing_", "diffusion_", "smoothing_", "weak_labels_", "self_training_",
    "temperature_",
    "out_of_fold_accuracy_", "out_of_fold_log_loss_", "scale_", "neighbor_scale_",
)  # fmt: skip


def take_apart(estimator: Any) -> tuple[dict[str, Any], Arrays]:
    """A fitted :class:`~sobgnn.SobolevClassifier` as JSON values and arrays."""
    config, arrays = pack_predictor(estimator.predictor_)
    config["classes"] = {"values": estimator.classes_.tolist(), "dtype": _kind(estimator.classes_)}
    config["settings"] = {name: _plain(value) for name, value in estimator.get_params(deep=False).items()}
    config["fitted"] = {name: getattr(estimator, name) for name in SCALARS}
    config["feature_names"] = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
    arrays["labelled"], arrays["codes"] = estimator.labelled_, estimator.labelled_codes_
    arrays["embedding"] = estimator.embedding_
    if estimator.filter_weights_ is not None:
        arrays["filter_weights"] = estimator.filter_weights_
    for family, curves in estimator.history_.items():
        arrays |= {f"history.{family}.{name}": curve for name, curve in curves.items()}
    return config, arrays


def settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator as they were before JSON made lists of them."""
    restored = dict(stored)
    if isinstance(stored.get("class_weight"), list):
        restored["class_weight"] = dict(stored["class_weight"])
    if isinstance(stored.get("scale"), list):
        restored["scale"] = tuple(stored["scale"])
    return restored


def put_together(estimator: Any, config: dict[str, Any], arrays: Arrays, device: str | torch.device) -> None:
    """Give an estimator what :func:`take_apart` took from another, all but what follows from the predictor."""
    values, kind = config["classes"]["values"], config["classes"]["dtype"]
    estimator.classes_ = np.array(values, dtype=object if kind == "object" else np.dtype(kind))
    for name in SCALARS:
        setattr(estimator, name, config["fitted"][name])
    if config["feature_names"]:
        estimator.feature_names_in_ = np.array(config["feature_names"], dtype=object)
    estimator.predictor_ = unpack_predictor(config, arrays).to(device)
    estimator.labelled_, estimator.labelled_codes_ = arrays["labelled"], arrays["codes"]
    estimator.embedding_ = arrays["embedding"]
    estimator.filter_weights_ = arrays.get("filter_weights")
    estimator.history_ = {}
    for name in arrays:
        if name.startswith("history."):
            _, family, curve = name.split(".", 2)
            estimator.history_.setdefault(family, {})[curve] = arrays[name]


def _kind(classes: npt.NDArray[Any]) -> str:
    return "object" if classes.dtype.kind == "O" else classes.dtype.str


def _plain(value: Any) -> Any:
    """A setting as JSON holds it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return [[_plain(key), _plain(entry)] for key, entry in value.items()]
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, torch.device):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
