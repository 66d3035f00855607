"""Where models of texts and pictures are: folders, the hub's local cache, installed packages, distilled ones.

The network is used by :func:`fetch` alone, which is called for a name that a person typed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sobgnn._system.files import atomic_folder, cache_folder
from sobgnn._system.packages import installed
from sobgnn.tables.meaning import ImageModel, TextModel
from sobgnn.tables.model_folder import ModelRecord

# Short names of models of texts; the first ones are preferred where several are at hand.
KNOWN = {
    "all-MiniLM-L6-v2": "sentence-transformers/all-MiniLM-L6-v2",
    "all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2",
    "paraphrase-multilingual-MiniLM-L12-v2": "sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2",
    "bge-small-en-v1.5": "BAAI/bge-small-en-v1.5",
    "multilingual-e5-small": "intfloat/multilingual-e5-small",
    "potion-base-8M": "minishlab/potion-base-8M",
}
# What is fetched: nothing that can hold code.
_FILES = ("*.json", "model*.safetensors", "*/config.json", "*/model.safetensors")
_NAME = re.compile(r"\w[\w.-]*(?:/\w[\w.-]*)?\Z")
# Number of characters, of 1,000 a text at most, up to which "auto" encodes without a GPU: some minutes on 2 cores.
_MOST_CHARACTERS = 10_000_000
_CUT = 1000
_STATIC_WIDTH, _SIF = 256, 1e-4

_Model = TypeVar("_Model", bound=TextModel | ImageModel)


@dataclass(frozen=True)
class Found:
    """A model on this machine."""

    name: str  # as on the hub, or of the package or folder
    folder: Path
    place: str  # what that is: "hub cache", "package NAME", "distilled", "folder"


def at_hand() -> list[Found]:
    """Models in the hub's local cache, in installed packages, and distilled here; nothing is loaded."""
    found = [Found(path.name, path, "distilled") for path in sorted(distilled_folder().glob("[!.]*"))]
    for ref in sorted(_hub_cache().glob("models--*/refs/main")):
        with contextlib.suppress(OSError, ValueError):
            place, revision = ref.parents[1], ref.read_text(encoding="utf-8").strip()
            if re.fullmatch(r"[0-9a-f]{40}", revision):
                name = place.name.removeprefix("models--").replace("--", "/", 1)
                found.append(Found(name, place / "snapshots" / revision, "hub cache"))
    for root in _package_folders():
        for file in sorted([*root.glob("*/modules.json"), *root.glob("*/*/modules.json")]):
            package = file.relative_to(root).parts[0]
            found.append(Found(package.replace("_", "-"), file.parent, f"package {package}"))
    return [each for each in found if (each.folder / "model.safetensors").exists()]


class AskedModel:
    """The model of texts that is asked for: found when the first column needs it, and opened once.

    Args:
        asked: A folder, a name, ``"auto"``, or ``None`` or ``"none"`` for words alone.
        progress: Takes a few words about how far it is with encoding.
    """

    def __init__(self, asked: str | Path | None, progress: Callable[[str], None] | None = None) -> None:
        self._progress, self.advice, self._auto = progress, "", asked == "auto"
        # A wrong name is said before anything is read.
        named = None if self._auto else find_text_model(asked)
        self._models: list[TextModel] | None = None if self._auto else [named] if named else []

    def of(self, count: int) -> TextModel | None:
        """The model for texts of so many characters; sets :attr:`advice` where words are used for want of one."""
        if self._models is None:
            self._models = models_of_texts()
        long = self._auto and count > _MOST_CHARACTERS and not _has_cuda()
        chosen = next((model for model in self._models if model.static or not long), None)
        if chosen is not None:
            chosen.progress = self._progress
        elif self._models:
            slow = self._models[0].name
            self.advice = (
                f"Texts go by their words, since {slow} would take long here: `sobgnn models distill {slow}` "
                f"makes a fast model of it, and --text-model {slow} insists."
            )
        elif self._auto:
            first = "" if installed("transformers") else "`pip install 'sobgnn[text]'`, then "
            self.advice = (
                f"Texts go by their words. {first}--text-model {next(iter(KNOWN))} fetches a model that compares their "
                "meaning too: for short texts often 10 to 25 points."
            )
        return chosen

    def finish(self) -> None:
        """Report no more."""
        for model in self._models or ():
            model.progress = None


def find_text_model(asked: str | Path | None) -> TextModel | None:
    """The model that is asked for: a folder, a name, or ``"auto"``; ``None`` for ``None`` and ``"none"``: words alone.

    A name is looked for here, and then on the hub.
    """
    if asked == "auto":
        return next(iter(models_of_texts()), None)
    found = None if asked is None or asked == "none" else find(asked)
    return None if found is None else TextModel(found.folder, found.name)


