"""`sobgnn label`: a page on this machine to label in."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from sobgnn.app.command.options import (
    Device,
    Drop,
    Identity,
    ImageModel,
    Seed,
    Sheet,
    Text,
    TextEncoding,
    TextModel,
    at_home,
    reading_options,
)


def label(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="CSV, Parquet, Excel, JSON or NPZ file, a folder of pictures, a data set's name, or an earlier run of "
            "this command.",
        ),
    ],
    label: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column with labels; may be empty or missing."),
    ] = None,
    new: Annotated[
        bool, typer.Option("--new", help="The label column is new, even if one has a similar name.")
    ] = False,
    identity: Identity = None,
    drop: Drop = None,
    text: Text = None,
    text_model: TextModel = None,
    image_model: ImageModel = None,
    encoding: TextEncoding = None,
    sheet: Sheet = None,
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

    Prints the page's address; anyone who has its token can label. Every label is written to disk before the page shows
    it as saved. Ctrl-C, or Finish in the page, writes the run folder: labels.csv and, with labels of at least two
    classes, everything that `sobgnn fit` writes. Exit: 0 done, 2 wrong input (one line on stderr).
    """
    from sobgnn._system.process import check_device
    from sobgnn.app.command import terminal
    from sobgnn.app.labeling import open_page
    from sobgnn.app.labeling.export import count_formulas
    from sobgnn.app.labeling.rows import lacks_label
    from sobgnn.app.runs.predict import formula_notes

    console = terminal.Terminal()
    check_device(device)
    settings = {"random_state": seed, **({} if device is None else {"device": device})}
    with console.working(f"Reading {data}"):
        page = open_page(
            data,
            label,
            identity,
            drop or [],
            reading=reading_options(text, text_model, image_model, encoding, sheet),
            new=new,
            folder=out,
            port=port,
            settings=settings,
        )
    try:
        table, store = page.labeling.source.table, page.labeling.store
        labels = store.labels
        if store.saved and labels:
            console.said(f"Resuming {page.folder}: {labels:,} label{'' if labels == 1 else 's'}.")
        elif label is not None and lacks_label(page.labeling.source, label):
            own = table.encoding.label
            start = "starting without labels" if own is None else f"starting with the labels of column {own!r}"
            console.said(f"There is no column {label!r}; {start}.")
        elif label is None and table.frame is not None and table.encoding.label is None:
            console.said("Starting without labels; --label COLUMN continues with those of a column.")
        console.notes(table.notes)
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
    console.notes(formula_notes(count_formulas(page.labeling.source, store)))
    if (page.folder / "report.html").exists():
        console.wrote(page.folder / "report.html")
    elif not page.problem:
        console.said("A report and predictions need labels of at least two classes.")
