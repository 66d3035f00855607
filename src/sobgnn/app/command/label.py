"""`sobgnn label`: a page on this machine to label in."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from sobgnn.app.command.options import DATA, Device, Reading, Seed, at_home, with_reading


@with_reading
def label(
    data: Annotated[str, DATA],
    *,
    reading: Reading,
    new: Annotated[
        bool, typer.Option("--new", help="The label column is new, even if one has a similar name.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN", callback=at_home, help="Run folder; default: runs/<name>-labeled, resumed if it exists."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; default: any free port.")] = 0,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the address without opening a browser.")] = False,
    seed: Seed = 0,
    device: Device = None,
) -> None:
    """Open a page on this machine for labeling DATA, while the model learns from each label. DATA is not changed.

    The label column may be missing: then it is new. Prints the page's address; anyone who has its token can label.
    Every label is written to disk before the page shows it as saved. Ctrl-C, or Finish in the page, writes the run
    folder: labels.csv and, with labels of at least two classes, everything that `sobgnn fit` writes. The same command
    resumes it. Exit: 0 done, 2 wrong input (one line on stderr).
    """
    from sobgnn.app.command import terminal
    from sobgnn.app.labeling import open_page
    from sobgnn.app.labeling.export import count_formulas
    from sobgnn.app.labeling.rows import new_label_note
    from sobgnn.app.runs.predict import formula_notes
    from sobgnn.tables.columns.names import counted

    console = terminal.Terminal()
    settings = {"random_state": seed, **({} if device is None else {"device": device})}
    with console.working(f"Reading {data}"):
        page = open_page(
            data, *reading.columns, reading=reading.options, new=new, folder=out, port=port, settings=settings
        )
    try:
        source, store = page.labeling.source, page.labeling.store
        if store.saved and store.labels:
            console.said(f"Resuming {page.folder}: {counted(store.labels, 'label')}.")
        elif start := new_label_note(source, reading.label):
            console.said(start)
        console.notes(source.table.notes)
        console.said(f"Labeling page: {page.url}")
        console.said("Press Ctrl-C to stop and write the run.")
        with contextlib.nullcontext() if no_open else page.in_browser():
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
