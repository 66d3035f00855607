"""The `sobgnn` command: words to subcommands, errors to exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import sobgnn
from sobgnn.app.command import catalogs, fit, label, predict, tune
from sobgnn.app.command.options import INTERRUPTED, TERMINATED, WRONG_INPUT, Parser

_ABOUT = "Labels for many points from a few, with sparse Sobolev graph neural networks."
_REPRODUCE = "The paper's tables and figures: table1, few-labels, ablations, report, prepare, figure1."
_COMMANDS: dict[str, Callable[[Any], None]] = {
    "fit": fit.add_fit,
    "label": label.add_label,
    "predict": predict.add_predict,
    "tune": tune.add_tune,
    "data": catalogs.add_data,
    "models": catalogs.add_models,
}
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


def _run(words: Sequence[str]) -> int:
    """Run a command; errors are raised, and SystemExit after --help."""
    if words[0] == "reproduce":  # it has a parser of its own
        from sobgnn.paper.command import run_command

        return run_command(words[1:] or ["--help"], "sobgnn reproduce")
    parser = Parser(_ABOUT, prog="sobgnn")
    parser.add_argument("--version", action="version", version=f"sobgnn {sobgnn.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for add in [_COMMANDS[words[0]]] if words[0] in _COMMANDS else _COMMANDS.values():
        add(commands)
    commands.add_parser("reproduce", help=_REPRODUCE)
    own = commands.choices.get(words[0])  # its errors name it
    options = parser.parse_args(words) if own is None else own.parse_args(words[1:])
    return int(options.run(options))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 2 wrong input, 130 interrupted, 143 terminated, 1 ours."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    try:
        with _plain_warnings(), _cleaned_up() if words[0] in _WRITERS else contextlib.nullcontext():
            code = _run(words)
        if code == INTERRUPTED:
            _say("Interrupted.", debug=False)
        return code
    except SystemExit as ended:  # after --help and --version
        return int(ended.code or 0)
    except KeyboardInterrupt:
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
        _say(f"Internal error, {type(error).__name__}: {error}. --debug shows where.", debug)
        return 1


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings are one line each, without the place in the code."""

    def show(message: Warning | str, *place: object, **_: object) -> None:
        _say(f"Note: {message}", debug=False)

    with warnings.catch_warnings():
        warnings.showwarning = show
        warnings.filterwarnings("ignore", 'The text "-1"')  # it is for Python; the table's notes say it of a file
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
