"""`sobgnn tune`: search, then fit the best setting and write a run folder like `sobgnn fit`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from sobgnn.command.options import (
    INTERRUPTED,
    Accept,
    ClassWeight,
    Data,
    Device,
    Drop,
    Identity,
    ImageModel,
    Label,
    Labels,
    Seed,
    Sheet,
    Text,
    TextEncoding,
    TextModel,
    at_home,
    check_accept,
    check_class_weight,
    load,
    reading_options,
)

JOURNAL = "search.journal"


def tune(
    data: Data,
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
    label: Label = None,
    identity: Identity = None,
    drop: Drop = None,
    text: Text = None,
    text_model: TextModel = None,
    image_model: ImageModel = None,
    encoding: TextEncoding = None,
    sheet: Sheet = None,
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
    from sobgnn.command import terminal
    from sobgnn.estimator.classifier import SobolevClassifier
    from sobgnn.runs import folder as run_folder
    from sobgnn.runs.run import Fitted, hide_labels
    from sobgnn.runs.source import picture_side
    from sobgnn.runtime.process import check_device
    from sobgnn.tuning.problem import study_name
    from sobgnn.tuning.search import check_request
    from sobgnn.tuning.search import tune as search
    from sobgnn.tuning.storage import is_url

    if worker and storage is None:
        raise ValueError("--worker takes part in a shared search: name it with --storage URL.")
    if storage is not None and not is_url(storage):
        raise ValueError(f"--storage must be a URL like postgresql://user@host/name, but got {storage!r}.")
    check_request(trials, sampler)
    check_accept(accept)
    check_class_weight(class_weight)
    check_device(device)
    console = terminal.Terminal()
    options = reading_options(text, text_model, image_model, encoding, sheet)
    name, table, spent = load(data, label, identity, drop or [], console, **options)
    given = hide_labels(table.codes, labels, seed)
    console.data(name, table, given)
    X, y = table.X, table.labels(given)
    weighing: Any = {"class_weight": class_weight}
    base = SobolevClassifier(device=device, **weighing)
    study = None if storage else study_name(X, y, graph=table.graph, base=base, seed=seed)
    folder = None if worker else out or _folder(name, study)
    with _journal(folder, storage, study) as place, console.training() as progress:
        if storage is None:
            console.out.print(f"  Search saved in {place}; the same command resumes it.", style="dim")
        started = time.perf_counter()
        found = search(
            X, y, trials, sampler=sampler, storage=place, seed=seed, graph=table.graph, base=base,  # type: ignore[arg-type]
            progress=lambda seen: progress(_shown(seen)),
        )  # fmt: skip
        spent["search"] = time.perf_counter() - started
    stopped = progress.stopped
    console.found(len(found.trials), found.log_loss, found.accuracy)
    if folder is not None:
        with console.keeping() as kept:
            with console.training() as progress:
                started = time.perf_counter()
                classifier = SobolevClassifier(device=device, random_state=seed, **weighing, **found.setting)
                classifier.fit(X, y, graph=table.graph, progress=progress)
                spent["fitting"] = time.perf_counter() - started
            kept.pressed |= progress.stopped
            complete = not (stopped or progress.stopped)
            fitted = Fitted(
                name,
                classifier,
                table,
                given,
                spent,
                complete=complete,
                search=found.to_json(),
                accept=accept,
                side=picture_side(data, table),
            )
            if folder.exists():
                result = run_folder.write_into(folder, fitted, console.working)
            else:
                with run_folder.reserved(folder) as run:
                    result = run_folder.fill_run(run.place, fitted, stage=console.working)
        stopped = stopped or kept.pressed
        console.summary(result, folder)
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _shown(seen: Any) -> Any:
    """A search as the terminal's bar shows a fit."""
    from sobgnn.estimator.fit import FitProgress

    return FitProgress("trials", seen.done, seen.total, seen.log_loss, seen.accuracy)


def _folder(name: str, study: str | None) -> Path:
    """The folder of the same search if that was interrupted before it wrote its results, else a new one."""
    from sobgnn.runs.folder import free_folder

    free = free_folder(name)
    stem, count = free.name.rsplit("-", 1)
    for number in range(1, int(count)):
        before = free.with_name(f"{stem}-{number}")
        with contextlib.suppress(OSError):
            unfinished = not (before / "table.json").exists()
            if study and unfinished and study in (before / JOURNAL).read_text(encoding="utf-8", errors="replace"):
                return before
    return free


@contextlib.contextmanager
def _journal(folder: Path | None, storage: str | None, study: str | None) -> Iterator[str | Path | None]:
    """The storage of trials; a folder created for it is removed if the block fails before the first trial."""
    from sobgnn.runs.folder import check_free

    if folder is not None:
        # A folder's search may be resumed; the run of another one is never written over.
        journal = folder / JOURNAL
        kept = journal.read_text(encoding="utf-8", errors="replace") if journal.is_file() else ""
        other = (folder / "table.json").exists() and (study is None or study not in kept)
        if other or not journal.exists():
            check_free(folder)
    if folder is None or storage is not None:
        yield storage
        return
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / JOURNAL
    try:
        yield journal
    except BaseException:
        with contextlib.suppress(OSError):
            if not journal.exists() or journal.stat().st_size == 0:
                journal.unlink(missing_ok=True)
                folder.rmdir()  # refuses where there is anything else
        raise
