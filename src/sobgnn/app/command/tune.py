"""`sobgnn tune`: search, then fit the best setting and write a run folder like `sobgnn fit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sobgnn.app.command.options import (
    DATA,
    INTERRUPTED,
    Accept,
    ClassWeight,
    Device,
    Labels,
    Reading,
    Seed,
    at_home,
    with_reading,
)


@with_reading
def tune(
    data: Annotated[str, DATA],
    *,
    trials: Annotated[int, typer.Option(help="Number of trials, over all processes.")] = 100,
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Database through which processes on any machine share the search: postgresql://user@host/name. "
            "Default: a journal file in the run folder.",
        ),
    ] = None,
    sampler: Annotated[str, typer.Option(help="tpe, or random as in the paper.")] = "tpe",
    worker: Annotated[
        bool, typer.Option("--worker", help="Only take part in the search of --storage; write no run folder.")
    ] = False,
    reading: Reading,
    labels: Labels = None,
    accept: Accept = None,
    class_weight: ClassWeight = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="RUN", callback=at_home, help="Run folder to make, or one whose search to resume."),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Search for the best setting on held-out labels, then fit it.

    Writes a run folder like `sobgnn fit`, with the search in report.html and metrics.json. The same command resumes an
    interrupted search; Ctrl-C fits the best setting so far. Exit: 0 done, 2 wrong input (one line on stderr), 130
    interrupted.
    """
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.runs import folder as run_folder
    from sobgnn.app.runs.run import Fitted, hide_labels
    from sobgnn.app.runs.source import picture_side
    from sobgnn.estimator.classifier import SobolevClassifier
    from sobgnn.estimator.tuning.search import check_request, study_name
    from sobgnn.estimator.tuning.search import tune as search
    from sobgnn.estimator.tuning.storage import is_url

    if worker and storage is None:
        raise ValueError("--worker takes part in a shared search: name it with --storage URL.")
    if storage is not None and not is_url(storage):
        raise ValueError(f"--storage must be a URL like postgresql://user@host/name, but got {storage!r}.")
    check_request(trials, sampler)
    console = Terminal()
    name, table, seconds = reading.load(data, console)
    given = hide_labels(table.codes, labels, seed)
    console.data(name, table, given)
    X, y = table.X, table.labels(given)
    weighing: Any = {"class_weight": class_weight}
    base = SobolevClassifier(device=device, **weighing)
    journal = None if storage else f"{study_name(X, y, graph=table.graph, base=base, seed=seed)}.journal"
    folder = None if worker else out or _folder(name, journal)
    with _storage(folder, journal) as kept, console.training() as searching:
        if kept is not None:
            console.out.print(f"  Search saved in {kept}; the same command resumes it.", style="dim")
        started = time.perf_counter()
        found = search(
            X, y, trials, sampler=sampler, storage=storage or kept, seed=seed, graph=table.graph, base=base,  # type: ignore[arg-type]
            progress=lambda seen: searching(_shown(seen)),
        )  # fmt: skip
        seconds["search"] = time.perf_counter() - started
        complete = searching.trained()
    pressed = searching.pressed
    console.said(f"{len(found.trials):,} trials; best held-out log loss {found.log_loss:.4f}, "
                 f"accuracy {found.accuracy:.1%}")  # fmt: skip
    if folder is not None:
        with console.training() as training:
            started = time.perf_counter()
            classifier = SobolevClassifier(device=device, random_state=seed, **weighing, **found.setting)
            classifier.fit(X, y, graph=table.graph, progress=training)
            seconds["fitting"] = time.perf_counter() - started
            fitted = Fitted(
                name, classifier, table, given, seconds, complete=training.trained() and complete,
                search=found.to_json(), accept=accept, side=picture_side(data, table),
            )  # fmt: skip
            if folder.exists():
                result = run_folder.write_into(folder, fitted, console.working)
            else:
                with run_folder.reserved(folder) as run:
                    result = run_folder.fill_run(run.place, fitted, stage=console.working)
        pressed |= training.pressed
        console.summary(result, folder)
    if pressed:
        raise typer.Exit(INTERRUPTED)


def _shown(seen: Any) -> Any:
    """A search as the terminal's bar shows a fit."""
    from sobgnn.estimator.fit import FitProgress

    return FitProgress("trials", seen.done, seen.total, seen.log_loss, seen.accuracy)


def _folder(name: str, journal: str | None) -> Path:
    """The folder of the same search if that was interrupted before it wrote its results, else a new one."""
    from sobgnn.app.runs.folder import TABLE, free_folder

    free = free_folder(name)
    stem, count = free.name.rsplit("-", 1)
    for number in range(1, int(count) if journal else 0):
        before = free.with_name(f"{stem}-{number}")
        if (before / str(journal)).exists() and not (before / TABLE).exists():
            return before
    return free


@contextlib.contextmanager
def _storage(folder: Path | None, journal: str | None) -> Iterator[Path | None]:
    """The journal of trials in the run folder, which is named by the search: a folder's search may be resumed.

    The run of another search is never written over. A folder made for the journal is removed if the block fails before
    the first trial. ``None`` where trials are stored elsewhere.
    """
    from sobgnn.app.runs.folder import check_free

    if folder is not None and (journal is None or not (folder / journal).exists()):
        check_free(folder)
    if folder is None or journal is None:
        yield None
        return
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / journal
    try:
        yield kept
    except BaseException:
        with contextlib.suppress(OSError):
            if not kept.exists() or kept.stat().st_size == 0:
                kept.unlink(missing_ok=True)
                folder.rmdir()  # refuses where there is anything else
        raise
