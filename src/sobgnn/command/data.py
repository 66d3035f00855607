"""`sobgnn data`: data sets by name, and where they are."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Data sets by name, and where they are.", rich_markup_mode=None)


@app.command("list")
def data_list() -> None:
    """Names of the data sets, and where each one is found. Exit: 0."""
    from sobgnn import datasets
    from sobgnn.command import terminal

    terminal.Terminal().datasets([datasets.locate(name) for name in datasets.names()])


@app.command("fetch")
def data_fetch(name: Annotated[str, typer.Argument(help="A name from `sobgnn data list`.")]) -> None:
    """Load a data set, downloading it if possible, and check it. Exit: 0 done, 2 not available."""
    from sobgnn.command import terminal
    from sobgnn.runs.source import dataset_table

    console = terminal.Terminal()
    with console.working(f"Fetching {name}"):
        table = dataset_table(name)
    console.data(name, table)
