"""`sobgnn fit` and `sobgnn predict` over shards: many files, labels in a file of their own, any number of machines."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from typing import Any

from sobgnn.app.command.terminal import Terminal

# Options of a fit of one file; shards have none of them.
_OTHERS = (
    "label", "drop", "text", "text_model", "image_model", "encoding", "sheet", "device", "accept", "export",
    "no_importance", "paper",
)  # fmt: skip


def fit_shards(options: Namespace) -> int:
    """Fit the files that DATA names, with the labels of a file; resume if the run was begun."""
    others = [name for name in _OTHERS if getattr(options, name)]
    if others:
        raise ValueError(f"--{others[0].replace('_', '-')} is not for a fit of shards, which --labels FILE asks for.")
    if options.out is None:
        raise ValueError("--out is missing: name the folder or URL of the run, which is where it resumes too.")
    from sobgnn import sharded

    console, settings = Terminal(), {name: getattr(options, name) for name in ("k", "alpha", "epsilon", "class_weight")}
    with console.working("Fitting") as say:
        result = sharded.fit(
            options.data, options.labels, options.out, points=options.points, id=options.id, engine=_engine(options),
            shards=options.shards, random_state=options.seed, progress=say,
            **{name: value for name, value in settings.items() if value is not None},
        )  # fmt: skip
    known = "" if result.accuracy is None else f"; probably {result.accuracy:.1%} of the labels are right"
    if result.accuracy is not None:
        known += f" ({result.interval[0]:.1%} to {result.interval[1]:.1%})"
    console.said(f"{result.rows:,} rows labeled{known}")
    console.notes([f"neighbors: {result.recall:.1%} of the true ones found, in {result.near} cells for each row"])
    console.said(f"  {result.predictions}")
    return 0


def is_sharded(run: Any) -> bool:
    """Whether a run is one of shards: a URL, or a folder with a plan."""
    return "://" in str(run) or (Path(run) / "plan.json").is_file()


def predict_shards(options: Namespace) -> int:
    """Label the rows of new files by a run of shards."""
    if options.out is None:
        raise ValueError("--out is missing: name the folder or URL of the predictions.")
    others = [name for name in ("text_model", "image_model", "encoding", "sheet", "export") if getattr(options, name)]
    if others:
        raise ValueError(f"--{others[0].replace('_', '-')} is not for a run of shards.")
    from sobgnn import sharded

    console = Terminal()
    with console.working("Predicting") as say:
        found = sharded.predict(options.run_folder, options.data, options.out, engine=_engine(options), progress=say)
    console.said(found)
    return 0


def _engine(options: Namespace) -> str:
    """The cluster, or as many processes as there are cores."""
    if options.cluster is not None:
        return str(options.cluster)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"local:{cores}"
