"""A folder of a model, JSON and safetensors, and what is saved of it.

Every file of such a folder is opened here, by a fixed name or one without a slash. JSON is parsed, weights are read as
safetensors, and the libraries get the content: no path, nothing to import by a name, nothing to unpickle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from sobgnn._system.files import check_regular, file_digest, read_json

_PLAIN = re.compile(r"(?!\.)[\w.-]+\Z")
_Model = TypeVar("_Model", bound="ModelFolder")


@dataclass(frozen=True)
class ModelRecord:
    """What is saved of an encoder: what to call it, and what it is recognized by. It holds no path."""

    name: str  # what it was called when it was used
    digest: str  # SHA-256 over the names and digests of all files that it was read from

    def __post_init__(self) -> None:
        """Raise ValueError if it is none: it may come from a damaged file."""
        if not re.fullmatch(r"[0-9a-f]{64}", self.digest):
            raise ValueError("the record of a model")

    def __str__(self) -> str:
        return f"{self.name[:100]!r} (digest {self.digest[:12]})"


def check_same(record: ModelRecord, model: _Model | None, option: str) -> _Model:
    """The model, if it is the recorded one; otherwise raises a ValueError that says ``option``, how it is passed."""
    if model is None:
        raise ValueError(
            f"It was fitted with the model {record}, which is not saved with it. Pass the model's folder: {option}."
        )
    if model.record.digest != record.digest:
        raise ValueError(f"It was fitted with the model {record}, but {option} gives {model.record}. Pass the former.")
    return model


class ModelFolder:
    """A model's folder, of which every file that is read is part of what the model is recognized by.

    Args:
        folder: The model's folder.
        name: What to call it; ``None`` for the folder's name.
    """

    def __init__(self, folder: str | Path, name: str | None = None) -> None:
        self.folder = Path(folder)
        if self.folder.is_file() and self.folder.suffix in (".pt", ".pt2", ".pth", ".onnx", ".bin", ".pkl"):
            raise ValueError(
                f"{self.folder} may hold code that runs when it is opened, so it is not. Pass a folder with "
                "config.json and model.safetensors, as save_pretrained of transformers writes it."
            )
        if not self.folder.is_dir():
            raise ValueError(f"There is no folder {str(folder)!r} with a model.")
        self.name = name or self.folder.resolve().name
        self._read: set[str] = set()

    @cached_property
    def record(self) -> ModelRecord:
        """What the model is recognized by."""
        lines = [f"{name} {file_digest(self._path(name))}\n" for name in sorted(self._read)]
        return ModelRecord(self.name, hashlib.sha256("".join(lines).encode()).hexdigest())

    def _path(self, name: str) -> Path:
        """Path of a file in the folder; raises ValueError if the name is no file's."""
        if not all(_PLAIN.match(part) for part in name.split("/")):
            raise ValueError(f"{self.folder} names {name!r:.80}, which is no file in it.")
        return self.folder / name

    def _note(self, name: str) -> Path:
        """Take a file as one of the model's; raises ValueError if it is missing."""
        path = self._path(name)
        if not path.exists():
            raise ValueError(f"{self.folder} is not a model's folder, or only half of one: it has no {name}.")
        check_regular(path)
        self._read.add(name)
        return path

    def _json(self, name: str, kind: type = dict, optional: bool = False) -> Any:
        """The value of a JSON file, of that type; an empty one if it is missing and may be."""
        if optional and not self._path(name).exists():
            return kind()
        content = read_json(self._note(name))
        if not isinstance(content, kind):
            what = "list" if kind is list else "object"
            raise ValueError(f"{self._path(name)} is damaged: it holds no {what}.")
        return content

    def _note_weights(self, place: str = "") -> list[str]:
        """Names of the safetensors files of a module."""
        names = [f"{place}model.safetensors"]
        index = f"{place}model.safetensors.index.json"
        if self._path(index).exists():
            parts = sorted({str(part) for part in dict(self._json(index).get("weight_map", {})).values()})
            if not parts or not all(_PLAIN.match(part) and part.endswith(".safetensors") for part in parts):
                raise ValueError(f"{self._path(index)} is damaged: it names no safetensors files beside it.")
            names = [place + part for part in parts]
        for name in names:
            if not self._path(name).exists():
                raise ValueError(
                    f"{self.folder} has no {name}, and weights in another form are not read. Get that file too, or "
                    "save the model with save_pretrained of transformers."
                )
            self._note(name)
        return names

    def _weights(self, names: Sequence[str]) -> dict[str, Any]:
        """Tensors by name."""
        from safetensors.torch import load_file

        return {key: tensor for name in names for key, tensor in load_file(self._path(name)).items()}

    def _check_kind(self, config: dict[str, Any], kinds: Sequence[str]) -> None:
        if config.get("model_type") not in kinds:
            raise ValueError(
                f"{self.folder} holds a model of type {config.get('model_type')!r:.40}. Those that are read: "
                f"{', '.join(kinds)}."
            )
