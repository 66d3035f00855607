"""The `sobgnn` command: words to subcommands, errors to exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Annotated

import typer

import sobgnn
from sobgnn.app.command import data, fit, label, models, predict, reproduce, tune
from sobgnn.app.command.options import INTERRUPTED, TERMINATED, WRONG_INPUT

app = typer.Typer(
    name="sobgnn",
    help="Labels for many points from a few, with sparse Sobolev graph neural networks.\n\n"
    "Exit: 0 done, 2 wrong input (one line on stderr), 130 interrupted. --debug, anywhere, shows tracebacks.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command()(fit.fit)
app.command()(label.label)
app.command()(predict.predict)
app.command()(tune.tune)
app.add_typer(data.app, name="data")
app.add_typer(models.app, name="models")
app.command(context_settings=reproduce.PASSED_ON)(reproduce.reproduce)


# Commands that write under another name, and rename what they wrote when it is whole, or have a process of their own.
_WRITERS = ("fit", "predict", "tune", "label")


class _Terminated(BaseException):
    """SIGTERM came."""


@contextlib.contextmanager
def _cleaned_up() -> Iterator[None]:
    """SIGTERM raises, so that what is half written is removed; as it is where others handle it already."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        yield
        return
    own = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == own:
            raise _Terminated
        signal.signal(number, signal.SIG_DFL)  # a child that inherited this ends as it would have
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"sobgnn {sobgnn.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 2 wrong input, 130 interrupted, 143 terminated, 1 ours."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    try:
        with _plain_warnings(), _cleaned_up() if words[0] in _WRITERS else contextlib.nullcontext():
            code = app(words, prog_name="sobgnn", standalone_mode=False)
        if code == INTERRUPTED:  # typer's word for Ctrl-C, and ours for a run that was stopped
            _say("Interrupted.", debug=False)
        return int(code or 0)
    except (KeyboardInterrupt, typer.Abort):
        _say("Interrupted.", debug)
        return INTERRUPTED
    except _Terminated:
        return TERMINATED
    except OSError as error:
        plain = error.strerror and isinstance(error.filename, str)
        _say(f"{error.filename} cannot be used: {error.strerror}." if plain else str(error), debug)
        return WRONG_INPUT
    except (ValueError, TypeError, MemoryError) as error:
        _say(str(error) or type(error).__name__, debug)
        return WRONG_INPUT
    except Exception as error:
        if hasattr(error, "format_message"):  # a word that is no command or option, or a value it cannot have
            context = getattr(error, "ctx", None)
            command = context.command_path if context is not None else "sobgnn"
            said = error.format_message().strip()
            _say(said + ("" if said.endswith((".", "?")) else ".") + f" `{command} --help` says more.", debug)
            return WRONG_INPUT
        _say(f"Internal error, {type(error).__name__}: {error}. --debug shows where.", debug)
        return 1


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings are one line each, without the place in the code."""

    def show(message: Warning | str, *place: object, **_: object) -> None:
        _say(f"Note: {message}", debug=False)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


def _say(message: str, debug: bool) -> None:
    """One line on stderr, after the traceback where it is wanted."""
    if debug:
        traceback.print_exc()
    # A name from somebody's file may hold codes that a terminal obeys.
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(message.split()))
    print(f"sobgnn: {plain}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
