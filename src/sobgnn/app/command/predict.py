"""`sobgnn predict`: labels for new points from a run."""

from __future__ import annotations

import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any

from sobgnn.app.command.options import add_cluster, add_command, add_models, check_file, path, place
from sobgnn.app.runs import TABLE, check_run

# Formats that predictions are not written in.
_OTHER_FORMATS = (
    ".parquet", ".tsv", ".xlsx", ".xls", ".json", ".jsonl", ".ndjson", ".npz", ".npy", ".arrow", ".feather",
)  # fmt: skip


def add_predict(commands: Any) -> None:
    """Add the command, with its arguments and options."""
    parser = add_command(commands, "predict", predict)
    parser.add_argument("run_folder", type=place, metavar="RUN", help="Run folder written by `sobgnn fit`.")
    parser.add_argument(
        "data",
        nargs="+",
        type=place,
        metavar="DATA",
        help="CSV, Parquet, Excel, JSON or NPZ file with the same columns, or pictures; may be larger than memory. "
        "Of a run of shards: Parquet or .npy files.",
    )
    parser.add_argument(
        "--out",
        type=place,
        metavar="FILE",
        help="CSV file to write; default: DATA's name with .predictions.csv. Of a run of shards: a folder.",
    )
    add_cluster(parser)
    add_models(parser)
    parser.add_argument(
        "--export",
        choices=["spreadsheet"],
        help="Also write FILE for a spreadsheet, with the separator and decimal sign of DATA.",
    )


def predict(options: Namespace) -> int:
    """Labels for new points from a fitted run. Trains nothing; RUN is not changed, and nothing outside it is opened.

    A run that was fitted with --text-model or --image-model needs the same model again: it names none by its path.

    Writes DATA's name with .predictions.csv beside it. Points far from all training points are marked and,
    if the run was fitted with --accept, predictions are marked accept or review.
    """
    from sobgnn.app.command.shards import is_sharded, predict_shards

    if is_sharded(options.run_folder):
        return predict_shards(options)
    run, data = options.run_folder, path(str(options.data[0]))
    check_file(data)
    if not (run / TABLE).is_file() and (data / TABLE).is_file():
        raise ValueError(f"The run comes first: sobgnn predict {shlex.quote(str(data))} {shlex.quote(str(run))}.")
    check_run(run)
    if len(options.data) > 1 or options.cluster is not None:
        raise ValueError(f"{run} is no run of shards: it predicts one file at a time, on this machine.")
    from sobgnn import tables
    from sobgnn._system.files import atomic_file
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.runs import folder as run_folder
    from sobgnn.app.runs.predict import predict_batches
    from sobgnn.app.runs.run import Checks
    from sobgnn.app.runs.summary import spreadsheet_notes
    from sobgnn.tables.predictions import spreadsheet_name, write_spreadsheet

    console = Terminal()
    tables.check_readable(data)
    place = data if data.name.strip(".") else data.resolve()  # . and .. name no file
    target = _written_to(options.out or place.with_name(tables.file_stem(place) + ".predictions.csv"))
    if not target.parent.is_dir():
        raise ValueError(f"--out names a file in {str(target.parent)!r}, but there is no such folder.")
    copy = _written_to(spreadsheet_name(target)) if options.export else None
    targets = [target] if copy is None else [target, copy]
    for each in targets:
        if each.exists() and each.samefile(data):
            raise ValueError(
                f"{each} would be written, but is DATA itself, which is never changed: name another --out."
            )
        run_folder.check_not_of_run(each, run)
        if each.exists() and not tables.are_predictions(each):
            raise ValueError(
                f"{each} exists but does not hold predictions. Name another file with --out, or remove it."
            )
    classifier, encoding = run_folder.open_run(run, options.text_model, options.image_model)
    checks = Checks.read(run)
    notes: list[str] = []
    with atomic_file(target) as file, console.working("Predicting") as working:
        rows = tables.batches(data, encoding, options.encoding, options.sheet)
        for done in predict_batches(classifier, rows, file, notes, checks, encoding):
            working(f"{done:,} rows done")
    if copy is not None:
        with atomic_file(copy) as file:
            write_spreadsheet(target, file, tables.file_sheet(data, encoding, options.encoding))
    for each in targets:
        console.wrote(each, done)
    console.notes([*notes, *spreadsheet_notes(encoding.sheet(","), [options.export])])
    return 0


def _written_to(target: Path) -> Path:
    """The file itself that a name or a link stands for; an error where it cannot be replaced by a CSV file."""
    if target.suffix.lower() in _OTHER_FORMATS:
        raise ValueError(f"--out names {target.name}, but predictions are written as CSV. Use a name ending in .csv.")
    if target.name == "-" or (target.exists() and not target.is_file()) or target.is_relative_to("/dev"):
        raise ValueError(f"--out must name a regular file, but got {target}: predictions are written all at once.")
    return target.resolve() if target.is_symlink() else target
