"""A run folder: what `sobgnn fit` writes and `sobgnn predict` reads."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sobgnn.runs.checks import checks_of
from sobgnn.runs.exports import export
from sobgnn.runs.importance import column_importance
from sobgnn.runs.metrics import metrics
from sobgnn.runs.predict import formula_notes
from sobgnn.runs.run import Fitted
from sobgnn.runs.words import is_guessing
from sobgnn.runtime.files import atomic_folder
from sobgnn.tables import Encoding, write_predictions

# What a run folder holds besides exports; table.json marks it as a run.
_FILES = ("table.json", "table.npz", "model", "checks.json", "predictions.csv", "metrics.json", "report.html")

# Files of a labeling, which becomes a run when it is finished.
_LABELING = ("labeling.json", "labels.journal", "labels.csv")


def free_folder(name: str, under: Path = Path("runs")) -> Path:
    """runs/<name>-<n> with the smallest unused n."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "run"
    number = 1
    while (under / f"{safe}-{number}").exists():
        number += 1
    return under / f"{safe}-{number}"


def write_run(folder: Path, fitted: Fitted, formats: Sequence[str] = ()) -> dict[str, Any]:
    """Write the run folder atomically, and return its metrics."""
    check_free(folder)
    with atomic_folder(folder) as place:
        return fill_run(place, fitted, formats)


def write_numbered(name: str, fitted: Fitted, formats: Sequence[str] = ()) -> tuple[Path, dict[str, Any]]:
    """Write a run to the first free folder of its name, whichever others take meanwhile; return it and the metrics."""
    while True:
        folder = free_folder(name)
        try:
            return folder, write_run(folder, fitted, formats)
        except FileExistsError:
            continue


def write_into(folder: Path, fitted: Fitted) -> dict[str, Any]:
    """Write a run and move its files into a folder that holds others, such as labels or a search; return its metrics.

    Each file is replaced as a whole. table.json, which marks a folder as a run, is removed first and written last: a
    folder with a half-moved run is not mistaken for one.
    """
    # A random name created here: a folder left by others is never mistaken for ours.
    made = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name[:100]}."))
    try:
        measured = fill_run(made, fitted)
        (folder / "table.json").unlink(missing_ok=True)
        for part in sorted(made.iterdir(), key=lambda part: part.name == "table.json"):
            target = folder / part.name
            if target.is_dir():
                _remove(target)
            os.replace(part, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return measured


def remove_run(folder: Path) -> None:
    """Remove the files of a run from a folder that holds others."""
    for name in _FILES:
        _remove(folder / name)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if there is one; of a link, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_not_of_run(path: Path, folder: Path) -> None:
    """Raise if a file to be written belongs to a run."""
    own = [os.path.realpath(folder / name) for name in _FILES]  # unlike resolve, it accepts circular links
    place = Path(os.path.realpath(path))
    if any(str(part) in own for part in (place, *place.parents)):
        raise ValueError(f"{path} belongs to the run, which is never changed. Name another file with --out.")


def fill_run(place: Path, fitted: Fitted, formats: Sequence[str] = ()) -> dict[str, Any]:
    """Write a run's files into a folder, and return its metrics.

    Args:
        place: An empty folder.
        fitted: The run.
        formats: Formats in which predictions are exported, names of :data:`~sobgnn.runs.exports.FORMATS`.
    """
    from sobgnn.runs.page.render import render

    started = time.perf_counter()
    fitted.classifier.save(place / "model")
    table = fitted.table
    checks = checks_of(fitted)
    checks.write(place)
    with open(place / "predictions.csv", "wb") as file:
        classifier = fitted.classifier
        formulas = write_predictions(
            file,
            classifier.classes_.tolist(),
            0,
            classifier.transduction_,
            classifier.label_distributions_,
            table.ids,
            header=True,
            extra=checks.of_run(fitted),
        )
    fitted.encoding.save(place)
    measured = metrics(fitted, checks.acceptance)
    measured["notes"] += formula_notes(formulas)
    if fitted.complete and not is_guessing(measured):
        measured["columns"] = column_importance(fitted)
    export(place, fitted, checks, list(formats))
    (place / "report.html").write_text(render(fitted, measured), encoding="utf-8")
    measured["seconds"]["writing"] = round(time.perf_counter() - started, 3)
    (place / "metrics.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return measured


def open_run(folder: Path) -> tuple[Any, Encoding]:
    """The fitted estimator and the encoding of its table."""
    if not folder.is_dir():
        raise ValueError(f"There is no run folder {str(folder)!r}. Create one with `sobgnn fit`.")
    if not os.path.lexists(folder / "table.json") and any((folder / name).exists() for name in _LABELING):
        raise ValueError(
            f"{folder} holds labels, but no model yet: open its page with `sobgnn label {folder}`, label rows of at "
            "least two classes, and press Finish."
        )
    encoding = Encoding.load(folder)

    from sobgnn.estimator.classifier import SobolevClassifier

    classifier = SobolevClassifier.load(folder / "model")
    if classifier.n_features_in_ != encoding.width:
        raise ValueError(
            f"{folder} is damaged: its model expects {classifier.n_features_in_} features, but its table gives "
            f"{encoding.width}. Fit the run again."
        )
    return classifier, encoding


def check_free(folder: Path) -> None:
    """Raise early if a run could not be written later."""
    if folder.exists():
        raise ValueError(f"{folder} already exists. Name another folder with --out.")
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    try:
        os.rmdir(tempfile.mkdtemp(prefix=".sobgnn-", dir=nearest))  # permissions are not enough to know
    except OSError:
        raise ValueError(f"{folder} cannot be created: {nearest} is not a writable folder.") from None
