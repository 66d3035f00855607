"""Newsgroup posts: reading them, stripping what reveals the group, and features from text."""

from __future__ import annotations

import gzip
import hashlib
import json
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sobgnn._system.arrays import load_arrays, save_arrays

# Listed explicitly, because the paper's features are unknown and every choice here affects accuracy.
TFIDF: dict[str, Any] = {"sublinear_tf": True, "min_df": 3, "max_df": 0.5, "stop_words": "english"}
SVD: dict[str, Any] = {"n_components": 256, "algorithm": "randomized", "n_iter": 5, "random_state": 0}


class Posts(NamedTuple):
    """Posts in the order of (split, class, number), so that rows are the same from every source."""

    texts: tuple[str, ...]
    y: npt.NDArray[np.int64]
    is_test: npt.NDArray[np.bool_]
    class_names: tuple[str, ...]


def read_posts(content: bytes) -> Posts:
    """Posts from gzipped JSON lines with split, label, label_name, id and text."""
    records = [json.loads(line) for line in gzip.decompress(content).splitlines()]
    names = {int(r["label"]): str(r["label_name"]) for r in records}
    found = ((r["split"] == "test", int(r["label"]), int(r["id"]), str(r["text"])) for r in records)
    return _in_order(found, tuple(names[label] for label in sorted(names)))


def fetch_posts() -> Posts:
    """Posts from scikit-learn's fetcher, which downloads them once and verifies its archive."""
    from sklearn.datasets import fetch_20newsgroups

    found, names = [], ()
    for part in ("train", "test"):
        bunch = fetch_20newsgroups(subset=part, shuffle=False)
        names = tuple(bunch.target_names)
        for label, file, text in zip(bunch.target, bunch.filenames, bunch.data, strict=True):
            found.append((part == "test", int(label), int(Path(str(file)).name), str(text)))
    return _in_order(found, names)


def _in_order(found: Iterable[tuple[bool, int, int, str]], names: tuple[str, ...]) -> Posts:
    test, labels, _, texts = zip(*sorted(found), strict=True)
    return Posts(texts, np.array(labels, np.int64), np.array(test, np.bool_), names)


def strip_post(text: str) -> str:
    """The post without header, signature and quoted lines, as scikit-learn's ``remove`` leaves it."""
    from sklearn.datasets import _twenty_newsgroups as rules

    return str(rules.strip_newsgroup_quoting(rules.strip_newsgroup_footer(rules.strip_newsgroup_header(text))))


def text_features(texts: Sequence[str], cache: Path) -> npt.NDArray[np.float32]:
    """TF-IDF, then truncated SVD: [N, 256] float32, neither scaled nor normalized.

    Fitted on all texts, without labels: the setting is transductive. The SVD is seeded. The result is cached in
    ``cache`` under a name derived from the texts and the settings; a file that cannot be read is recomputed.
    """
    settings = json.dumps({"tfidf": TFIDF, "svd": SVD}, sort_keys=True)
    key = hashlib.sha256(settings.encode())
    for text in texts:
        key.update(len(text).to_bytes(8, "little") + text.encode("utf-8", "surrogatepass"))
    path = cache / f"text-{key.hexdigest()[:24]}.npz"
    try:
        X = load_arrays(path, ["X"])["X"]
        if X.dtype == np.float32 and len(X) == len(texts):
            return X
    except (OSError, ValueError):
        pass
    X = _tfidf_svd(texts)
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
