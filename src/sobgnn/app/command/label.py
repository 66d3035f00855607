"""`sobgnn label`: a page on this machine to label in."""

from __future__ import annotations

import contextlib
import socket
from argparse import Namespace
from typing import Any

from sobgnn.app.command.options import add_command, add_data, check, path, reading


def add_label(commands: Any) -> None:
    """Add the command, with its arguments and options."""
    parser = add_command(commands, "label", label)
    add_data(parser)
    parser.add_argument("--new", action="store_true", help="The label column is new, even if one has a similar name.")
    parser.add_argument(
        "--out", type=path, metavar="RUN", help="Run folder; default: runs/<name>-labeled, resumed if it exists."
    )
    parser.add_argument("--port", type=int, default=0, help="Port on 127.0.0.1; default: any free port.")
    parser.add_argument("--no-open", action="store_true", help="Print the address without opening a browser.")


def label(options: Namespace) -> int:
    """Open a page on this machine for labeling DATA, while the model learns from each label. DATA is not changed.

    The label column may be missing: then it is new. Prints the page's address; anyone who has its token can label.
    Every label is written to disk before the page shows it as saved. Ctrl-C, or Finish in the page, writes the run
    folder: labels.csv and, with labels of at least two classes, everything that `sobgnn fit` writes. The same command
    resumes it.
    """
    check(options)
    if not 0 <= options.port <= 65535:
        raise ValueError(f"--port must be between 0 and 65535, but got {options.port}.")
    try:
        socket.create_server(("127.0.0.1", options.port)).close()
    except OSError:
        raise ValueError(f"Port {options.port} is in use. Name another with --port, or leave it out.") from None
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.app.labeling import open_page
    from sobgnn.app.labeling.export import count_formulas
    from sobgnn.app.labeling.rows import new_label_note
    from sobgnn.app.runs.summary import formula_notes
    from sobgnn.tables.columns.names import counted

    console = Terminal()
    settings = {"random_state": options.seed, **({} if options.device is None else {"device": options.device})}
    with console.working(f"Reading {options.data}") as progress:
        page = open_page(
            options.data, options.label, options.id, options.drop, reading=reading(options),
            new=options.new, folder=options.out, port=options.port, settings=settings, progress=progress,
        )  # fmt: skip
    try:
        source, store = page.labeling.source, page.labeling.store
        if store.saved and store.labels:
            console.said(f"Resuming {page.folder}: {counted(store.labels, 'label')}.")
        elif start := new_label_note(source, options.label):
            console.said(start)
        advice = source.table.encoding.advice
        console.notes([*source.table.notes, *([f"Next: {advice}"] if advice else [])])
        console.said(f"Labeling page: {page.url}")
        console.said("Press Ctrl-C to stop and write the run.")
        with contextlib.nullcontext() if options.no_open else page.in_browser():
            page.serve()
        if page.unwritten:
            with console.working("Fitting and writing the run; Ctrl-C keeps only the labels"):
                page.finish()
            if page.problem:
                console.said(page.problem)
    finally:
        page.close()
    console.wrote(page.folder / "labels.csv", store.labels)
    console.notes(formula_notes(count_formulas(source, store)))
    if (page.folder / "report.html").exists():
        console.wrote(page.folder / "report.html")
    elif not page.problem:
        console.said("A report and predictions need labels of at least two classes.")
    return 0
