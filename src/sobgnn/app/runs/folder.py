"""A run folder: what `sobgnn fit` writes and `sobgnn predict` reads."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sobgnn._system.files import check_inside, flush, flush_folder, lock_file
from sobgnn.app.runs import FILES, METRICS, MODEL, PREDICTIONS, REPORT, TABLE, check_free, check_run
from sobgnn.app.runs.exports import export
from sobgnn.app.runs.result import Result, column_importance, measure
from sobgnn.app.runs.run import Fitted, checks_of
from sobgnn.app.runs.summary import formula_notes
from sobgnn.tables import Encoding, write_predictions

Stage = Callable[[str], AbstractContextManager[object]]
# What the name of a folder ends in that holds a run being written.
_UNFINISHED = ".unfinished"


def free_folder(name: str, under: Path = Path("runs")) -> Path:
    """runs/<name>-<n> with the smallest unused n."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "run"
    return next(folder for n in itertools.count(1) if not (folder := under / f"{safe}-{n}").exists())


@dataclass
class NewRun:
    """A run folder that is being made: its name, and the hidden folder beside it that is to be filled."""

    folder: Path
    place: Path


@contextlib.contextmanager
def new_run(out: Path | None, name: str = "run") -> Iterator[NewRun]:
    """Make a run folder, which appears as a whole if the block succeeds, and leaves nothing behind if it fails.

    If its name is taken meanwhile, the run gets the next number. Hidden folders beside it whose process was killed are
    removed.

    Args:
        out: The folder, which must not exist; ``None`` for the first free runs/<name>-<n>.
        name: Name of the data.

    Raises:
        ValueError: The folder exists or cannot be created.
    """
    folder = out or free_folder(name)
    check_free(folder)
    made = [parent for parent in folder.absolute().parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    for lock in folder.parent.glob(f".*{_UNFINISHED}.lock"):
        if (left := lock_file(lock)) is not None:
            with left:
                _remove(lock.with_suffix(""))
                lock.unlink(missing_ok=True)
    run = NewRun(folder, folder.with_name(f".{secrets.token_hex(8)}{_UNFINISHED}"))
    lock = run.place.with_name(f"{run.place.name}.lock")
    with lock_file(lock) or nullcontext():
        try:
            run.place.mkdir()
            yield run
            flush_folder(run.place)
            while run.place.exists():
                try:
                    run.place.rename(run.folder)
                except OSError:
                    if not run.folder.exists():
                        raise
                    run.folder = free_folder(folder.name if out else name, folder.parent)
            flush(folder.parent)
        finally:
            _remove(run.place)
            lock.unlink(missing_ok=True)
            for parent in made:
                with contextlib.suppress(OSError):  # it is empty unless the block succeeded
                    parent.rmdir()


def write_into(folder: Path, fitted: Fitted, stage: Stage = nullcontext) -> Result:
    """:func:`fill_run` for a new folder, or for one that holds others, such as labels or a search.

    There each file is replaced as a whole. The table, which marks a folder as a run, is removed first and written last:
    a folder with a half-moved run is not mistaken for one.
    """
    if not folder.exists():
        with new_run(folder) as run:
            return fill_run(run.place, fitted, stage=stage)
    made = folder / _UNFINISHED  # what a killed process has left here is written over
    _remove(made)
    made.mkdir()
    try:
        result = fill_run(made, fitted, stage=stage)
        flush_folder(made)
        (folder / TABLE).unlink(missing_ok=True)
        for part in sorted(made.iterdir(), key=lambda part: part.name == TABLE):
            target = folder / part.name
            if target.is_dir():
                _remove(target)
            os.replace(part, target)
    finally:
        _remove(made)
    return result


def remove_run(folder: Path) -> None:
    """Remove the files of a run from a folder that holds others."""
    for name in FILES:
        _remove(folder / name)


def _remove(path: Path) -> None:
    """Remove a file or a folder, if there is one; of a link, only the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_not_of_run(path: Path, folder: Path) -> None:
    """Raise if a file to be written belongs to a run."""
    own = [os.path.realpath(folder / name) for name in FILES]  # unlike resolve, it accepts circular links
    place = Path(os.path.realpath(path))
    if any(str(part) in own for part in (place, *place.parents)):
        raise ValueError(f"{path} belongs to the run, which is never changed. Name another file with --out.")


def fill_run(
    place: Path, fitted: Fitted, formats: Sequence[str] = (), importance: bool = True, stage: Stage = nullcontext
) -> Result:
    """Measure a run and write its files into an empty folder.

    Args:
        place: The folder.
        fitted: The run.
        formats: Formats in which predictions are exported, names of :data:`~sobgnn.app.runs.FORMATS`.
        importance: Whether to measure which columns matter.
        stage: Shows what takes a moment.
    """
    from sobgnn.app.runs.page.render import render

    started = time.perf_counter()
    checks = checks_of(fitted)
    result = measure(fitted, checks.acceptance)
    seconds = dict(result.seconds)
    if importance and fitted.complete and not result.guessing:
        with stage("Measuring which columns matter"):
            result = replace(result, columns=column_importance(fitted))
        seconds["columns"] = time.perf_counter() - started
        started = time.perf_counter()
    with stage("Writing"):
        classifier, extra = fitted.classifier, checks.of_run(fitted)
        classifier.save(place / MODEL)
        checks.write(place)
        fitted.encoding.save(place)
        labels, probability = classifier.transduction_, classifier.label_distributions_
        with open(place / PREDICTIONS, "wb") as file:
            formulas = write_predictions(
                file, classifier.classes_.tolist(), 0, labels, probability, fitted.table.ids, header=True, extra=extra
            )
        result = replace(result, notes=[*result.notes, *formula_notes(formulas)])
        if formats:
            export(place, fitted, extra, formats)
        (place / REPORT).write_text(render(fitted, result), encoding="utf-8")
        seconds["writing"] = time.perf_counter() - started
        result = replace(result, seconds=seconds)
        (place / METRICS).write_text(json.dumps(result.to_json(), indent=1), encoding="utf-8")
    return result


def open_run(
    folder: Path, text_model: str | Path | None = None, image_model: str | Path | None = None
) -> tuple[Any, Encoding]:
    """The fitted estimator and the encoding of its table.

    Nothing outside the folder is opened but models, as they are given or, by their digests, among those at hand.
    """
    check_run(folder)
    check_inside(folder / MODEL, folder)
    encoding = Encoding.load(folder, text_model=text_model, image_model=image_model)

    from sobgnn.estimator.classifier import SobolevClassifier

    classifier = SobolevClassifier.load(folder / MODEL)
    if classifier.n_features_in_ != encoding.width:
        raise ValueError(
            f"{folder} is damaged: its model expects {classifier.n_features_in_} features, but its table gives "
            f"{encoding.width}. Fit the run again."
        )
    return classifier, encoding
