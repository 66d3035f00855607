"""Data sets by name: from a folder of verified files, else by scikit-learn's fetchers. Nothing is unpickled."""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from sobgnn._system.files import cache_folder
from sobgnn.datasets.catalogue import CATALOGUE, CONTENT, Entry
from sobgnn.datasets.news import Posts, fetch_posts, read_posts, strip_post, text_features

__all__ = ["Dataset", "Location", "load", "locate", "names"]

POSTS = ".jsonl.gz"  # how files of newsgroup posts end
# Codes of Dataset.splits.
TRAIN, TEST = 1, 3


@dataclass(frozen=True)
class Dataset:
    """Points and their labels, and a graph if the data set has one. Features are not standardized.

    Attributes:
        X: [N, F] float32, dense or scipy CSR.
        y: [N] int64, from 0.
        class_names: One per class.
        edge_index: [2, E] int64, both directions of each edge, no self-loops; None for points.
        splits: [S, N] int8 published splits: 0 unused, 1 train, 2 validation, 3 test; None if there is none.
        groups: [N] int64, who or what a row was measured on (subject, speaker group); None if unknown.
        texts: The N texts that X was made from; None for other data.
        standardize: Whether the columns have units of their own, so that distances need them standardized.
    """

    name: str
    X: npt.NDArray[np.float32] | sp.csr_array
    y: npt.NDArray[np.int64]
    class_names: tuple[str, ...]
    edge_index: npt.NDArray[np.int64] | None = None
    splits: npt.NDArray[np.int8] | None = None
    groups: npt.NDArray[np.int64] | None = None
    texts: tuple[str, ...] | None = None
    description: str = ""
    licence: str = ""
    standardize: bool = False


class Location(NamedTuple):
    """Where a data set would be loaded from: a file, scikit-learn (shipped or downloaded), or nowhere."""

    name: str
    source: Literal["file", "shipped", "download", "missing"]
    path: Path | None


def names() -> tuple[str, ...]:
    """The names that :func:`load` accepts."""
    return tuple(CATALOGUE)


def locate(name: str, folder: str | Path | None = None) -> Location:
    """Where ``load(name, folder)`` would find the data set. Reads no file, and does not use the network."""
    entry, place = _entry(name), _folder(folder)
    if entry.file is None:
        return Location(name, "shipped", None)
    if place is not None and (place / entry.file).is_file():
        return Location(name, "file", place / entry.file)
    return Location(name, "download" if name in CONTENT or entry.file.endswith(POSTS) else "missing", None)


