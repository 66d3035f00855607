"""A saved model: a fitted estimator as a folder of safetensors and JSON, never pickle, and back."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn._system.files import atomic_folder, check_inside, file_digest, json_digest, read_json
from sobgnn.estimator.families.foreign import FittedForeign
from sobgnn.estimator.fitted import Outcome, Predictor, set_attributes
from sobgnn.estimator.state import Arrays, check_parts, from_state, to_state
from sobgnn.estimator.validation import Filling, check_whole

FORMAT = "sobgnn.SobolevClassifier"
FORMAT_VERSION = 9
WEIGHTS, CONFIG = "weights.safetensors", "config.json"
# Packages whose versions are noted in a saved model.
_PACKAGES = ("torch", "numpy", "scipy", "scikit-learn", "safetensors")
# Maximum length of a class's name in a saved model.
_LONGEST_NAME = 2**20


class ArtifactError(ValueError):
    """A folder does not hold a classifier that can be loaded, or must not be written over."""


def take_apart(estimator: Any) -> tuple[dict[str, Any], Arrays]:
    """A fitted :class:`~sobgnn.SobolevClassifier` as JSON values and arrays."""
    for member in estimator.predictor_.members:
        if isinstance(member.fitted, FittedForeign):
            raise ValueError(
                f"The family {member.name!r} is a {type(member.fitted.estimator).__name__}, which `save` cannot write: "
                "store the whole classifier with joblib or skops (and load only files that you trust), or fit without "
                "it."
            )
    encoder, classes = estimator.encoder_, estimator.classes_
    table, own = (None, {}) if encoder is None else encoder.to_parts()
    arrays: Arrays = {f"table.{key}": array for key, array in own.items()}
    config: dict[str, Any] = {
        "classes": {
            "values": classes.tolist(), "dtype": "object" if classes.dtype.kind == "O" else classes.dtype.str,
        },
        "settings": {name: _plain(name, value) for name, value in estimator.get_params(deep=False).items()},
        "table": table,
        "n_features_in": int(estimator.n_features_in_),
        "feature_names": [str(name) for name in getattr(estimator, "feature_names_in_", [])],
    }  # fmt: skip
    for name in ("predictor", "outcome", "filling"):
        config[name], own = to_state(getattr(estimator, f"{name}_"))
        arrays |= {f"{name}.{key}": array for key, array in own.items()}
    return config, arrays


def settings(stored: dict[str, Any]) -> dict[str, Any]:
    """Parameters of an estimator as they were before JSON turned them into lists."""
    lists = {"class_weight": dict, "class_priors": dict, "scale": tuple}
    return {
        name: lists[name](value) if name in lists and isinstance(value, list) else value
        for name, value in stored.items()
    }


def put_together(estimator: Any, config: dict[str, Any], arrays: Arrays, device: str | torch.device) -> None:
    """Set an estimator's fitted attributes from :func:`take_apart`.

    Raises:
        ValueError: Values are missing, impossible, or contradict each other.
    """

    def part(name: str) -> Arrays:
        prefix = f"{name}."
        return {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}

    predictor = from_state(Predictor, config["predictor"], part("predictor"), device)
    outcome = from_state(Outcome, config["outcome"], part("outcome"))
    sizes = predictor.placed.sizes
    check_parts((predictor, outcome), sizes, predictor.points)
    estimator.classes_ = _classes(config["classes"])
    if len(estimator.classes_) != sizes["classes"]:
        raise ValueError("its classes and its points contradict each other")
    count, names = config["n_features_in"], config["feature_names"]
    check_whole("n_features_in", count)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len(names) not in (0, count):
        raise ValueError("its names of features are not as many texts")
    estimator.encoder_, estimator.filling_, read = None, None, count
    if config["table"] is not None:
        from sobgnn.tables import TableEncoder

        estimator.encoder_ = TableEncoder.from_parts(config["table"], part("table"))
        with contextlib.suppress(ValueError):  # a model that is not at hand is missed by what encodes texts
            estimator.encoder_ = estimator.encoder_.with_models()
        read = estimator.encoder_.n_features_out_ if estimator.encoder_.n_features_in_ == count else -1
    elif config["filling"] is not None:
        estimator.filling_ = from_state(Filling, config["filling"], part("filling"))
        check_parts(estimator.filling_, {"features": count})
        read += len(estimator.filling_.marked)
    if read != sizes["features"]:
        raise ValueError("its features and its maps contradict each other")
    estimator.n_features_in_ = count
    if names:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    set_attributes(estimator, predictor, outcome)


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
        return None  # its state after the fit shows nothing of the fit
    if not isinstance(value, (str, int, float, bool, type(None))):
        raise ValueError(f"`{name}` holds a {type(value).__name__}, which `save` cannot write.")
    return value


def write_folder(folder: str | Path, config: dict[str, Any], arrays: Arrays) -> None:
    """Write ``config.json`` and ``weights.safetensors``: to a temporary folder, flushed, then renamed.

    An existing model is replaced; a folder that holds anything else is refused.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    from sobgnn import __version__

    folder, used = Path(folder), {name: importlib.metadata.version(name) for name in _PACKAGES}
    if folder.exists() and not (folder.is_dir() and _replaceable(folder)):
        raise ArtifactError(f"{folder} exists and is not a saved model. Give another folder, or remove it.")
    with atomic_folder(folder, replace=True) as temporary:
        try:
            save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, temporary / WEIGHTS)
        except SafetensorError as error:  # such as a full disk
            raise OSError(f"{folder} cannot be written: {_one_line(error)}") from None
        full = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "versions": {"sobgnn": __version__, "python": platform.python_version(), **used},
            **config,
            "weights_sha256": file_digest(temporary / WEIGHTS),
        }
        full["config_sha256"] = json_digest(full)
        (temporary / CONFIG).write_text(json.dumps(full, indent=1, allow_nan=True) + "\n", encoding="utf-8")
        # safetensors makes its file readable only by the owner.
        (temporary / WEIGHTS).chmod((temporary / CONFIG).stat().st_mode)


