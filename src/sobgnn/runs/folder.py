"""A run folder: what `sobgnn fit` leaves behind and `sobgnn predict` reads."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from sobgnn.runs.run import Fitted, metrics
from sobgnn.runtime.files import atomic_folder
from sobgnn.tables import Batch, Encoding, write_predictions

# Rows of a file wait for one another up to this size, where a model answers many at once faster.
_JOINED_BYTES = 2**28


def free_folder(name: str, under: Path = Path("runs")) -> Path:
    """runs/<name>-<n> with the smallest n that is not taken."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "run"
    number = 1
    while (under / f"{safe}-{number}").exists():
        number += 1
    return under / f"{safe}-{number}"


def write_run(folder: Path, fitted: Fitted) -> dict[str, Any]:
    """Write the run folder, whole or not at all, and return its metrics."""
    from sobgnn.runs.page.render import render

    check_free(folder)
    with atomic_folder(folder) as place:
        started = time.perf_counter()
        fitted.classifier.save(place / "model")
        table = fitted.table
        with open(place / "predictions.csv", "wb") as file:
            classifier = fitted.classifier
            write_predictions(
                file,
                classifier.classes_.tolist(),
                0,
                classifier.transduction_,
                classifier.label_distributions_,
                table.ids,
                header=True,
            )
        table.encoding.save(place)
        measured = metrics(fitted)
        (place / "report.html").write_text(render(fitted, measured), encoding="utf-8")
        measured["seconds"]["writing"] = round(time.perf_counter() - started, 3)
        (place / "metrics.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return measured


def open_run(folder: Path) -> tuple[Any, Encoding]:
    """The fitted estimator and the encoding of its table."""
    if not folder.is_dir():
        raise ValueError(f"There is no run folder {str(folder)!r}. `sobgnn fit` makes one.")
    encoding = Encoding.load(folder)

    from sobgnn.estimator.classifier import SobolevClassifier

    classifier = SobolevClassifier.load(folder / "model")
    if classifier.n_features_in_ != encoding.width:
        raise ValueError(
            f"{folder} is damaged: its model takes {classifier.n_features_in_} features, its table gives "
            f"{encoding.width}. Fit the run again."
        )
    return classifier, encoding


def predict_batches(
    classifier: Any, batches: Iterator[Batch], file: Any, notes: list[str] | None = None
) -> Iterator[int]:
    """Write predictions of each batch as it comes, yielding the number of rows done; ``notes`` gets sentences."""
    done = formulas = 0
    for batch in _joined(batches, classifier.predictor_.many):
        if not batch.X.shape[0]:
            continue
        probability = classifier.predict_proba(batch.X)
        label = classifier.classes_[probability.argmax(axis=1)]
        classes = classifier.classes_.tolist()
        formulas += write_predictions(file, classes, batch.first_row, label, probability, batch.ids, header=done == 0)
        done = batch.first_row + batch.X.shape[0]
        yield done
    if not done:
        raise ValueError("The file has no rows, so there is nothing to predict.")
    if formulas and notes is not None:
        notes.append(f"Cells that a spreadsheet would run as formulas were written with ' before them: {formulas:,}.")


def _joined(batches: Iterator[Batch], rows: int | None) -> Iterator[Batch]:
    """The same rows, at least ``rows`` of them at a time as long as they are there and within ``_JOINED_BYTES``."""
    waiting: list[Batch] = []
    for batch in batches:
        waiting.append(batch)
        held = sum(part.X.shape[0] for part in waiting)
        if rows is None or held >= rows or 4 * held * batch.X.shape[1] >= _JOINED_BYTES:
            yield _as_one(waiting)
            waiting = []
    if waiting:
        yield _as_one(waiting)


def _as_one(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    stack: Any = sp.vstack if sp.issparse(parts[0].X) else np.concatenate
    ids = [part.ids for part in parts if part.ids is not None]
    return Batch(parts[0].first_row, stack([part.X for part in parts]), np.concatenate(ids) if ids else None)


def check_device(device: str | None) -> None:
    """Raise where torch knows no such device, or has none."""
    import torch

    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"There is no device {device!r} here. Try --device cpu, or leave it out.") from None


def check_free(folder: Path) -> None:
    """Raise where a run could not be written later, before time is spent on it."""
    if folder.exists():
        raise ValueError(f"{folder} is already there. Name another folder with --out.")
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".sobgnn-", dir=nearest))  # permissions alone do not tell
    except OSError:
        raise ValueError(f"{folder} cannot be made: {nearest} is not a folder that can be written to.") from None
