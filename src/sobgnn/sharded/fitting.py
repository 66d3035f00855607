"""Fitting over shards, step by step; and what a fit found out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from fsspec.implementations.local import LocalFileSystem

from sobgnn._system.files import lock_file
from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.families.spreading import STRENGTH
from sobgnn.estimator.labels import encode_labels
from sobgnn.estimator.spreading import chebyshev
from sobgnn.estimator.validation import check_settings
from sobgnn.sharded import cells, graph, heads, neighbors, propagate
from sobgnn.sharded.engine import make_engine
from sobgnn.sharded.rows import Source, as_ids, read_labels
from sobgnn.sharded.sample import read_labels_in_folds
from sobgnn.sharded.steps import Run, Steps
from sobgnn.sharded.store import Store

# The estimator's parameters that shards have too, and of those with several kinds of values, which.
SETTINGS = (
    "alpha", "epsilon", "families", "hidden_channels", "dropout", "n_members", "class_weight", "class_priors", "scale",
    "n_components", "bandwidth", "epochs", "lr", "weight_decay",
)  # fmt: skip
# Points of a cell on average, and the largest number of cells.
_SIZE, _MOST_CELLS = 256, 1 << 16
# Rows of a sample at least; entries of points that a shard has by default; entries from which they are kept in half
# precision; and entries of labels that are diffused at once.
_SAMPLE, _SHARD, _HALF, _SPREAD = 100_000, 80_000_000, 400_000_000, 200_000_000
# Steps that diffusion takes, about, for the estimate of what is left.
_STEPS = 75


@dataclass(frozen=True)
class Result:
    """What a fit over shards found out.

    Attributes:
        out: The run's folder or URL.
        predictions: Where ids, labels and probabilities are: a pattern of Parquet files.
        rows: Number of rows N.
        recall: Share of the true neighbors that were found, on a sample.
        near: Number of cells that were searched for each point.
        accuracy: The probable accuracy on unlabeled rows; ``None`` if no label could be held out.
        interval: Its 95 % interval.
        shares: The families' shares.
    """

    out: str
    predictions: str
    rows: int
    recall: float
    near: int
    accuracy: float | None
    interval: tuple[float, float]
    shares: dict[str, float]


def fit(
    data: str | os.PathLike[str] | Sequence[Any],
    labels: Any,
    out: str | os.PathLike[str],
    *,
    points: str | None = None,
    id: str | None = None,
    engine: str = "local",
    k: int = 10,
    recall: float = 0.99,
    shards: int | None = None,
    random_state: int = 0,
    keep: bool = False,
    progress: Callable[[str], None] | None = None,
    **settings: Any,
) -> Result:
    """Label the rows of many files, from the rows that have a label; call it again to resume.

    The estimator's families learn, as in :class:`~sobgnn.SobolevClassifier`, but the points and their graph are cut
    into shards that are worked on one by one, or on many machines. Everything between two steps is in files of ``out``,
    so a fit that was killed resumes at the last step that finished, on the same engine or on another.

    Args:
        data: ``.npy`` or Parquet files: a pattern such as ``"s3://b/part-*.parquet"``, a folder, or a list.
        labels: A CSV file or a frame with a column of ids and one of labels, or a mapping of id to label.
        out: The run: a folder, or a URL that every machine can reach.
        points: The column of points, if there are several columns of vectors; columns of numbers are joined.
        id: The column of ids; default: ``id``, or else the number of the row over all files.
        engine: ``"local"`` (this process), ``"local:4"`` (processes), ``"ray"`` (a cluster of this machine, or that of
            RAY_ADDRESS), ``"auto"`` (the cluster that this machine belongs to), or ``"ray://head:10001"``.
        k: Neighbors of each point.
        recall: Share of the true neighbors to find.
        shards: Number of shards; the result does not depend on it. More of them need less memory each.
        random_state: Same number, same predictions.
        keep: Keep every file, instead of those that predictions need.
        progress: Called with a line of text after each piece of work.
        settings: Others of the estimator's parameters: alpha, epsilon, families, hidden_channels, dropout, n_members,
            class_weight ("balanced" or None), class_priors ("auto" or None), scale, n_components, bandwidth ("mean" or
            a number), epochs, lr, weight_decay.

    Raises:
        ValueError: In one line: files are missing, cut or different, rows have NaN, ids occur twice, labels name
            unknown ids or a single class, no space is left, or the run holds another fit.
    """
    root = os.fspath(out)
    root = str(Path(root).expanduser().absolute()) if is_local(root) else root
    checked = _checked(settings, k)
    if not 0 < recall <= 1:
        raise ValueError(f"`recall` must be above 0 and at most 1, but got {recall!r}.")
    if shards is not None and (isinstance(shards, bool) or not isinstance(shards, int) or shards < 1):
        raise ValueError(f"`shards` must be a whole number from 1, but got {shards!r}.")
    with only_one(root):
        run = Run(root)
        before = plan_of(run.store)
        source = Source.of(data, points, id)
        ids, codes, classes, digest = _labels(labels, source)
        plan = _plan(source, classes, digest, checked, k, recall, random_state)
        plan["shards"] = shards or (before or plan)["shards"]
        if before is not None and before != plan:
            other = next(name for name in plan if before.get(name) != plan[name])
            raise ValueError(
                f"{root} holds a fit with other {other}. Pass the same to resume it, or name another folder."
            )
        say = progress or (lambda _: None)
        if before is None:
            say(f"{source.rows:,} rows of {len(source.files)} files; {_disk(plan, source, run.store)}")
            run.store.save("label-ids", ids)
            run.store.save("label-codes", codes)
            run.store.write_json("plan", plan)
        working = make_engine(engine)
        try:
            return _fit(run, Steps(run, working, progress), keep)
        finally:
            working.close()


def _fit(run: Run, step: Steps, keep: bool) -> Result:
    """Every step in turn; files are removed when no later step reads them."""
    parts, shards, store = range(len(run.plan["parts"])), range(run.shards), run.store

    def done_with(names: str, over: Sequence[int] = shards) -> None:
        if not keep:
            store.remove(*(f"{name}-{number}" for name in names.split() for number in over))

    step("inspect", cells.inspect, parts)
    step("ids", cells.check_ids, [0])
    step("cells", cells.make_cells, [0])
    done_with("sample keys labeled labeled-points", parts)
    step("partition", cells.partition, parts)
    nodes = sum(found["rows"] for found in step("gather", cells.gather, shards))
    done_with("part-points part-home part-ids part-rows", parts)
    step("truth", neighbors.truth, shards)
    (found,) = step("recall", neighbors.recall, [0])
    done_with("truth-distance truth-home")
    step("ask", neighbors.ask, shards)
    step("find", neighbors.find, shards)
    step("merge", neighbors.merge, shards)
    done_with("near asked-rows asked-near asked-points own-found own-distance answer-found answer-distance")
    step("graph", graph.make_graph, shards)
    done_with("neighbors distances reverse reverse-distance")
    step("halo", graph.find_halo, shards)
    done_with("kept strong strong-weight graph-indptr graph-columns graph-weight")
    step("nodes", heads.number_nodes, [0])
    step("share", propagate.share, shards)
    step("hop", propagate.first_hop, shards)
    if heads.diffuses(run):
        _diffuse(run, step, keep)
    step("seen", heads.see, shards)
    (learned,) = step("learn", heads.learn, [0])
    done_with("seen chosen-points")
    step("score", heads.score, shards)
    done_with("sent-points sent-scale sent-strong-scale sent-hop all-halo strong-halo ids rows home")
    for kind in (graph.ALL, graph.STRONG):
        if not keep:
            store.remove(*(f"{kind}-{s}-{name}" for s in shards for name in ("indptr", "columns", "weight")))
    return Result(
        store.root, f"{store.root}/predictions/part-*.parquet", nodes, found["recall"], found["near"],
        learned["accuracy"], tuple(learned["interval"]), learned["shares"],
    )  # fmt: skip


def _diffuse(run: Run, step: Steps, keep: bool) -> None:
    """Diffuse the labels of every fit, some fits at once, step by step."""
    labels, shards, store = read_labels_in_folds(run), range(run.shards), run.store
    fits = labels.folds + 1
    batches = heads.plan_batches(run, labels)
    for low, high in batches:
        if store.exists(f"done/spread-{low}.json"):
            continue
        schedule = chebyshev(STRENGTH)
        (weight, _), number = next(schedule), 0
        with contextlib.suppress(StopIteration):
            while True:
                number += 1
                args = [f"{shard}_{low}_{high}_{number}_{weight!r}_{STRENGTH}" for shard in shards]
                found = step(f"diffuse-{low}-{number}", propagate.diffuse, args, 1 / (_STEPS * len(batches)))
                if not keep and number > 2:
                    store.remove(*(f"state-{low}-{number - 2}-{shard}" for shard in shards))
                    store.remove(*(f"sent-state-{low}-{number - 1}-{shard}" for shard in shards))
                weight, _ = schedule.send(sum(one["reached"] for one in found))
        step(f"spread-{low}", propagate.keep_spread, [f"{shard}_{low}_{high}_{number}_{fits}" for shard in shards])
        if not keep:
            for last in (number - 1, number):
                store.remove(*(f"state-{low}-{last}-{shard}" for shard in shards))
                store.remove(*(f"sent-state-{low}-{last}-{shard}" for shard in shards))


def _checked(settings: dict[str, Any], k: int) -> dict[str, Any]:
    """The estimator's parameters that shards have, with its defaults; raises if one is unknown or invalid."""
    unknown = [name for name in settings if name not in SETTINGS]
    if unknown:
        raise ValueError(f"A fit over shards has no parameter {unknown[0]!r}, but {', '.join(SETTINGS)}.")
    defaults = SobolevClassifier().get_params(deep=False)
    chosen = {**defaults, **settings, "k": k}
    check_settings(chosen, heads.NAMES)
    for name, choices in (("class_weight", (None, "balanced")), ("class_priors", (None, "auto"))):
        if chosen[name] not in choices:
            raise ValueError(f"`{name}` must be one of {choices} over shards, but got {chosen[name]!r:.60}.")
    if chosen["bandwidth"] == "local" or isinstance(chosen["scale"], tuple):
        raise ValueError(
            "A fit over shards has one bandwidth and one scale: no local bandwidth, and no pair of scales."
        )
    if any(not isinstance(name, str) for name in chosen["families"]):
        raise ValueError("A fit over shards has families of the estimator alone, not classifiers of others.")
    return {name: chosen[name] for name in (*SETTINGS, "num_layers")}  # which only the paper's network reads


