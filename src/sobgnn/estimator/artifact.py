"""A saved model as a folder: safetensors and JSON, never pickle."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import numpy as np

from sobgnn._system.files import atomic_folder, check_inside, file_digest, json_digest, read_json
from sobgnn.estimator.state import Arrays

FORMAT = "sobgnn.SobolevClassifier"
FORMAT_VERSION = 8
# Maximum size in bytes of a safetensors file's header, which names its arrays.
_LARGEST_HEADER = 64 << 20
WEIGHTS, CONFIG = "weights.safetensors", "config.json"


class ArtifactError(ValueError):
    """A folder does not hold a classifier that can be loaded, or must not be written over."""


def write_folder(folder: str | Path, config: dict[str, Any], arrays: Arrays) -> None:
    """Write ``config.json`` and ``weights.safetensors``: to a temporary folder, flushed, then renamed.

    An existing model is replaced; a folder that holds anything else is refused.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    folder = Path(folder)
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
            "versions": _versions(),
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
    from safetensors.numpy import load_file

    folder = Path(folder)
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ArtifactError(f"{folder} is not a saved model: it has no {name}.")
        check_inside(folder / name, folder)
    before = _identity(folder / WEIGHTS)
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
    if not _has_its_length(folder / WEIGHTS) or config.get("weights_sha256") != file_digest(folder / WEIGHTS):
        raise ArtifactError(f"{folder / WEIGHTS} is truncated or was changed: its length or digest does not match.")
    try:
        arrays = load_file(folder / WEIGHTS)
    except (SafetensorError, ValueError, KeyError, OSError) as error:
        raise ArtifactError(f"{folder / WEIGHTS} is damaged: {_one_line(error)}") from None
    if _identity(folder / WEIGHTS) != before:
        raise ArtifactError(f"{folder} was replaced while it was being read. Load it again.")
    return config, arrays


def _replaceable(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir()}
    if not names:
        return True
    try:
        config = read_json(folder / CONFIG)
    except (ValueError, OSError):
        return False
    return names <= {CONFIG, WEIGHTS} and isinstance(config, dict) and config.get("format") == FORMAT


def _versions() -> dict[str, str]:
    import platform

    from sobgnn import __version__

    versions = {"sobgnn": __version__, "python": platform.python_version()}
    for name in ("torch", "numpy", "scipy", "scikit-learn", "safetensors"):
        versions[name] = importlib.metadata.version(name)
    return versions


def _has_its_length(path: Path) -> bool:
    """Whether a safetensors file is exactly as long as its header declares, so that reading stays in bounds."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > min(size, _LARGEST_HEADER):
            return False
        try:
            parts = json.loads(file.read(length))
            ends = [int(part["data_offsets"][1]) for part in parts.values() if "data_offsets" in part]
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError, RecursionError):
            return False
    return 8 + length + max(ends, default=0) == size


def _identity(path: Path) -> tuple[int, ...]:
    """What distinguishes a file from one that was renamed to its name, and from its own changed content."""
    try:
        status = path.stat()
    except FileNotFoundError:  # between two renames
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
