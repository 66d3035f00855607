"""A fitted estimator as JSON values and arrays, and back; :mod:`sobgnn.estimator.artifact` writes the folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.estimator.families.foreign import FittedForeign
from sobgnn.estimator.inputs import Filling
from sobgnn.estimator.outcome import Outcome, outcome_from, set_attributes
from sobgnn.estimator.predictor import Predictor
from sobgnn.estimator.settings import check_whole
from sobgnn.estimator.state import Arrays, from_state, to_state

# Maximum length of a class's name in a saved model.
_LONGEST_NAME = 2**20


def take_apart(estimator: Any) -> tuple[dict[str, Any], Arrays]:
    """A fitted :class:`~sobgnn.SobolevClassifier` as JSON values and arrays."""
    for member in estimator.predictor_.members:
        if isinstance(member.fitted, FittedForeign):
            raise ValueError(
                f"The family {member.name!r} is a {type(member.fitted.estimator).__name__}, which `save` cannot write: "
                "store the whole classifier with joblib or skops (and load only files that you trust), or fit without "
                "it."
            )
    config: dict[str, Any] = {}
    arrays: Arrays = {}
    for name, part in (("predictor", estimator.predictor_), ("outcome", outcome_from(estimator))):
        config[name], own = to_state(part)
        arrays |= {f"{name}.{key}": array for key, array in own.items()}
    classes = estimator.classes_
    config["classes"] = {
        "values": classes.tolist(), "dtype": "object" if classes.dtype.kind == "O" else classes.dtype.str,
    }  # fmt: skip
    config["settings"] = {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()}
    config["filling"], own = to_state(estimator.filling_)
    arrays |= {f"filling.{key}": array for key, array in own.items()}
    encoder = estimator.encoder_
    config["table"], own = (None, {}) if encoder is None else encoder.to_parts()
    arrays |= {f"table.{key}": array for key, array in own.items()}
    config["n_features_in"] = int(estimator.n_features_in_)
    config["feature_names"] = [str(name) for name in getattr(estimator, "feature_names_in_", [])]
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
    """Set an estimator's fitted attributes from :func:`take_apart`.

    Raises:
        ValueError: Values are missing, impossible, or contradict each other.
    """
    predictor = from_state(Predictor, config["predictor"], _under("predictor.", arrays), device)
    outcome = from_state(Outcome, config["outcome"], _under("outcome.", arrays))
    predictor.check()
    estimator.classes_ = _classes(config["classes"])
    if len(estimator.classes_) != predictor.points.classes:
        raise ValueError("its classes and its points contradict each other")
    outcome.check(predictor.points.count, predictor.points.classes)
    count, names = config["n_features_in"], config["feature_names"]
    check_whole("n_features_in", count)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) not in (0, count):
        raise ValueError("its names of features are not as many texts")
    estimator.encoder_, estimator.filling_, read = None, None, count
    if config["table"] is not None:
        from sobgnn.tables import TableEncoder

        estimator.encoder_ = TableEncoder.from_parts(config["table"], _under("table.", arrays))
        read = estimator.encoder_.n_features_out_ if estimator.encoder_.n_features_in_ == count else -1
    elif config["filling"] is not None:
        estimator.filling_ = from_state(Filling, config["filling"], _under("filling.", arrays))
        estimator.filling_.check()
        read += len(estimator.filling_.marked) if len(estimator.filling_.medians) == count else -1
    if read != predictor.placed.sizes.features:
        raise ValueError("its features and its maps contradict each other")
    estimator.n_features_in_ = count
    if names:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    set_attributes(estimator, predictor, outcome)


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _classes(about: dict[str, Any]) -> npt.NDArray[Any]:
    values, kind = about["values"], about["dtype"]
    if kind == "object":
        if not all(isinstance(value, str) for value in values):
            raise ValueError("its classes are not all texts")
        classes = np.array([*values, None], dtype=object)[:-1]
    else:
        dtype = np.dtype(kind)
        if dtype.kind not in "iubfU" or dtype.itemsize > _LONGEST_NAME:
            raise ValueError(f"its classes have type {dtype}")
        classes = np.array(values, dtype=dtype)
        if classes.ndim != 1 or classes.tolist() != values:
            raise ValueError("its classes do not match their declared type")
    if len(set(values)) != len(values):
        raise ValueError("its classes are not distinct")
    return classes


def _plain(name: str, value: Any) -> Any:
    """A setting as a JSON value."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return [[_plain(name, key), _plain(name, entry)] for key, entry in value.items()]
    if isinstance(value, (tuple, list)):
        return [_plain(name, entry) for entry in value]
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, np.random.RandomState):
        return None  # its state after the fit says nothing about the fit
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError(f"`{name}` holds a {type(value).__name__}, which `save` cannot write.")
    return value
