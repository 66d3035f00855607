"""Newsgroup posts: reading them, stripping what reveals the group, and features from text."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sobgnn._system.arrays import save_arrays

# Listed explicitly, because the paper's features are unknown and every choice here affects accuracy.
TFIDF: dict[str, Any] = {"sublinear_tf": True, "min_df": 3, "max_df": 0.5, "stop_words": "english"}
SVD: dict[str, Any] = {"n_components": 256, "algorithm": "randomized", "n_iter": 5, "random_state": 0}

_QUOTE = re.compile(r"(writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>)")


class Posts(NamedTuple):
    """Posts in the order of (split, class, number), so that rows are the same from every source."""

    texts: tuple[str, ...]
    y: npt.NDArray[np.int64]
    is_test: npt.NDArray[np.bool_]
    class_names: tuple[str, ...]


def read_posts(content: bytes) -> Posts:
    """Posts from gzipped JSON lines with split, label, label_name, id and text."""
    with gzip.open(io.BytesIO(content), "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    names = {int(r["label"]): str(r["label_name"]) for r in records}
    found = [(r["split"] == "test", int(r["label"]), int(r["id"]), str(r["text"])) for r in records]
    return _in_order(found, tuple(names[label] for label in sorted(names)))


def fetch_posts() -> Posts:
    """Posts from scikit-learn's fetcher, which downloads them once and verifies its archive."""
    from sklearn.datasets import fetch_20newsgroups

    found = []
    names: tuple[str, ...] = ()
    for part in ("train", "test"):
        bunch = fetch_20newsgroups(subset=part, shuffle=False)
        names = tuple(bunch.target_names)
        numbers = [int(Path(str(file)).name) for file in bunch.filenames]
        found += [
            (part == "test", int(label), number, str(text))
            for label, number, text in zip(bunch.target, numbers, bunch.data, strict=True)
        ]
    return _in_order(found, names)


def _in_order(found: list[tuple[bool, int, int, str]], names: tuple[str, ...]) -> Posts:
    found = sorted(found)
    return Posts(
        tuple(text for _, _, _, text in found),
        np.array([label for _, label, _, _ in found], np.int64),
        np.array([test for test, _, _, _ in found], np.bool_),
        names,
    )


def strip_post(text: str) -> str:
    """The post without header, signature and quoted lines, by the rules of scikit-learn's ``remove``."""
    body = text.partition("\n\n")[2]
    lines = body.strip().split("\n")
    for number in range(len(lines) - 1, -1, -1):
        if lines[number].strip().strip("-") == "":
            break
    if number > 0:
        body = "\n".join(lines[:number])
    return "\n".join(line for line in body.split("\n") if not _QUOTE.search(line))


def text_features(texts: Sequence[str], cache: Path | None = None) -> npt.NDArray[np.float32]:
    """TF-IDF, then truncated SVD: [N, 256] float32, neither scaled nor normalized.

    Fitted on all texts, without labels: the setting is transductive. The SVD is seeded. The result is cached in
    ``cache`` under a name derived from the texts and the settings; a file that cannot be read is recomputed.
    """
    settings = json.dumps({"tfidf": TFIDF, "svd": SVD}, sort_keys=True)
    key = hashlib.sha256(settings.encode())
    for text in texts:
        key.update(len(text).to_bytes(8, "little") + text.encode("utf-8", "surrogatepass"))
    path = None if cache is None else cache / f"text-{key.hexdigest()[:24]}.npz"
    if path is not None and path.is_file():
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                X = np.asarray(file["X"])
            if X.dtype == np.float32 and len(X) == len(texts):
                return X
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            pass
    X = _tfidf_svd(texts)
    if path is not None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(path, {"X": X, "settings": np.array(settings)})
        except OSError as error:
            warnings.warn(f"Features were not cached in {path.parent}: {error}. Set SOBGNN_CACHE.", stacklevel=2)
    return X


def _tfidf_svd(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(**TFIDF).fit_transform(texts)
    return np.asarray(TruncatedSVD(**SVD).fit_transform(words), np.float32)
