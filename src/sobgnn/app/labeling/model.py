"""The model, in a process of its own: when to fit, what came back, and what to do when the process ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.app.labeling.progress import Fit, Predictions, sample
from sobgnn.app.labeling.rows import Source, check_unchanged
from sobgnn.app.labeling.store import Store
from sobgnn.app.labeling.trainer import Trainer, begin, call

# A refit starts after this many new labels, or this many seconds after the last one.
EVERY = 5
PAUSE = 1.5
# Number of times the process may end without a fit in between; after that, only the person restarts it.
MOST_ENDS = 3
# The map is made from a fit, once, as soon as one has this many labels. With fewer, what a fit has learned separates
# classes less than the features do.
ENOUGH = 50


class Model:
    """Keeps a trainer up to date with a store.

    Args:
        source: The points; the process gets them as they are here, and reads nothing.
        store: Where the labels are.
        settings: Parameters of the final fit.
        trainer: What the process makes of the source and the settings.

    Attributes:
        predictions: Those of the newest fit.
        place: float32 [N, 2], the map; ``None`` before the first.
        maps: Number of maps so far.
        problem: The last error, or "".
        finished: Number of the last change that the written run knows.
        on_fit: Called after each fit.
        on_change: Called after everything that the page shows.
    """

    def __init__(
        self, source: Source, store: Store, settings: dict[str, Any], trainer: Callable[..., Any] = Trainer
    ) -> None:
        self.store = store
        self.predictions = Predictions.none(store.rows)
        self.place: npt.NDArray[np.float32] | None
        self.place, self._learned = store.last_map() or (None, False)
        self.maps = int(self.place is not None)
        self.problem = ""
        self.finished: int | None = None
        self.on_fit: Callable[[], None] = lambda: None
        self.on_change: Callable[[], None] = lambda: None
        self._source = source
        self._begin = (trainer, source.name, source.table, settings, store.folder / "model.log")
        self._pool: ProcessPoolExecutor | None = None
        self._process = 0
        self._wake = threading.Condition()
        self._busy = ""
        self._asked, self._asked_labels, self._changed = -1, 0, 0.0  # of the last fit; and when labels changed
        self._ends = 0
        self._finishing = False
        self._run_failed = False  # whether the problem is one of the run, which stays until labels change
        self._map_wanted: bool | None = None if self.maps else False  # whether from a fit; None: not wanted
        self._mapped = 0  # the fit that the map was made from
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

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
            self._thread.join(60)  # a process that is just starting is ended when it has started

    def changed(self) -> None:
        """Report that labels have changed."""
        with self._wake:
            self._changed = time.monotonic()
            if self._run_failed:
                self._run_failed, self.problem = False, ""
            self._wake.notify_all()

    def retry(self) -> None:
        """Restart the process after it ended too often."""
        with self._wake:
            self._ends, self._asked = 0, -1
            self._wake.notify_all()

    def layout(self) -> None:
        """Request a map made from the newest fit."""
        with self._wake:
            self._map_wanted = True
            self._wake.notify_all()

    def finish(self) -> None:
        """Request the final fit and the run folder; ``finished`` or ``problem`` is set when it is done."""
        with self._wake:
            self.finished, self.problem, self._run_failed, self._ends = None, "", False, 0
            self._finishing = True
            self._wake.notify_all()

    def wait_finished(self, seconds: float) -> bool:
        """Wait until the run is written; False if it failed or took longer."""
        with self._wake:
            self._wake.wait_for(lambda: not self._finishing, seconds)
            return self.finished is not None

    def status(self) -> dict[str, Any]:
        """What the page shows about the model."""
        found = self.predictions
        given = found.given >= 0
        labels = int(np.count_nonzero(given))
        return {
            "busy": "finish" if self._finishing else self._busy,
            "problem": self.problem,
            "stopped": self._ends >= MOST_ENDS,
            "version": found.version,
            "knows": found.knows,
            "labels": labels,
            "known": int(np.count_nonzero(given & (found.given == self.store.codes))),
            "dated": labels > self.store.labels,
            "starting": not (found.version or self.problem),
            "guessing": found.guessing,
            "map": self.maps,
            "layout": found.guessing and found.version > self._mapped and self._busy != "lay out the map",
            "finished": self.finished,
        }

    # ------------------------------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and (job := self._due()) is None:
                    self._wake.wait(0.25)
                if self._closing:
                    return
            try:
                job()  # type: ignore[misc]
            except BrokenProcessPool:
                self._pool, self._process, self._asked = None, 0, -1
                self._ends += 1
                again = "It is restarting." if self._ends < MOST_ENDS else "Start it again when you are ready."
                self._fail(f"The model's process ended, perhaps because memory ran out. Your labels are safe. {again}")
            except (Exception, MemoryError) as error:  # of the process, or of this one: neither ends the thread
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                self._fail(f"The model could not {self._busy or 'go on'}: {reason} Your labels are safe.")
            self._busy = ""
            with self._wake:
                self._wake.notify_all()
            self.on_change()

    def _due(self) -> Callable[[], None] | None:
        """What to do next; the lock is held."""
        if self._finishing:
            return self._finish
        if self._ends >= MOST_ENDS:
            return None
        new = abs(self.store.labels - self._asked_labels)
        paused = time.monotonic() - self._changed >= PAUSE
        if self._asked < 0 or (self._asked != self.store.saved and (new >= EVERY or paused)):
            return self._fit
        return self._lay_out if self._map_wanted is not None else None

    def _fail(self, problem: str) -> None:
        self.problem, self._run_failed = problem, self._finishing
        self._finishing = False

    def _call(self, busy: str, method: str, *arguments: Any) -> Any:
        if self._busy != busy:
            self._busy = busy
            self.on_change()
        if self._pool is None:
            # Spawned, not forked: this process has threads.
            spawned = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, spawned, initializer=begin, initargs=self._begin)
            self._process = self._pool.submit(os.getpid).result()
            if self._closing:
                self._kill()
        return self._pool.submit(call, method, *arguments).result()

    def _fit(self) -> None:
        with self.store.guard:
            saved, codes, chosen = self.store.saved, self.store.codes.copy(), self.store.chosen()
            skipped = sorted(self.store.skipped)
        labels = int(np.count_nonzero(codes >= 0))
        self._asked, self._asked_labels = saved, labels
        found = self._call("learn", "fit", codes, skipped)
        if found.guessing:  # recorded before the page is told
            predicted = sample(found.codes[:, 0])
            self.store.add_fit(Fit(labels, found.accuracy, found.interval, predicted, saved, chosen))
            if labels >= ENOUGH and not self._learned:
                self._map_wanted = True
        self.predictions = replace(found, version=self.predictions.version + 1, knows=saved, given=codes)
        self._ends = 0
        if not self._run_failed:
            self.problem = ""
        try:
            self.on_fit()
        except (OSError, ValueError) as error:  # a full disk is no failure of the model
            self.problem = f"labels.csv could not be written: {error} Your labels are safe."

    def _lay_out(self) -> None:
        found, learned = self.predictions, bool(self._map_wanted and self.predictions.guessing)
        self._map_wanted = None  # one that fails is not tried again by itself
        self.place = self._call("lay out the map", "layout", learned, self.place)
        self.maps += 1
        if learned:
            self._mapped, self._learned = found.version, True
        self.store.add_map(self.place, self._learned)

    def _finish(self) -> None:
        with self.store.guard:
            saved, codes, classes = self.store.saved, self.store.codes.copy(), dict(self.store.classes)
        if len(np.unique(codes[codes >= 0])) < 2:
            self._fail("A run needs labels of at least two classes. Label some more, then finish.")
            return
        self._busy = "finish"
        check_unchanged(self._source)
        self._call("finish", "finish", codes, classes, self.store.folder)
        self.finished, self.problem, self._finishing = saved, "", False

    def _kill(self) -> None:
        if self._process:
            with contextlib.suppress(OSError):
                os.kill(self._process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
