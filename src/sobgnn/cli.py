"""The `sobgnn` command: words to function calls."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

# Commands of other modules import their heavy parts when they are called, as those here do.
from sobgnn.options import (
    INTERRUPTED,
    WRONG_INPUT,
    Data,
    Device,
    Drop,
    Identity,
    Label,
    Labels,
    Seed,
    check_neighbours,
    load,
)
from sobgnn.protocol.commands import app as reproduce_app
from sobgnn.tuning.command import tune

app = typer.Typer(
    name="sobgnn",
    help="Labels for many points from a few, with sparse Sobolev graph neural networks.\n\n"
    "Exit: 0 done, 2 wrong input (one line on stderr), 130 interrupted. --debug, anywhere, shows tracebacks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
data_app = typer.Typer(help="Data sets by name, and where they are.", rich_markup_mode=None)
app.add_typer(data_app, name="data")
app.add_typer(reproduce_app, name="reproduce", help="The paper, measured.")


@app.command()
def fit(
    data: Data = "digits",
    label: Label = None,
    identity: Identity = None,
    drop: Drop = None,
    labels: Labels = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Run folder to make; default: runs/<name>-<n>.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    k: Annotated[int | None, typer.Option(help="Neighbours of each point.")] = None,
    alpha: Annotated[int | None, typer.Option(help="Number of Hadamard powers.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Weight of self-loops.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's own settings instead of the defaults.")] = False,
) -> None:
    """Labels for every row of DATA from those that have one.

    Writes a run folder: report.html to look at, predictions.csv, metrics.json, and the model for `sobgnn predict`.
    Ctrl-C while it trains keeps the best so far. Exit: 0 done, 2 wrong input, 130 interrupted.
    """
    from sobgnn import run_folder, terminal
    from sobgnn.fitted import Fitted, hide_labels

    console = terminal.Terminal()
    name, table, spent = load(data, label, identity, drop or [], console)
    folder = out or run_folder.free_folder(name)
    run_folder.check_free(folder)
    run_folder.check_device(device)
    check_neighbours(k, table)
    given = hide_labels(table.codes, labels, seed)
    console.data(name, table, given)
    settings = {"k": k, "alpha": alpha, "epsilon": epsilon, "device": device, "random_state": seed}
    with console.training() as progress:
        started = time.perf_counter()
        classifier = _estimator(paper, settings)
        classifier.fit(table.X, table.labels(given), graph=table.graph, progress=progress)
        spent["fitting"] = time.perf_counter() - started
    fitted = Fitted(name, classifier, table, given, spent, complete=not progress.stopped)
    console.summary(run_folder.write_run(folder, fitted), folder)
    if progress.stopped:
        raise typer.Exit(INTERRUPTED)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder that `sobgnn fit` made.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="CSV, Parquet or NPZ file with the same columns; it may be larger than memory."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write; default: DATA's name with .predictions.csv.")
    ] = None,
) -> None:
    """Labels for new points from a fitted run. Trains nothing; RUN is not changed.

    Writes DATA's name with .predictions.csv beside it. Exit: 0 done, 2 wrong input (one line on stderr).
    """
    from sobgnn import run_folder, tables, terminal

    console = terminal.Terminal()
    target = out or data.with_name(tables.file_stem(data) + ".predictions.csv")
    tables.check_readable(data)
    classifier, encoding = run_folder.open_run(run)
    with tables.atomic_file(target) as file, console.counting() as count:
        for done in run_folder.predict_batches(classifier, tables.batches(data, encoding), file):
            count(done)
    console.wrote(target, done)


app.command()(tune)


@data_app.command("list")
def data_list() -> None:
    """Names of the data sets, and where each one is found. Exit: 0."""
    from sobgnn import datasets, terminal

    terminal.Terminal().datasets([datasets.locate(name) for name in datasets.names()])


@data_app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A name from `sobgnn data list`.")]) -> None:
    """Load a data set, fetching it where it can be fetched, and check it. Exit: 0 done, 2 not to be had."""
    from sobgnn import tables, terminal

    console = terminal.Terminal()
    with console.working(f"Fetching {name}"):
        table = tables.from_dataset(name)
    console.data(name, table)


@reproduce_app.command("figure1")
def reproduce_figure1(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where figure1.png and figure1.svg go.")] = Path(
        "figures"
    ),
) -> None:
    """Figure 1 of the paper: how Hadamard powers penalise the frequencies of a graph.

    Writes figure1.png and figure1.svg to FOLDER. Exit: 0 done, 2 wrong input.
    """
    from sobgnn import terminal
    from sobgnn.report.figure1 import default_graph, draw

    console = terminal.Terminal()
    for path in draw(default_graph(), out):
        console.wrote(path)


def _estimator(paper: bool, settings: dict[str, Any]) -> Any:
    from sobgnn.classifier import SobolevClassifier

    chosen = {name: value for name, value in settings.items() if value is not None}
    return SobolevClassifier.paper(**chosen) if paper else SobolevClassifier(**chosen)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 2 wrong input, 130 interrupted, 1 a fault of ours."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    try:
        code = app(words, prog_name="sobgnn", standalone_mode=False)
        if code == INTERRUPTED:  # typer's word for Ctrl-C, and ours for a run that was stopped
            _say("Interrupted.", debug=False)
        return int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        _say("Interrupted.", debug)
        return INTERRUPTED
    except (ValueError, TypeError, OSError, MemoryError) as error:
        _say(str(error) or type(error).__name__, debug)
        return WRONG_INPUT
    except Exception as error:
        if hasattr(error, "format_message"):  # a word that is no command or option, or a value it cannot have
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "sobgnn"
            said = error.format_message().strip()
            _say(said + ("" if said.endswith((".", "?")) else ".") + f" `{command} --help` says more.", debug)
            return WRONG_INPUT
        _say(f"Internal error, {type(error).__name__}: {error}. --debug shows where.", debug)
        return 1


def _say(message: str, debug: bool) -> None:
    """One line on stderr, after the traceback where it is wanted."""
    if debug:
        traceback.print_exc()
    print("sobgnn: " + " ".join(message.split()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