def load(name: str, folder: str | Path | None = None) -> Dataset:
    """Load the data set with this name.

    Its file is looked for in ``folder``, or in the folder that SOBGNN_DATA names, and must have the sha256 of the
    catalog; otherwise scikit-learn's fetcher is used, if there is one. Missing entries of dense features are filled
    with the median of their column. ``20news`` gets features from its texts (see
    :func:`sobgnn.datasets.news.text_features`), cached in SOBGNN_CACHE or ~/.cache/sobgnn.

    Raises:
        ValueError: unknown name; a file that is altered, truncated or incomplete.
        FileNotFoundError: Not found; the message names the places that were searched.
    """
    entry, where, place = _entry(name), locate(name, folder), _folder(folder)
    news = str(entry.file).endswith(POSTS)
    if where.path is not None:
        content = where.path.read_bytes()
        _check_hash(content, entry.sha256, where.path)
        try:
            parts = _news(name, read_posts(content)) if news else _read_npz(content)
        except (OSError, KeyError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            reason = error.args[0] if isinstance(error, KeyError) else error  # str() would add quotes
            raise ValueError(f"{where.path} cannot be read as the file of {name!r}: {reason}.") from error
    else:
        advice = (
            f"{f'{entry.file} is not in {place}' if place else 'SOBGNN_DATA is not set and no folder was given'}. Set "
            f"SOBGNN_DATA to the folder that holds {entry.file} (sha256 {entry.sha256}). docs/paper.md says what it "
            "holds."
        )
        if where.source == "missing":
            raise FileNotFoundError(f"Data set {name!r} was not found: {advice}")
        try:
            parts = _news(name, fetch_posts()) if news else _fetch_digits(name)
        except OSError as error:  # raised by urllib without a network
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise FileNotFoundError(f"Data set {name!r} could not be downloaded ({reason}), and {advice}") from error
    parts = _finish(name, parts)
    return Dataset(name, description=entry.description, licence=entry.licence, standardize=entry.standardize, **parts)


def _entry(name: str) -> Entry:
    if name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(str(name).lower(), CATALOGUE, n=3)
    way = f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Known: {', '.join(CATALOGUE)}."
    raise ValueError(f"There is no data set {name!r}. {way}")


def _folder(folder: str | Path | None) -> Path | None:
    chosen = folder if folder is not None else os.environ.get("SOBGNN_DATA")
    return Path(chosen).expanduser() if chosen else None


def _check_hash(content: bytes, expected: str, what: object) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise ValueError(
            f"{what} is truncated or altered: its sha256 is {found[:12]}…, not {expected[:12]}…. Get the file again."
        )


def _read_npz(content: bytes) -> dict[str, Any]:
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        parts: dict[str, Any] = {"y": file["y"]}
        if "X_data" in file:
            arrays = (file["X_data"], file["X_indices"], file["X_indptr"])
            parts["X"] = sp.csr_array(arrays, shape=tuple(file["X_shape"].tolist()))
        else:
            parts["X"] = file["X"]
        known = file["class_names"] if "class_names" in file else range(int(parts["y"].max()) + 1)
        parts["class_names"] = tuple(map(str, known))
        if "edge_index" in file:
            parts["edge_index"] = file["edge_index"].astype(np.int64)
        if "splits" in file:
            parts["splits"] = file["splits"].astype(np.int8)
        elif "split" in file:
            # Files of points have 0 for train, 1 for test; files of graphs have the codes of Dataset.splits.
            split = file["split"] if "edge_index" in file else np.where(file["split"] == 0, TRAIN, TEST)
            parts["splits"] = split.astype(np.int8)[None]
        for key in ("subject", "group"):
            if key in file:
                parts["groups"] = file[key].astype(np.int64)
    return parts


def _news(name: str, posts: Posts) -> dict[str, Any]:
    texts = tuple(map(strip_post, posts.texts)) if name == "20news-stripped" else posts.texts
    splits = np.where(posts.is_test, TEST, TRAIN).astype(np.int8)[None]
    X = text_features(texts, cache_folder())
    return {"X": X, "y": posts.y, "class_names": posts.class_names, "splits": splits, "texts": texts}


def _fetch_digits(name: str) -> dict[str, Any]:
    """The digits that scikit-learn ships, or downloads as ``mnist``."""
    from sklearn.datasets import fetch_openml, load_digits

    splits = None
    if name == "mnist":
        X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True, parser="liac-arff")
        splits = np.where(np.arange(len(y)) < 60000, TRAIN, TEST).astype(np.int8)[None]
    else:
        X, y = load_digits(return_X_y=True)
    gray, labels = np.ascontiguousarray(X, np.uint8), np.ascontiguousarray(y, "<i8")
    _check_hash(gray.tobytes() + labels.tobytes(), CONTENT[name], f"scikit-learn's copy of {name!r}")
    return {"X": gray, "y": labels, "class_names": tuple("0123456789"), "splits": splits}


def _finish(name: str, parts: dict[str, Any]) -> dict[str, Any]:
    """Ensure dtypes, fill missing values, and check that lengths agree."""
    X, y = parts["X"], np.asarray(parts["y"], np.int64)
    if name.startswith("cancer"):
        parts["class_names"] = tuple(c.partition("_")[2] or c for c in parts["class_names"])
    if name == "cancer-binary":
        tumor = parts["class_names"].index("TUMOR")
        y, parts["class_names"] = (y == tumor).astype(np.int64), ("other", "TUMOR")
    if not sp.issparse(X) and np.isnan(X).any():
        X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    X = X.astype(np.float32) if sp.issparse(X) else np.ascontiguousarray(X, np.float32)
    n = X.shape[0]
    lengths = {"y": len(y)}
    lengths |= {key: parts[key].shape[-1] for key in ("splits", "groups") if parts.get(key) is not None}
    for key, length in lengths.items():
        if length != n:
            raise ValueError(f"The file of {name!r} is inconsistent: {key} has {length} entries for {n} rows.")
    edges = parts.get("edge_index")
    if edges is not None and edges.size and not 0 <= edges.min() <= edges.max() < n:
        raise ValueError(f"The file of {name!r} is inconsistent: an edge leads outside its {n} rows.")
    return parts | {"X": X, "y": y}
