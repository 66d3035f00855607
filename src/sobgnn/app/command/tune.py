"""`sobgnn tune`: search, then fit the best setting and write a run folder like `sobgnn fit`."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sobgnn.app.command.options import INTERRUPTED, add_command, add_data, add_fitting, check_fitting, load, path


def add_tune(commands: Any) -> None:
    """Add the command, with its arguments and options."""
    parser = add_command(commands, "tune", tune)
    add_data(parser)
    parser.add_argument("--trials", type=int, default=100, help="Number of trials, over all processes. Default: 100.")
    parser.add_argument(
        "--storage",
        metavar="URL",
        help="Database through which processes on any machine share the search: postgresql://user@host/name. Default: "
        "a journal file in the run folder.",
    )
    parser.add_argument("--sampler", default="tpe", help="tpe (the default), or random as in the paper.")
    parser.add_argument(
        "--worker", action="store_true", help="Only take part in the search of --storage; write no run folder."
    )
    add_fitting(parser)
    parser.add_argument("--out", type=path, metavar="RUN", help="Run folder to make, or one whose search to resume.")


def tune(options: Namespace) -> int:
    """Search for the best setting on held-out labels, then fit it.

    Writes a run folder like `sobgnn fit`, with the search in report.html and metrics.json. The same command resumes an
    interrupted search; Ctrl-C fits the best setting so far.
    """
    check_fitting(options)
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.runs.folder import write_into
    from sobgnn.app.runs.run import Fitted, hide_labels
    from sobgnn.app.runs.source import picture_side
    from sobgnn.estimator.classifier import SobolevClassifier
    from sobgnn.estimator.fit import FitProgress
    from sobgnn.estimator.tuning.search import TuningProgress, check_request, study_name
    from sobgnn.estimator.tuning.search import tune as search
    from sobgnn.estimator.tuning.study import is_url

    seed, storage = options.seed, options.storage
    if options.worker and storage is None:
        raise ValueError("--worker takes part in a shared search: name it with --storage URL.")
    if storage is not None and not is_url(storage):
        raise ValueError(f"--storage must be a URL like postgresql://user@host/name, but got {storage!r}.")
    check_request(options.trials, options.sampler)
    console = Terminal()
    name, table, seconds = load(options, console)
    given = hide_labels(table.codes, options.labels, seed)
    console.data(name, table, given)
    X, y = table.X, table.labels(given)
    settings: Any = {"device": options.device, "class_weight": options.class_weight}
    base = SobolevClassifier(**settings)
    journal = None if storage else f"{study_name(X, y, graph=table.graph, base=base, seed=seed)}.journal"
    folder = None if options.worker else options.out or _folder(name, journal)
    with _storage(folder, journal) as kept, console.training() as searching:
        if kept is not None:
            console.out.print(f"  Search saved in {kept}; the same command resumes it.", style="dim")

        def progress(seen: TuningProgress) -> bool:
            return searching(FitProgress("trials", seen.done, seen.total, seen.log_loss, seen.accuracy))

        started = time.perf_counter()
        found = search(
            X, y, options.trials, sampler=options.sampler, storage=storage or kept, seed=seed, graph=table.graph,
            base=base, progress=progress,
        )  # fmt: skip
        seconds["search"] = time.perf_counter() - started
        complete = searching.trained()
    pressed = searching.pressed
    console.said(
        f"{len(found.trials):,} trials; best held-out log loss {found.log_loss:.4f}, accuracy {found.accuracy:.1%}"
    )
    if folder is not None:
        with console.training() as training:
            started = time.perf_counter()
            classifier = SobolevClassifier(random_state=seed, **settings, **found.setting)
            classifier.fit(X, y, graph=table.graph, progress=training)
            seconds["fitting"] = time.perf_counter() - started
            fitted = Fitted(
                name, classifier, table, given, seconds, training.trained() and complete, found.to_json(),
                accept=options.accept, side=picture_side(options.data, table),
            )  # fmt: skip
            result = write_into(folder, fitted, console.working)
        pressed |= training.pressed
        console.summary(result, folder)
    return INTERRUPTED if pressed else 0


def _folder(name: str, journal: str | None) -> Path:
    """The folder of the same search if that was interrupted before it wrote its results, else a new one."""
    from sobgnn.app.runs import TABLE
    from sobgnn.app.runs.folder import free_folder

    begun = sorted(Path("runs").glob(f"*/{journal}"))
    return next((kept.parent for kept in begun if not (kept.parent / TABLE).exists()), free_folder(name))


@contextlib.contextmanager
def _storage(folder: Path | None, journal: str | None) -> Iterator[Path | None]:
    """The journal of trials in the run folder, which is named by the search: a folder's search may be resumed.

    The run of another search is never written over. A folder made for the journal is removed if the block fails before
    the first trial. ``None`` where trials are stored elsewhere.
    """
    from sobgnn.app.runs import check_free

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
