"""The protocol under ``sobgnn reproduce``: words to function calls, and a progress bar over the whole study."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

TIME_UP = 3

app = typer.Typer(help="The paper's evaluation.", rich_markup_mode=None)

_Datasets = Annotated[str, typer.Option(metavar="A,B", help="Data sets, comma-separated.")]
_Out = Annotated[Path, typer.Option(metavar="FOLDER", help="JSON lines, one a training, appended to.")]
_Data = Annotated[
    Path | None, typer.Option(metavar="FOLDER", help="Data sets that `python -m sobgnn.protocol prepare` wrote.")
]
_Device = Annotated[str, typer.Option(help="cpu, cuda or auto.")]
_Shard = Annotated[str, typer.Option(metavar="I/N", help="Part I of N, for machines or processes side by side.")]
_Limit = Annotated[float | None, typer.Option(metavar="SECONDS", help="No batch starts after this time.")]
_Epochs = Annotated[int, typer.Option(help="Steps of a training at most.")]
_Resume = Annotated[bool, typer.Option(help="Go on where FOLDER's lines end; else they are an error.")]
_Seeds = Annotated[int, typer.Option(help="Final seeds of each cell.")]
_LINES = Path("results/lines")
_FOUR = "isolet,har,20news,cancer"


@app.command("table1")
def table1(
    models: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Default: all; on a CPU those without attention, which is slow there."),
    ] = None,
    datasets: _Datasets = _FOUR,
    trials: Annotated[int, typer.Option(help="Settings that each search tries.")] = 100,
    seeds: _Seeds = 50,
    heads: Annotated[
        str, typer.Option(help="plain, paper (ReLU and dropout on the logits), or plain,paper.")
    ] = "plain",
    out: _Out = _LINES,
    data: _Data = None,
    device: _Device = "auto",
    shard: _Shard = "1/1",
    time_limit: _Limit = None,
    epochs: _Epochs = 500,
    resume: _Resume = True,
) -> None:
    """Table 1 of the paper: random search and final seeds for each model on each data set.

    Appends to FOLDER; killed and run again it resumes. `sobgnn reproduce report` makes the tables.
    Exit: 0 done, 2 wrong input, 3 the time limit came first.
    """
    from sobgnn.protocol import actions

    with _running(out, data, device, shard, time_limit, epochs, resume) as running:
        names = None if models is None else _names(models)
        _finish(actions.table1(running, names, _names(datasets), trials, seeds, _names(heads)))


@app.command("few-labels")
def few_labels(
    models: Annotated[
        str, typer.Option(metavar="A,B", help="Models, comma-separated.")
    ] = "S-SobGNN,GCN,SIGN,MLP,SVM,LabelSpreading,SobolevClassifier",
    datasets: _Datasets = _FOUR,
    labels: Annotated[str, typer.Option(help="n/class or 10%, comma-separated.")] = "1/class,5/class,20/class,10%",
    trials: Annotated[int, typer.Option(help="Settings that each search tries.")] = 10,
    seeds: _Seeds = 20,
    out: _Out = _LINES,
    data: _Data = None,
    device: _Device = "auto",
    shard: _Shard = "1/1",
    time_limit: _Limit = None,
    epochs: _Epochs = 500,
    resume: _Resume = True,
) -> None:
    """Accuracy with 1, 5 and 20 labels per class and with 10 %.

    Appends to FOLDER. Exit: 0 done, 2 wrong input, 3 the time limit came first.
    """
    from sobgnn.protocol import actions

    with _running(out, data, device, shard, time_limit, epochs, resume) as running:
        _finish(actions.few_labels(running, _names(models), _names(datasets), _names(labels), trials, seeds))


@app.command("ablations")
def ablations(
    kinds: Annotated[
        str | None, typer.Option(metavar="A,B", help="What to change, comma-separated; all of the model's if left out.")
    ] = None,
    model: Annotated[str, typer.Option(help="S-SobGNN or D-SobGNN.")] = "S-SobGNN",
    datasets: _Datasets = _FOUR,
    seeds: _Seeds = 20,
    out: _Out = _LINES,
    data: _Data = None,
    device: _Device = "auto",
    shard: _Shard = "1/1",
    time_limit: _Limit = None,
    epochs: _Epochs = 500,
    resume: _Resume = True,
) -> None:
    """S-SobGNN or D-SobGNN with one thing changed at a time.

    Appends to FOLDER. Exit: 0 done, 2 wrong input, 3 the time limit came first.
    """
    from sobgnn.protocol import actions

    with _running(out, data, device, shard, time_limit, epochs, resume) as running:
        _finish(actions.ablations(running, None if kinds is None else _names(kinds), _names(datasets), seeds, model))


@app.command("report")
def report(
    lines: Annotated[Path, typer.Option(metavar="FOLDER", help="JSON lines, also compressed ones.")] = _LINES,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the tables and plots go.")] = Path("results"),
    device_minutes: Annotated[
        str, typer.Option(metavar="STUDY=MINUTES", help="Time of devices as metered, to be said in the tables.")
    ] = "",
) -> None:
    """Markdown, CSV and LaTeX tables and plots from JSON lines. Trains nothing.

    Exit: 0 done, 2 wrong input.
    """
    from sobgnn.protocol import actions

    actions.report(lines, out, _names(device_minutes))


@app.command("settings")
def settings(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the files go, one a model.")] = Path(
        "results/settings"
    ),
    trials: Annotated[int, typer.Option(help="Settings of each model.")] = 100,
) -> None:
    """The settings that each model's search tries, as JSON. Exit: 0."""
    from sobgnn.protocol import actions

    actions.settings(trials=trials, out=out)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _finish(complete: bool) -> None:
    if not complete:
        raise typer.Exit(TIME_UP)


@contextmanager
def _running(
    out: Path, data: Path | None, device: str, shard: str, time_limit: float | None, epochs: int, resume: bool
) -> Iterator[Any]:
    """How to train, with a bar on a terminal and lines elsewhere."""
    from sobgnn.protocol.actions import Running, say_now

    def running(say: Callable[[str], None], bar: Callable[[float, float, str], None] | None) -> Running:
        return Running(out, data, device, shard, time_limit, epochs, resume, say=say, progress=bar)

    if not sys.stdout.isatty():
        yield running(say_now, None)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[left]}"), TextColumn("{task.description}"))
    with Progress(*columns) as shown:
        task = shown.add_task("preparing", total=1.0, left="")

        def bar(share: float, left: float, name: str) -> None:
            shown.update(task, completed=share, left=f"{max(0.0, left) / 60:.1f} min left", description=name)

        yield running(shown.console.print, bar)


@app.command("figure1")
def reproduce_figure1(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where figure1.png and figure1.svg go.")] = Path(
        "figures"
    ),
) -> None:
    """Figure 1 of the paper: how Hadamard powers penalize the frequencies of a graph.

    Writes figure1.png and figure1.svg to FOLDER. Exit: 0 done, 2 wrong input.
    """
    from sobgnn.command import terminal
    from sobgnn.protocol.report.figure1 import default_graph, draw

    console = terminal.Terminal()
    for path in draw(default_graph(), out):
        console.wrote(path)
