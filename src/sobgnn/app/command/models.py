"""`sobgnn models`: models that compare texts and pictures by meaning, and where they are."""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(help="Models that compare texts and pictures by meaning, and where they are.", rich_markup_mode=None)


@app.command("list")
def models_list() -> None:
    """Models on this machine, with their folders, and names that can be fetched. The network is not used. Exit: 0."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import KNOWN, at_hand, find_text_model, is_called

    console = Terminal()
    found, chosen = at_hand(), find_text_model("auto")
    for each in found:
        default = " (used for texts by default)" if chosen is not None and chosen.folder == each.folder else ""
        console.said(f"{each.name:<42}{each.place}{default}")
        console.said(f"{'':<4}{each.folder}")
    for short in KNOWN:
        if not any(is_called(each, short) for each in found):
            console.said(f"{short:<42}not here; `sobgnn models fetch {short}`")


@app.command("fetch")
def models_fetch(
    name: Annotated[str, typer.Argument(help="A short name from `sobgnn models list`, or OWNER/NAME.")],
) -> None:
    """Fetch a model from the Hugging Face hub: its JSON and safetensors. Exit: 0 done, 2 not available."""
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import find

    console = Terminal()
    with console.working(f"Fetching {name}"):
        found = find(name)
    console.said(f"{found.name}: {found.folder}")


@app.command("distill")
def models_distill(
    name: Annotated[str, typer.Argument(metavar="NAME|FOLDER", help="A sentence-transformers model.")],
) -> None:
    """Make a static model of a sentence model, hundreds of times as fast and less accurate; in the user's cache folder.

    Exit: 0 done, 2 wrong input.
    """
    from sobgnn.app.command.terminal import Terminal
    from sobgnn.tables.models import distill

    console = Terminal()
    with console.working(f"Distilling {name}, which takes about a minute"):
        found = distill(name)
    console.said(f"{found.name}: {found.folder}")
    console.said(f"Use it with --text-model {found.name}.")