def _labels(labels: Any, source: Source) -> tuple[Any, Any, list[Any], str]:
    """Ids, codes, classes and a digest of the labels that are known."""
    ids, values = read_labels(labels, source.identity)
    marks = np.empty(len(values), object)
    marks[:] = [None if value == "" else value for value in values]
    classes, codes = encode_labels(marks, len(marks))
    if len(classes) < 2:
        raise ValueError(f"Labels must hold at least 2 classes, but got 1 class, {str(classes[0])!r}.")
    first = next((number for number, (_url, rows, _size) in enumerate(source.files) if rows), None)
    if first is None:
        raise ValueError("The files have no rows.")
    known = codes >= 0
    wanted = as_ids([one for one, keep in zip(ids, known, strict=True) if keep], source.read(first, 0, 1)[0])
    if len(np.unique(wanted)) < len(wanted):
        twice = next(one for one in wanted.tolist() if (wanted == one).sum() > 1)
        raise ValueError(f"Labels name the id {twice!r:.60} more than once.")
    digest = hashlib.sha256(wanted.tobytes() + codes[known].tobytes()).hexdigest()
    return wanted, codes[known], classes.tolist(), digest


def _plan(
    source: Source, classes: list[Any], digest: str, settings: dict[str, Any], k: int, recall: float, seed: int
) -> dict[str, Any]:
    rows = source.rows
    if rows < 3:
        raise ValueError(f"There must be at least 3 rows, but the files have {rows}.")
    width = min(source.width, settings["n_components"] or source.width)
    number = max(1, min(_MOST_CELLS, rows // max(_SIZE, 2 * k)))
    plan = {
        "format": 1, "source": source.about(), "parts": source.parts(), "classes": classes, "labels": digest,
        "settings": settings, "k": min(k, rows - 1), "recall": recall, "seed": int(seed), "cells": number,
        "sample": min(rows, max(_SAMPLE, cells.SAMPLED * number)), "half": rows * width > _HALF,
        "spread": _SPREAD, "shards": max(1, -(-rows * width // _SHARD)),
    }  # fmt: skip
    made: dict[str, Any] = as_json(plan)
    return made


def as_json(value: Any) -> Any:
    """A value as it is after it was written and read."""
    plain: Any = json.loads(json.dumps(value))
    return plain


def _disk(plan: dict[str, Any], source: Source, store: Store) -> str:
    """How much space the run needs at most, by the sizes of its files; raises if there is less."""
    rows, settings = source.rows, plan["settings"]
    width = min(source.width, settings["n_components"] or source.width) * (2 if plan["half"] else 4)
    edges = 8 * 1.4 * plan["k"]  # column and weight of about 1.4 edges for each neighbor
    ends = 3 * 4 * min(plan["spread"], 5 * rows * len(plan["classes"])) / rows + 4 * 3 * len(plan["classes"])
    need = rows * max(2.2 * width + 60, (1.5 + 1.5 * settings["alpha"]) * width + 3 * edges + ends + 40)
    line = f"at most about {need / 2**30:.1f} GiB of files in {store.root}"
    if store.local:
        folder = Path(store.root)
        free = shutil.disk_usage(next(place for place in (folder, *folder.parents) if place.exists())).free
        if free < need:
            raise ValueError(f"The run needs {line}, but there are {free / 2**30:.1f} GiB. Name another folder.")
    return line


def plan_of(store: Store) -> dict[str, Any] | None:
    """The plan of a run that was begun; raises if the folder holds something else."""
    try:
        plan: dict[str, Any] | None = store.read_json("plan")
        names = (
            [] if plan is not None or not store.files.exists(store.place) else store.files.ls(store.place, detail=False)
        )
    except PermissionError as error:
        raise ValueError(f"{store.root} may not be read: {error.strerror or error}.") from None
    except NotADirectoryError:
        raise ValueError(f"{store.root} is a file. Name a folder.") from None
    others = [Path(name).name for name in names if Path(name).name not in ("lock", "label-ids.npy", "label-codes.npy")]
    if others:
        raise ValueError(f"{store.root} exists and is no run of shards: it holds {others[0]!r}. Name another folder.")
    return plan


@contextlib.contextmanager
def only_one(root: str) -> Iterator[None]:
    """Keep others from the run's folder; nobody is kept from a bucket."""
    if not is_local(root):
        yield
        return
    folder = Path(root)
    if folder.is_file():
        raise ValueError(f"{root} is a file. Name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        held = lock_file(folder / "lock")
    except OSError as error:
        raise ValueError(f"{root} cannot be used: {error.strerror}.") from None
    if held is None:
        raise ValueError(f"{root} is used by another process.")
    try:
        for left in folder.rglob("*.tmp"):  # by who was killed while writing
            left.unlink(missing_ok=True)
        yield
    finally:
        held.close()


def is_local(url: str) -> bool:
    """Whether a folder or URL is of this machine."""
    return isinstance(fsspec.core.url_to_fs(url)[0], LocalFileSystem)
