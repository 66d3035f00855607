"""`sobgnn tune`: search, then fit the best setting and write a run folder like `sobgnn fit`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from sobgnn.run_folder import Fitted

JOURNAL = "search.journal"


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help="CSV, Parquet or NPZ file, or a data set's name.")],
    trials: Annotated[int, typer.Option(help="Trials to finish, over all processes.")] = 100,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Database that processes on any machines share the search through: postgresql://user@host/name. "
            "Default: a journal file in the run folder.",
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe, or random as in the paper.")] = "tpe",
    worker: Annotated[
        bool, typer.Option("--worker", help="Take part in the search only; with --storage. Writes no run folder.")
    ] = False,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Label column; default: label, y, class or target.")
    ] = None,
    identity: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column that names the rows; not a feature.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Column to leave out; may be repeated.")
    ] = None,
    labels: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE|COUNT",
            help="Keep this share (0.1) or number per class (5) of the labels; the search never sees the others.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", help="Run folder to make, or one whose search is to go on."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the folds, the networks and the search.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
) -> None:
    """Search for the best setting on held-out labels, then fit it.

    Writes a run folder like `sobgnn fit`, with the search in search.html and metrics.json. The same command goes on
    with a search that was ended; Ctrl-C fits the best so far. Exit: 0 done, 2 wrong input (one line on stderr), 130
    interrupted.
    """
    from sobgnn import run_folder, terminal
    from sobgnn.classifier import SobolevClassifier
    from sobgnn.cli import INTERRUPTED, _load
    from sobgnn.tuning import study_name
    from sobgnn.tuning import tune as search

    if worker and storage is None:
        raise ValueError("--worker takes part in a search that others share: name it with --storage URL.")
    console = terminal.Terminal()
    name, table, spent = _load(data, label, identity, drop or [], console)
    given = run_folder.hide_labels(table.codes, labels, seed)
    X, y = table.X, table.labels(given)
    console.data(name, table, given)
    base = SobolevClassifier(device=device)
    place: str | Path | None = storage
    folder = out
    if not worker:
        study = study_name(X, y, graph=table.graph, base=base, seed=seed)
        folder = out or _folder(name, None if storage else study)
        if not (folder / JOURNAL).exists():
            run_folder.check_free(folder)
        if storage is None:
            _check_request(trials, sampler)  # before a folder is left behind
            folder.mkdir(parents=True, exist_ok=True)
            place = folder / JOURNAL
            console.out.print(f"  Search kept in {place}; the same command goes on from there.", style="dim")
    with console.training() as progress:
        started = time.perf_counter()
        try:
            found = search(
                X, y, trials, sampler=sampler, storage=place, seed=seed, graph=table.graph, base=base,  # type: ignore[arg-type]
                progress=lambda seen: progress(_shown(seen)),
            )  # fmt: skip
        except BaseException:
            if folder is not None and storage is None:
                _remove_unused(folder)
            raise
        spent["search"] = time.perf_counter() - started
    stopped = progress.stopped
    line = f"{len(found.trials):,} trials; best log loss {found.log_loss:.4f}, accuracy {found.accuracy:.1%}, held out"
    console.out.print(line)
    if folder is None:
        if stopped:
            raise typer.Exit(INTERRUPTED)
        return
    with console.training() as progress:
        started = time.perf_counter()
        classifier = SobolevClassifier(device=device, random_state=seed, **found.setting)
        classifier.fit(X, y, graph=table.graph, progress=progress)
        spent["fitting"] = time.perf_counter() - started
    stopped = stopped or progress.stopped
    fitted = run_folder.Fitted(name, classifier, table, given, spent, complete=not stopped)
    console.summary(_write(folder, fitted, found.to_json()), folder)
    console.wrote(folder / "search.html")
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _shown(seen: Any) -> Any:
    """A search as the terminal's bar shows a fit."""
    from sobgnn.fitting import FitProgress

    return FitProgress("trials", seen.done, seen.total, seen.log_loss, seen.accuracy)  # type: ignore[arg-type]


def _check_request(trials: int, sampler: str) -> None:
    from sobgnn.tuning import check_request

    check_request(trials, sampler)


def _folder(name: str, study: str | None, under: Path = Path("runs")) -> Path:
    """The folder of this very search where it was ended before it wrote its results, or else a new one."""
    from sobgnn.run_folder import free_folder

    free = free_folder(name, under)
    stem, count = free.name.rsplit("-", 1)
    for number in range(1, int(count)):
        before = under / f"{stem}-{number}"
        with contextlib.suppress(OSError):
            unfinished = not (before / "table.json").exists()
            if study and unfinished and study in (before / JOURNAL).read_text(encoding="utf-8", errors="replace"):
                return before
    return free


def _remove_unused(folder: Path) -> None:
    """A folder whose journal holds no trial yet is no use to anyone."""
    with contextlib.suppress(OSError):
        journal = folder / JOURNAL
        if not journal.exists() or journal.stat().st_size == 0:
            journal.unlink(missing_ok=True)
            folder.rmdir()  # refuses where there is anything else


def _write(folder: Path, fitted: Fitted, search: dict[str, Any]) -> dict[str, Any]:
    """Write the run, the search with it. What makes a folder a run, table.json, comes last."""
    from sobgnn.run_folder import write_run
    from sobgnn.search_report import render_search

    made = folder.with_name(f".{folder.name}.{os.getpid()}.run")
    try:
        measured = write_run(made, fitted) | {"search": search}
        (made / "metrics.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
        (made / "search.html").write_text(render_search(fitted.name, search), encoding="utf-8")
        if not folder.exists():
            os.rename(made, folder)
            return measured
        (folder / "table.json").unlink(missing_ok=True)
        for part in sorted(made.iterdir(), key=lambda part: part.name == "table.json"):
            target = folder / part.name
            if target.is_dir():
                shutil.rmtree(target)
            os.replace(part, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return measured
