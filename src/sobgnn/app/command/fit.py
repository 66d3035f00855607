"""`sobgnn fit`: labels for every row of a file or data set, and a run folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from sobgnn.app.command.options import (
    DATA,
    INTERRUPTED,
    Accept,
    ClassWeight,
    Device,
    Export,
    Labels,
    Reading,
    Seed,
    at_home,
    with_reading,
)


@with_reading
def fit(
    data: Annotated[str | None, DATA] = None,
    *,
    reading: Reading,
    labels: Labels = None,
    out: Annotated[
        Path | None, typer.Option(metavar="RUN", callback=at_home, help="Run folder to make; default: runs/<name>-<n>.")
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    accept: Accept = None,
    class_weight: ClassWeight = None,
    formats: Export = None,
    k: Annotated[int | None, typer.Option(min=1, help="Number of neighbors per point.")] = None,
    alpha: Annotated[int | None, typer.Option(min=1, help="Number of Hadamard powers.")] = None,
    epsilon: Annotated[float | None, typer.Option(min=0, help="Weight of self-loops.")] = None,
    importance: Annotated[
        bool, typer.Option(" /--no-importance", help="Do not measure which columns matter.", show_default=False)
    ] = True,
    paper: Annotated[bool, typer.Option("--paper", help="The paper's own settings instead of the defaults.")] = False,
) -> None:
    """Label every row of DATA, from the rows that have a label.

    Writes a run folder: report.html to look at, predictions.csv, metrics.json, and the model for `sobgnn predict`.
    Prints the estimated accuracy, what was not used, and what to do next.
    Ctrl-C during training keeps the best model so far. Exit: 0 done, 2 wrong input, 130 interrupted.
    """
    from sobgnn.app.command.terminal import Terminal

    if data is None:
        raise ValueError("DATA is missing. Name a file: sobgnn fit FILE. For a first try: sobgnn fit digits.")
    console, formats = Terminal(), formats or []
    name, table, seconds = reading.load(data, console)
    rows = table.X.shape[0]
    if k is not None and table.graph is None and k >= rows:  # the estimator would use fewer
        raise ValueError(
            f"--k must be smaller than the number of rows, but got {k} for {rows} rows. Pass {rows - 1} or fewer."
        )
    # Here, since they take seconds: what is wrong with DATA is said before.
    from sobgnn.app.runs import folder as run_folder
    from sobgnn.app.runs.exports import spreadsheet_notes
    from sobgnn.app.runs.run import Fitted, hide_labels
    from sobgnn.app.runs.source import picture_side

    given = hide_labels(table.codes, labels, seed)
    settings = {
        "k": k, "alpha": alpha, "epsilon": epsilon, "device": device, "random_state": seed,
        "class_weight": class_weight,
    }  # fmt: skip
    with run_folder.reserved(out, name) as run, console.training() as training:
        console.data(name, table, given)
        started = time.perf_counter()
        classifier = _estimator(paper, settings)
        classifier.fit(table.X, table.labels(given), graph=table.graph, progress=training)
        seconds["fitting"] = time.perf_counter() - started
        fitted = Fitted(
            name, classifier, table, given, seconds, training.trained(), accept=accept, side=picture_side(data, table)
        )
        result = run_folder.fill_run(run.place, fitted, formats, importance, console.working)
    console.summary(result, run.folder)
    console.notes(spreadsheet_notes(table.encoding.sheet(table.separator), formats))
    if training.pressed:
        raise typer.Exit(INTERRUPTED)


def _estimator(paper: bool, settings: dict[str, Any]) -> Any:
    from sobgnn.estimator.classifier import SobolevClassifier

    chosen = {name: value for name, value in settings.items() if value is not None}
    return SobolevClassifier.paper(**chosen) if paper else SobolevClassifier(**chosen)
