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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.app.labeling.progress import Fit, sample
from sobgnn.app.labeling.rows import Source, check_unchanged
from sobgnn.app.labeling.store import Store
from sobgnn.tables import Table

# A refit starts after this many new labels, or this many seconds after the last one.
EVERY = 5
PAUSE = 1.5
# Number of times the process may end without a fit in between; after that, only the person restarts it.
MOST_ENDS = 3
# The map is made from a fit, once, as soon as one has this many labels. With fewer, what a fit has learned separates
# classes less than the features do.
ENOUGH = 50
SUGGESTED = 40
SUSPECTS = 50
TOP = 3
# With more rows than MANY, refits must keep up with the person: no search for a scale, and fewer steps.
MANY = 20_000
LARGE = {"scale": "range", "n_components": 64, "epochs": 60}


@dataclass(frozen=True)
class Predictions:
    """What one fit predicts for all points.

    Args:
        suggested: Rows to label next, best first.
        codes: int32 [N, 3], the most probable classes of each row, best first; ``None`` before there are two classes.
        probabilities: float32 [N, 3], their probabilities.
        suspects: Labeled rows that may be wrong, worst first.
        held_out: The out-of-fold prediction for labeled rows.
        accuracy: Estimated accuracy, or ``None`` if no labels were held out.
        interval: Its 95 % interval.
        version: Number of the fit, from 1.
        knows: Number of the last change that the fit has seen.
        given: int32 [N], the labels that it has seen; -1: none.
    """

    suggested: list[int]
    codes: npt.NDArray[np.int32] | None = None
    probabilities: npt.NDArray[np.float32] | None = None
    suspects: list[int] = field(default_factory=list)
    held_out: dict[int, int] = field(default_factory=dict)
    accuracy: float | None = None
    interval: tuple[float, float] = (0.0, 1.0)
    version: int = 0
    knows: int = 0
    given: Any = None


