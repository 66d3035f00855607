"""`sobgnn fit`: labels for every row of a file or data set, and a run folder."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from sobgnn.app.command.options import (
    INTERRUPTED,
    add_cluster,
    add_command,
    add_data,
    add_fitting,
    at_least,
    check_fitting,
    load,
    place,
)
from sobgnn.app.runs import FORMATS


def add_fit(commands: Any) -> None:
    """Add the command, with its arguments and options."""
    parser = add_command(commands, "fit", fit)
    add_data(parser, required=False)
    add_fitting(parser, shards=True)
    parser.add_argument("--points", metavar="COLUMN", help="For shards: the column of points, which are lists.")
    parser.add_argument("--shards", type=at_least(1), help="For shards: their number; more need less memory each.")
    add_cluster(parser)
    parser.add_argument("--out", type=place, metavar="RUN", help="Run folder to make; default: runs/<name>-<n>.")
    parser.add_argument(
        "--export",
        metavar="FORMAT",
        choices=FORMATS,
        action="append",
        default=[],
        help=f"Also write predictions as {', '.join(FORMATS)}; may be repeated.",
    )
    parser.add_argument("--k", type=at_least(1), help="Number of neighbors per point.")
    parser.add_argument("--alpha", type=at_least(1), help="Number of Hadamard powers.")
    parser.add_argument("--epsilon", type=at_least(0, float), help="Weight of self-loops.")
    parser.add_argument("--no-importance", action="store_true", help="Do not measure which columns matter.")
    parser.add_argument("--paper", action="store_true", help="The paper's own settings instead of the defaults.")


def fit(options: Namespace) -> int:
    """Label every row of DATA, from the rows that have a label.

    Writes a run folder: report.html to look at, predictions.csv, metrics.json, and the model for `sobgnn predict`.
    Prints the estimated accuracy, what was not used, and what to do next.
    With --labels FILE, DATA may be many Parquet or .npy files ("s3://b/part-*.parquet"): a fit of shards, which resumes
    if it is run again, and writes predictions as Parquet.
    Ctrl-C during training keeps the best model so far.
    """
    if options.data is None:
        raise ValueError("DATA is missing. Name a file: sobgnn fit FILE. For a first try: sobgnn fit digits.")
    if isinstance(options.labels, str):
        from sobgnn.app.command.shards import fit_shards

        return fit_shards(options)
    for name in ("points", "shards", "cluster"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} is for shards: give their labels as a CSV file, --labels FILE.")
    check_fitting(options)
    from sobgnn.app.command.terminal import Terminal

    console = Terminal()
    name, table, seconds = load(options, console)
    rows = table.X.shape[0]
    if options.k is not None and table.graph is None and options.k >= rows:  # the estimator would use fewer
        raise ValueError(
            f"--k must be smaller than the number of rows, but got {options.k} for {rows} rows. Pass {rows - 1} or "
            "fewer."
        )
    # Here, since they take seconds: what is wrong with DATA is said before.
    from sobgnn.app.runs.folder import fill_run, new_run
    from sobgnn.app.runs.run import Fitted, hide_labels
    from sobgnn.app.runs.source import picture_side
    from sobgnn.app.runs.summary import spreadsheet_notes

    given = hide_labels(table.codes, options.labels, options.seed)
    settings = {name: getattr(options, name) for name in ("k", "alpha", "epsilon", "device", "class_weight")}
    with new_run(options.out, name) as run, console.training() as training:
        console.data(name, table, given)
        started = time.perf_counter()
        classifier = _estimator(options.paper, settings | {"random_state": options.seed})
        classifier.fit(table.X, table.labels(given), graph=table.graph, progress=training)
        seconds["fitting"] = time.perf_counter() - started
        fitted = Fitted(
            name, classifier, table, given, seconds, training.trained(),
            accept=options.accept, side=picture_side(options.data, table),
        )  # fmt: skip
        result = fill_run(run.place, fitted, options.export, not options.no_importance, console.working)
    console.summary(result, run.folder)
    console.notes(spreadsheet_notes(table.encoding.sheet(table.separator), options.export))
    return INTERRUPTED if training.pressed else 0


def _estimator(paper: bool, settings: dict[str, Any]) -> Any:
    from sobgnn.estimator.classifier import SobolevClassifier

    chosen = {name: value for name, value in settings.items() if value is not None}
    return SobolevClassifier.paper(**chosen) if paper else SobolevClassifier(**chosen)