def models_of_texts() -> list[TextModel]:
    """The models at hand that compare texts and can be read, the most accurate ones first."""
    models = []
    for each in at_hand() if installed("tokenizers") else ():
        with contextlib.suppress(ValueError, OSError):  # a model of something else, or half of one
            model = TextModel(each.folder, each.name)
            if model.static or (model.of_sentences and installed("transformers")):
                models.append(model)
    order = {name: place for place, name in enumerate(KNOWN.values())}
    return sorted(models, key=lambda model: (model.static, order.get(model.name, len(order))))


def find_image_model(asked: str | Path | None) -> ImageModel | None:
    """The model that is asked for by a folder or a name; ``None`` for pixels and gradients alone."""
    if asked is None or asked == "none":
        return None
    found = find(asked)
    return ImageModel(found.folder, found.name)


FINDERS: dict[str, Callable[[Any], TextModel | ImageModel | None]] = {
    "text_model": find_text_model,
    "image_model": find_image_model,
}


def same_model(record: ModelRecord, find_model: Callable[[Path], _Model | None]) -> _Model | None:
    """The model at hand that has a recorded digest. The name in the record is not used to find it."""
    for each in at_hand():
        with contextlib.suppress(ValueError, OSError):  # a model of something else, or half of one
            model = find_model(each.folder)
            if model is not None and model.record.digest == record.digest:
                return model
    return None


def find(asked: str | Path) -> Found:
    """A folder, a model at hand by its name, or one that is fetched from the hub because its name was typed."""
    path = Path(asked).expanduser()
    if path.exists() or isinstance(asked, Path) or not _NAME.match(asked):
        return Found(path.resolve().name, path, "folder")
    for each in at_hand():
        if is_called(each, asked):
            return each
    return fetch(asked)


def is_called(found: Found, name: str) -> bool:
    """Whether a model has a name, or a short one; a package's name may begin with another word."""
    if "/" in name and not found.place.startswith("package"):
        return found.name.casefold() == name.casefold()
    return f"-{found.name}".casefold().replace("/", "-").endswith(f"-{name.split('/')[-1]}".casefold())


def fetch(name: str) -> Found:
    """Fetch a model by name with the hub's own client; raises ValueError in one line where that fails."""
    repository = KNOWN.get(name, name)
    if not installed("huggingface_hub"):
        raise ValueError(
            f"There is no model {name!r} on this machine, and the package huggingface_hub, which fetches it, is not "
            'installed: pip install "sobgnn[text]".'
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(repository, allow_patterns=list(_FILES)))
    except RepositoryNotFoundError:
        raise ValueError(f"There is no model {name!r} on this machine, and none of that name on the hub.") from None
    except Exception as error:  # the client can raise anything, from OSError to its own
        raise ValueError(
            f"There is no model {name!r} on this machine, and the hub cannot be reached. Run `sobgnn models fetch "
            f"{name}` where it can, or pass the folder of a copy."
        ) from error
    return Found(repository, folder, "hub cache")


def distilled_folder() -> Path:
    """Where static models are kept that were distilled on this machine."""
    return cache_folder() / "models"


def distill(asked: str) -> Found:
    r"""Make a static model of a sentence model: a vector for each word of its vocabulary.

    The vectors of single words, projected on their first 256 principal components and weighted by
    :math:`a / (a + p_i)` with a = 0.0001 and p_i the frequency of the word by its rank. Files are as model2vec's.
    """
    from safetensors.numpy import save_file
    from sklearn.decomposition import PCA

    found = find(asked)
    model = TextModel(found.folder, found.name)
    vectors = model.word_vectors()
    width = min(_STATIC_WIDTH, *vectors.shape)
    reduced = PCA(width, random_state=0).fit_transform(vectors)
    share = 1 / (np.arange(len(vectors)) + 2)
    reduced *= (_SIF / (_SIF + share / share.sum()))[:, None]
    folder = distilled_folder() / f"{found.name.split('/')[-1]}-static"
    with atomic_folder(folder, replace=True) as made:
        save_file({"embeddings": np.ascontiguousarray(reduced, dtype=np.float32)}, made / "model.safetensors")
        (made / "config.json").write_text(
            json.dumps({"model_type": "model2vec", "normalize": True, "hidden_dim": width, "sif_coefficient": _SIF})
        )
        (made / "tokenizer.json").write_bytes((found.folder / "tokenizer.json").read_bytes())
    return Found(folder.name, folder, "distilled")


def characters(texts: list[str | None]) -> int:
    """Number of characters of distinct texts, of 1,000 each at most."""
    return sum(min(len(text), _CUT) for text in set(texts) if text is not None)


def _hub_cache() -> Path:
    """The hub client's folder of models, by the variables that it reads."""
    home = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    hub = os.environ.get("HF_HOME", f"{home}/huggingface")
    return Path(os.environ.get("HF_HUB_CACHE", f"{hub}/hub")).expanduser()


def _package_folders() -> list[Path]:
    """Where packages are installed."""
    return [Path(path) for path in dict.fromkeys(sys.path) if path.endswith(("site-packages", "dist-packages"))]


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()