class Trainer:
    """The estimator over the points of a table; lives in the model's process.

    Args:
        name: Name of the data.
        table: The points.
        settings: Parameters of the final fit.
    """

    def __init__(self, name: str, table: Table, settings: dict[str, Any]) -> None:
        from sobgnn.estimator.classifier import SobolevClassifier
        from sobgnn.estimator.features import FeatureMap
        from sobgnn.estimator.suggestion import two_step_walks
        from sobgnn.graphs.knn import knn_graph

        self.name, self.table, self.settings = name, table, settings
        count = table.X.shape[0]
        refits = {**settings, **(LARGE if count > MANY else {})}
        self.classifier = SobolevClassifier(**{"random_state": 0, **refits, "warm_start": True})
        self.points = FeatureMap.fit(table.X, scale="range", n_components=64, seed=0)(table.X)
        self.graph = table.graph
        if self.graph is None:
            self.graph = knn_graph(self.points, k=min(int(settings.get("k", 10)), count - 1))
        self.walks = two_step_walks(self.graph)

    def layout(self, learned: bool, before: npt.NDArray[np.float32] | None) -> npt.NDArray[np.float32]:
        """Coordinates [N, 2] of the points: from their features, or from the rows that the last fit has learned.

        Each axis points as it did before: mirrored, if that moves the points less.
        """
        from sobgnn.app.runs.page.map import plane_layout

        place = plane_layout(self.classifier.embedding_ if learned else self.points)
        return place if before is None else place * np.where((place * before).sum(axis=0) < 0, -1, 1).astype("f4")

    def fit(self, codes: npt.NDArray[np.int32], skipped: list[int]) -> Predictions:
        """Fit the labels [N], and predict every point."""
        from sobgnn.estimator.fitted import shown_out_of_fold
        from sobgnn.estimator.suggestion import suggest_points

        labeled = np.flatnonzero(codes >= 0)
        probabilities, found = None, Predictions([])
        if len(np.unique(codes[labeled])) >= 2:
            classifier = self.classifier.fit(self.table.X, codes.astype(np.int64), graph=self.table.graph)
            probabilities = np.asarray(classifier.label_distributions_)
            order = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
            held = shown_out_of_fold(classifier)
            judged = np.isfinite(held).all(axis=1)
            accuracy = float(classifier.out_of_fold_accuracy_)
            best = classifier.classes_[held[judged].argmax(axis=1)]
            found = Predictions(
                [],
                classifier.classes_[order].astype(np.int32),
                np.take_along_axis(probabilities, order, axis=1).astype(np.float32),
                [int(one.row) for one in classifier.suspects(SUSPECTS)],
                {int(row): int(code) for row, code in zip(classifier.labelled_[judged], best, strict=True)},
                accuracy if np.isfinite(accuracy) else None,
                (float(classifier.out_of_fold_interval_[0]), float(classifier.out_of_fold_interval_[1])),
            )
        rows = suggest_points(self.graph, probabilities, labeled, SUGGESTED, exclude=skipped, walks=self.walks)
        return replace(found, suggested=[int(row) for row in rows])

    def finish(self, codes: npt.NDArray[np.int32], classes: dict[int, str], folder: Path) -> None:
        """Fit with the full settings, and write the run into the folder of the labels."""
        from sobgnn.app.runs.folder import write_into
        from sobgnn.app.runs.run import Fitted
        from sobgnn.app.runs.source import picture_side
        from sobgnn.estimator.classifier import SobolevClassifier

        started = time.perf_counter()
        used = np.unique(codes[codes >= 0])
        given = np.where(codes < 0, -1, np.searchsorted(used, codes)).astype(np.int64)
        table = replace(self.table, codes=given, classes=[classes[int(code)] for code in used])
        classifier = SobolevClassifier(**{"random_state": 0, **self.settings})
        classifier.fit(table.X, table.labels(given), graph=table.graph)
        seconds = {"fitting": time.perf_counter() - started}
        side = picture_side(self.name, table)
        write_into(folder, Fitted(self.name, classifier, table, given, seconds, side=side))


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
        self.predictions: Predictions | None = None
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
        self._asked, self._asked_labels, self._changed = -1, 0, 0.0
        self._ends = 0
        self._wanted = {"finish": False, "layout": False}
        self._run_failed = False  # whether the problem is one of the run, which stays until labels change
        self._mapped = 0  # the fit that the map was made from
        self._map_tried = self.maps > 0
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
            self._ends, self._asked, self._changed = 0, -1, 0.0
            self._wake.notify_all()

    def layout(self) -> None:
        """Request a map made from the newest fit."""
        self._want("layout")

    def finish(self) -> None:
        """Request the final fit and the run folder; ``finished`` or ``problem`` is set when it is done."""
        self.finished, self.problem, self._run_failed, self._ends = None, "", False, 0
        self._want("finish")

    def wait_finished(self, seconds: float) -> bool:
        """Wait until the run is written; False if it failed or took longer."""
        with self._wake:
            self._wake.wait_for(lambda: not self._wanted["finish"], seconds)
            return self.finished is not None

    def status(self) -> dict[str, Any]:
        """What the page shows about the model."""
        found = self.predictions
        known = 0 if found is None else int(np.count_nonzero((found.given == self.store.codes) & (found.given >= 0)))
        labels = 0 if found is None else int(np.count_nonzero(found.given >= 0))
        guessing = found is not None and found.codes is not None
        return {
            "busy": "finish" if self._wanted["finish"] else self._busy,
            "problem": self.problem,
            "stopped": self._ends >= MOST_ENDS,
            "version": 0 if found is None else found.version,
            "knows": 0 if found is None else found.knows,
            "labels": labels,
            "known": known,
            "dated": labels > self.store.labels,
            "starting": found is None and not self.problem,
            "guessing": guessing,
            "map": self.maps,
            "layout": found is not None and guessing and found.version > self._mapped and not self._wanted["layout"],
            "finished": self.finished,
        }

    # ------------------------------------------------------------------------------------------ the thread

    def _want(self, what: str) -> None:
        with self._wake:
            self._wanted[what] = True
            self._wake.notify_all()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._closing and (job := self._due()) is None:
                    self._wake.wait(0.25)
                if self._closing:
                    return
            try:
                job()  # type: ignore[misc]
                self._wanted["finish"] &= job != self._finish
            except BrokenProcessPool:
                self._pool, self._process, self._asked = None, 0, -1
                again = "It is restarting." if self._ends + 1 < MOST_ENDS else "Start it again when you are ready."
                self._fail(f"The model's process ended, perhaps because memory ran out. Your labels are safe. {again}")
                self._ends += 1
            except (Exception, MemoryError) as error:  # of the process, or of this one: neither ends the thread
                reason = " ".join(str(error).split())[:300] or type(error).__name__
                self._fail(f"The model could not {self._busy or 'go on'}: {reason} Your labels are safe.")
            self._busy = ""
            with self._wake:
                self._wake.notify_all()
            self.on_change()

    def _due(self) -> Callable[[], None] | None:
        """What to do next; the lock is held."""
        if self._wanted["finish"]:
            return self._finish
        if self._ends >= MOST_ENDS:
            return None
        new = abs(self.store.labels - self._asked_labels)
        paused = time.monotonic() - self._changed >= PAUSE
        if self._asked < 0 or (self._asked != self.store.saved and (new >= EVERY or paused)):
            return self._fit
        return self._lay_out if self._wanted["layout"] or not self._map_tried else None

    def _fail(self, problem: str) -> None:
        self.problem, self._run_failed = problem, self._wanted["finish"]
        self._wanted = dict.fromkeys(self._wanted, False)

    def _call(self, busy: str, method: str, *arguments: Any) -> Any:
        if self._busy != busy:
            self._busy = busy
            self.on_change()
        if self._pool is None:
            # Spawned, not forked: this process has threads.
            self._pool = ProcessPoolExecutor(
                1, multiprocessing.get_context("spawn"), initializer=_begin, initargs=self._begin
            )
            self._process = self._pool.submit(os.getpid).result()
            if self._closing:
                self._kill()
        return self._pool.submit(_call, method, *arguments).result()

    def _fit(self) -> None:
        with self.store.guard:
            saved, codes, chosen = self.store.saved, self.store.codes.copy(), self.store.chosen()
            skipped = sorted(self.store.skipped)
        labels = int(np.count_nonzero(codes >= 0))
        self._asked, self._asked_labels = saved, labels
        found = self._call("learn", "fit", codes, skipped)
        if found.codes is not None:  # recorded before the page is told
            predicted = sample(found.codes[:, 0])
            self.store.add_fit(Fit(labels, found.accuracy, found.interval, predicted, saved, chosen))
            if labels >= ENOUGH and not self._learned:
                self._wanted["layout"] = True
        version = self.predictions.version + 1 if self.predictions else 1
        self.predictions = replace(found, version=version, knows=saved, given=codes)
        self._ends = 0
        if not self._run_failed:
            self.problem = ""
        try:
            self.on_fit()
        except (OSError, ValueError) as error:  # a full disk is no failure of the model
            self.problem = f"labels.csv could not be written: {error} Your labels are safe."

    def _lay_out(self) -> None:
        found = self.predictions if self._wanted["layout"] else None
        learned = found is not None and found.codes is not None
        self._map_tried = True  # one that fails is not tried again by itself
        self.place = self._call("lay out the map", "layout", learned, self.place)
        self._learned |= learned
        self._mapped = max(found.version if found is not None and learned else 0, self._mapped)
        self._wanted["layout"] = False
        self.store.add_map(self.place, self._learned)
        self.maps += 1

    def _finish(self) -> None:
        with self.store.guard:
            saved, codes, classes = self.store.saved, self.store.codes.copy(), dict(self.store.classes)
        if len(np.unique(codes[codes >= 0])) < 2:
            self._fail("A run needs labels of at least two classes. Label some more, then finish.")
            return
        self._busy = "finish"
        check_unchanged(self._source)
        self._call("finish", "finish", codes, classes, self.store.folder)
        self.finished, self.problem = saved, ""

    def _kill(self) -> None:
        if self._process:
            with contextlib.suppress(OSError):
                os.kill(self._process, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)


# ---------------------------------------------------------------------------------------------- the process

# What the process works with, set when it begins.
_trainer: Any = None


def _begin(trainer: Callable[..., Any], name: str, table: Table, settings: dict[str, Any], log: Path) -> None:
    global _trainer
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the page; this process ends with it
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with open(log, "ab") as file:  # what libraries print
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed first, not the page's
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)
    _trainer = trainer, name, table, settings


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)  # a fit in progress is not needed


def _call(method: str, *arguments: Any) -> Any:
    global _trainer
    if isinstance(_trainer, tuple):  # made at the first call, whose answer tells why it fails
        make, *given = _trainer
        _trainer = make(*given)
    return getattr(_trainer, method)(*arguments)
