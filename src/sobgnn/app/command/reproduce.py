"""`sobgnn reproduce`: the paper's command line, under the library's."""

from __future__ import annotations

from typing import Annotated

import typer

# Everything after `reproduce` is for the paper's own parser, --help too.
PASSED_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


def reproduce(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="COMMAND [OPTIONS]")] = None,
) -> None:
    """The paper's tables and figures: table1, few-labels, ablations, report, prepare, figure1.

    Exit: 0 done, 2 wrong input, 3 time limit reached (run it again to resume).
    """
    from sobgnn.paper.__main__ import run_command

    try:
        raise typer.Exit(run_command(arguments or ["--help"], "sobgnn reproduce"))
    except SystemExit as done:  # argparse's way to end after --help
        raise typer.Exit(int(done.code or 0)) from None