def read_folder(folder: str | Path) -> tuple[dict[str, Any], Arrays]:
    """Read what :func:`write_folder` wrote, and verify its digests."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ArtifactError(f"{folder} is not a saved model: it has no {name}.")
        check_inside(folder / name, folder)
    try:
        config = read_json(folder / CONFIG)
    except (ValueError, OSError) as error:
        raise ArtifactError(_one_line(error)) from None
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise ArtifactError(f"{folder} is not a saved {FORMAT}: its config.json has another format.")
    version = config.get("format_version")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{folder} has format version {version!r:.40}, but this version of sobgnn reads {FORMAT_VERSION}. "
            "Load it with the version that wrote it (config.json names it), or save it again."
        )
    if config.pop("config_sha256", None) != json_digest(config):
        raise ArtifactError(f"{folder / CONFIG} was changed after it was written: its digest does not match.")
    # Read once: another process may replace the folder meanwhile.
    weights = (folder / WEIGHTS).read_bytes() if _is_whole(folder / WEIGHTS) else b""
    if config.get("weights_sha256") != hashlib.sha256(weights).hexdigest():
        raise ArtifactError(
            f"{folder / WEIGHTS} is truncated or was changed: its length or digest does not match. If it was replaced "
            "while it was being read, load it again."
        )
    try:
        return config, load(weights)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ArtifactError(f"{folder / WEIGHTS} is damaged: {_one_line(error)}") from None


def _replaceable(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        config = read_json(folder / CONFIG)
    except (ValueError, OSError):
        return False
    return names <= {CONFIG, WEIGHTS} and isinstance(config, dict) and config.get("format") == FORMAT


def _is_whole(path: Path) -> bool:
    """Whether a safetensors file is exactly as long as its header declares; nothing else of it is read."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy"):
            return True
    except (SafetensorError, ValueError, OSError):
        return False


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
