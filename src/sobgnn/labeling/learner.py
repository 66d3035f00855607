"""The page's side of the model's process: when to fit, what came back, and what to do when the process ends."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.labeling.history import History
from sobgnn.labeling.places import Places
from sobgnn.labeling.progress import Measurement, count_chosen
from sobgnn.labeling.session import Session
from sobgnn.labeling.state import Label
from sobgnn.labeling.wire import Arrays, receive, send

WORKER = [sys.executable, "-m", "sobgnn.labeling.worker"]
# A refit starts after this many new labels, or this many seconds after the last one.
EVERY = 5
PAUSE = 1.5
# Number of times the process may end without a fit in between; after that, only the person restarts it.
MOST_ENDS = 3
# Number of rows whose predictions are compared from fit to fit.
SAMPLE = 5000


@dataclass(frozen=True)
class Guesses:
    """What one fit predicts for all points.

    Args:
        version: Number of the fit, from 1.
        knows: Number of the journal's last event that the fit has seen.
        labels: Number of labels it has seen.
        codes: int32 [N, 3], the most probable classes of each row, best first; ``None`` before there are two classes.
        probabilities: float32 [N, 3], their probabilities.
        suggested: Rows to label next, best first.
        suspects: Labeled rows that may be wrong, worst first.
        held_out: The out-of-fold prediction for labeled rows.
        given: The class of each row whose label it has seen.
    """

    version: int
    knows: int
    labels: int
    codes: npt.NDArray[np.int32] | None
    probabilities: npt.NDArray[np.float32] | None
    suggested: list[int]
    suspects: list[int]
    held_out: dict[int, int] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)


class Learner:
    """Keeps a model up to date with a session, in another process.

    Args:
        session: Where the labels are.
        opening: ``data``, ``label``, ``identity``, ``drop``, ``reading``, ``fingerprint`` and ``settings``, for the
            process to read the points.
        log: File for what the process prints.
        command: What to start instead of the model's process, for tests.
    """

    def __init__(self, session: Session, opening: dict[str, Any], log: Path, command: list[str] | None = None) -> None:
        self.session = session
        self.places = Places()
        self.guesses: Guesses | None = None
        self.history = History(session.folder)
        self.problem = ""
        self.finished: dict[str, Any] | None = None
        self.on_answer: Callable[[], None] = lambda: None
        self._opening = opening
        self._log = log
        self._command = command or WORKER
        self._wake = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._busy = ""
        self._asked = -1
        self._asked_labels: dict[int, Label] = {}
        self._changed = 0.0
        self._ends = 0
        self._finish_wanted = False
        self._ready = False
        self._closing = False
        self._sample: npt.NDArray[np.int64] | None = None
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)

    def start(self) -> None:
        """Start the process, and keep it fed."""
        self._thread.start()

    def close(self) -> None:
        """End the process."""
        with self._wake:
            self._closing = True
            self._wake.notify_all()
        self._kill()
        if self._thread.is_alive():
            self._thread.join(10)
        self.history.close()

    def changed(self) -> None:
        """Report that labels have changed."""
        with self._wake:
            self._changed = time.monotonic()
            self._wake.notify_all()

    def retry(self) -> None:
        """Restart the process after it ended too often."""
        with self._wake:
            self._ends = 0
            self._asked = -1
            self._changed = 0.0
            self._wake.notify_all()

    def layout(self) -> None:
        """Request a map made from the newest fit."""
        with self._wake:
            self.places.wanted = True
            self._wake.notify_all()

    def finish(self) -> None:
        """Request the final fit and the run folder; ``finished`` or ``problem`` is set when it is done."""
        with self._wake:
            self.finished = None
            self.problem = ""
            self._ends = 0
            self._finish_wanted = True
            self._wake.notify_all()

    def wait_finished(self, seconds: float) -> bool:
        """Wait until the run is written; False if it failed or took longer."""
        end = time.monotonic() + seconds
        with self._wake:
            while self.finished is None and not self.problem and time.monotonic() < end:
                self._wake.wait(0.2)
            return self.finished is not None

    def status(self) -> dict[str, Any]:
        """What the page shows about the model."""
        with self._wake:
            found = self.guesses
            running = self._process is not None and self._process.poll() is None
            return {
                "running": running,
                "busy": "finish" if self._finish_wanted else self._busy,
                "problem": self.problem,
                "stopped": self._ends >= MOST_ENDS,
                "version": found.version if found else 0,
                "knows": found.knows if found else 0,
                "labels": found.labels if found else 0,
                "starting": found is None and not self.problem,
                "guessing": found is not None and found.codes is not None,
                "map": self.places.number,
                "layout": self.places.outdated,
                "finished": self.finished,
            }

    # ------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._due():
                    self._wake.wait(0.25)
                if self._closing:
                    return
            if self._process is not None:
                self._ask()
                continue
            try:
                self._launch()
            except OSError as error:  # no memory for another process; the folder is gone
                with self._wake:
                    self._ends, self._finish_wanted = MOST_ENDS, False
                    self.problem = (
                        f"The model's process could not be started ({error}). You can go on labeling; it is started "
                        "again when you ask for it."
                    )
                    self._wake.notify_all()

    def _due(self) -> bool:
        """Whether there is something to send; the lock is held."""
        if self._busy or self._ends >= MOST_ENDS:
            return False
        if self._process is None or self._finish_wanted or self.places.due:
            return True
        if not self._ready or self._asked == self.session.saved:
            return False
        new = abs(len(self.session.state.labels) - len(self._asked_labels))
        return self._asked < 0 or new >= EVERY or time.monotonic() - self._changed >= PAUSE

    def _launch(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with open(self._log, "ab") as log:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,  # Ctrl-C is for the page; this process ends with the page, or on request
            )
        with self._wake:
            self._process, self._busy, self._asked, self._ready = process, "reading", -1, False
            self.places.restarted()
            if self._closing:
                process.kill()
        threading.Thread(target=self._listen, args=(process,), name="learner-answers", daemon=True).start()
        self._send({"do": "open", **self._opening})

    def _ask(self) -> None:
        with self._wake:
            layout = self.places.due and not self._finish_wanted
            if layout:
                self.places.requested()
        if layout:
            self._send({"do": "layout"})
            return
        saved, classes, labels, skipped = self.session.snapshot()
        rows = sorted(labels)
        arrays: Arrays = {
            "rows": np.array(rows, dtype=np.int64),
            "codes": np.array([labels[row].code for row in rows], dtype=np.int64),
            "skipped": np.array(sorted(skipped), dtype=np.int64),
        }
        if self._finish_wanted:
            used = sorted({int(code) for code in arrays["codes"]})
            if len(used) < 2:
                with self._wake:
                    self._finish_wanted = False
                    self.problem = "A run needs labels of at least two classes. Label some more, then finish."
                    self._wake.notify_all()
                return
            arrays["codes"] = np.searchsorted(used, arrays["codes"])
            request = {"do": "finish", "knows": saved, "classes": [classes[c] for c in used]}
            request["folder"] = str(self.session.folder)
            self._note("finish")
            self._send(request, arrays)
            return
        self._note("fit", saved, labels)
        self._send({"do": "fit", "knows": saved}, arrays)

    def _note(self, busy: str, asked: int | None = None, labels: dict[int, Label] | None = None) -> None:
        with self._wake:
            self._busy = busy
            if asked is not None and labels is not None:
                self._asked, self._asked_labels = asked, labels

    def _send(self, message: dict[str, Any], arrays: Arrays | None = None) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            # The process ended; the listener reports it. A pipe that the listener has already closed raises ValueError.
            with contextlib.suppress(OSError, ValueError):
                send(process.stdin, message, arrays)

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while (answer := receive(process.stdout)) is not None:
                with self._wake:
                    self._take(*answer)
                    self._wake.notify_all()
                try:
                    self.on_answer()
                except (OSError, ValueError) as error:  # a full disk must not look like the end of the process
                    with self._wake:
                        self.problem = f"labels.csv could not be written: {error} Your labels are safe."
        code = process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with self._wake:
            if self._process is process:
                self._process, self._busy, self._finish_wanted = None, "", False
                self._ends += 1
                why = "it was killed, perhaps because memory ran out" if code == -9 else f"exit code {code}"
                again = "It is restarting." if self._ends < MOST_ENDS else "Start it again when you are ready."
                self.problem = f"The model's process ended ({why}). Your labels are safe. {again}"
            self._wake.notify_all()

    def _take(self, message: dict[str, Any], arrays: Arrays) -> None:
        """Process one answer; the lock is held."""
        if message["what"] == "map":  # it may come at any time
            self.places.take(message["learned"], arrays.get("place"))
            return
        self._busy = ""
        if message["what"] == "failed":
            failed = message["during"]
            if failed == "open":  # a process without data is useless; the person may start another
                self._ends = MOST_ENDS
                if self._process is not None:
                    self._process.kill()
                self._process = None
                failed = "read the data"
            self._finish_wanted = False
            self.problem = f"The model could not {failed}: {message['reason']} Your labels are safe."
            return
        if message["what"] == "ready":
            self._ready = True
            return
        self.problem = ""  # it works again
        if message["what"] == "finished":
            self._finish_wanted = False
            self.finished = {"folder": message["folder"], "knows": message["knows"]}
        elif message["what"] == "fitted":
            self._ends = 0
            before = self.guesses
            codes = arrays.get("codes")
            self.guesses = Guesses(
                before.version + 1 if before else 1,
                message["knows"],
                message["labels"],
                codes,
                arrays.get("probabilities"),
                _numbers(arrays, "suggested"),
                _numbers(arrays, "suspects"),
                dict(zip(_numbers(arrays, "judged"), _numbers(arrays, "held_out"), strict=True)),
                {row: label.code for row, label in self._asked_labels.items()},
            )
            self.places.fitted(0 if codes is None else self.guesses.version, message["labels"])
            if codes is not None:
                self._measure(message, codes[:, 0])

    def _measure(self, message: dict[str, Any], first: npt.NDArray[np.int32]) -> None:
        """Add the fit to the history."""
        if self._sample is None:
            self._sample = np.random.default_rng(0).permutation(len(first))[:SAMPLE]
        accuracy, seconds, judged = message["accuracy"], message["seconds"], message["judged"]
        sampled, chosen = first[self._sample], count_chosen(self._asked_labels)
        self.history.add(Measurement(message["labels"], accuracy, seconds, sampled, judged, message["knows"], chosen))

    def _kill(self) -> None:
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()
            process.wait()


def _numbers(arrays: Arrays, name: str) -> list[int]:
    return [int(value) for value in arrays.get(name, ())]
