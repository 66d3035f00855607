"""What the command says while it works and when it is done. Progress goes to stderr, results to stdout."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from sobgnn.tables.columns.names import counted

if TYPE_CHECKING:
    from sobgnn.app.runs.result import Result
    from sobgnn.estimator.fit import FitProgress
    from sobgnn.tables import Table

# Seconds between lines about progress where stderr is no terminal.
INTERVAL = 10.0


class Training:
    """The estimator's progress hook, and what Ctrl-C does until the run is written.

    Before training has begun Ctrl-C interrupts at once, for there is nothing to keep; while training it asks for the
    best so far, and after it for nothing, since the run is being written. The second one interrupts for good.
    """

    def __init__(self, bar: Progress, shown: contextlib.ExitStack) -> None:
        self.pressed = False
        self.line = "Fitting"
        self._bar, self._shown = bar, shown
        self._begun = self._done = False
        self._tasks: dict[str, TaskID] = {}
        self._stage_began = 0.0

    def __call__(self, seen: FitProgress) -> bool:
        """Show where the fit stands; True ends training."""
        self._begun = self._begun or seen.train_loss is not None
        stage = seen.stage.capitalize()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=seen.total, score="")
            self._stage_began = time.monotonic()
        score = ""
        if seen.validation_accuracy is not None:
            score = f"held-out {seen.validation_accuracy:.1%}"
        elif seen.train_loss is not None:
            score = f"loss {seen.train_loss:.3f}"
        self._bar.update(self._tasks[stage], completed=seen.done, score=score)
        self.line = f"{stage} {seen.done:,} of {seen.total:,}" + (f", {score}" if score else "")
        spent = time.monotonic() - self._stage_began
        if seen.done and spent > 1:
            self.line += f", at most {spent / seen.done * (seen.total - seen.done):.0f} s left"
        return self.pressed

    def trained(self) -> bool:
        """Take the bar away; whether training was not stopped."""
        self._done = True
        self._shown.close()
        return not self.pressed

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        if self.pressed or not (self._begun or self._done):
            raise KeyboardInterrupt
        self.pressed = True
        what = (
            "The model is trained and is being written." if self._done else "Stopping; the best model so far is kept."
        )
        self._bar.console.print(f"{what} Press Ctrl-C again to abort.")


class _Console(Console):
    """A console whose reader may leave: further output is lost, and the work continues."""

    def on_broken_pipe(self) -> None:
        """Say nothing more; Python's own flush at the end must not fail either."""
        self.quiet = True
        with contextlib.suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, (sys.stderr if self.stderr else sys.stdout).fileno())
            os.close(nowhere)


class Terminal:
    """Everything that is printed."""

    def __init__(self) -> None:
        self.out = _Console(highlight=False, soft_wrap=True)
        self.err = _Console(stderr=True, highlight=False)

    @contextlib.contextmanager
    def working(self, what: str) -> Iterator[Callable[[str], None]]:
        """Something that takes a moment; what is yielded takes how far it is."""
        line = what
        with self.err.status(Text(what)) as status, self._lines(lambda: line):

            def said(how_far: str) -> None:
                nonlocal line
                line = f"{what}: {how_far}"
                status.update(Text(line))

            yield said

    @contextlib.contextmanager
    def training(self) -> Iterator[Training]:
        """A bar with the time left, until :meth:`Training.trained`; Ctrl-C is for :class:`Training` until the end."""
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TextColumn("{task.fields[score]}", markup=False),
            TimeRemainingColumn(),
            TextColumn("left at most"),
        )
        main = threading.current_thread() is threading.main_thread()  # signals belong to it
        before = signal.getsignal(signal.SIGINT)
        with contextlib.ExitStack() as shown:
            bar = Progress(*columns, console=self.err, transient=True, disable=not self.err.is_terminal)
            hook = Training(bar, shown)
            if main:
                signal.signal(signal.SIGINT, hook.interrupt)
            try:
                shown.enter_context(bar)
                shown.enter_context(self._lines(lambda: hook.line))
                yield hook
            finally:
                if main:
                    signal.signal(signal.SIGINT, before)

    @contextlib.contextmanager
    def _lines(self, said: Callable[[], str]) -> Iterator[None]:
        """Where stderr is no terminal, which would show a bar: what is being done, every few seconds."""
        if self.err.is_terminal:
            yield
            return
        ended, began = threading.Event(), time.monotonic()

        def report() -> None:
            while not ended.wait(INTERVAL):
                self.err.print(Text(f"{said()} ({time.monotonic() - began:.0f} s)"))

        thread = threading.Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def data(self, name: str, table: Table, given: Any = None) -> None:
        """What was read; without a run, which says it after how good it is, also what the rules made of it."""
        rows, features = table.X.shape
        known = int((table.codes != -1).sum())
        counts = {"row": rows, "feature": features, "class": len(table.classes), "label": known}
        line = f"{name}: " + ", ".join(counted(count, what) for what, count in counts.items())
        hidden = 0 if given is None else known - int((given != -1).sum())
        self.out.print(Text(line + (f", {hidden:,} of them hidden" if hidden else ""), style="bold"))
        if given is None:
            self.notes(table.notes)

    def notes(self, notes: Sequence[str]) -> None:
        """Sentences about what was done."""
        for note in notes:
            self.out.print(Text("  " + note, style="dim"))

    def summary(self, result: Result, folder: Path) -> None:
        """How good it is, what was not used, what to do next; then what was made of what, and where it is."""
        from sobgnn.app.runs import MODEL, PREDICTIONS, REPORT
        from sobgnn.app.runs.summary import details, facts, headlines, next_steps

        first, *others = [" ".join(filter(None, parts)) for parts in headlines(result)]
        self.out.print(Text("  " + first, style="bold red" if result.guessing else "bold"))
        for line in [*others, *details(result)]:
            self.said("  " + line)
        self.notes(result.notes)
        for step in next_steps(result):
            self.said(f"  Next: {step.text}")
        self.notes([f"{name:<10}{said}" for name, said in facts(result).items()])
        for file in (REPORT, PREDICTIONS, MODEL):
            self.said(f"  {folder / file}")

    def said(self, line: str) -> None:
        """One line, as it is."""
        self.out.print(Text(line))

    def wrote(self, path: Path, rows: int | None = None) -> None:
        """A file that was written."""
        self.said(f"{path}" + (f": {counted(rows, 'row')}" if rows is not None else ""))
