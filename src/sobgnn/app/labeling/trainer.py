"""What lives in the model's process: the estimator over the points of a table."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.app.labeling.progress import TOP, Predictions
from sobgnn.tables import Table

SUGGESTED = 40
SUSPECTS = 50
# With more rows than MANY, refits must keep up with the person: no search for a scale, and fewer steps.
MANY = 20_000
LARGE = {"scale": "range", "n_components": 64, "epochs": 60}


class Trainer:
    """The estimator over the points of a table.

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
        probabilities, found = None, Predictions.none(len(codes))
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


# What the process works with, set when it begins.
_trainer: Any = None


def begin(make: Callable[..., Any], name: str, table: Table, settings: dict[str, Any], log: Path) -> None:
    """Begin the process."""
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
    _trainer = make, name, table, settings


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)  # a fit in progress is not needed


def call(method: str, *arguments: Any) -> Any:
    """Call a method of the trainer."""
    global _trainer
    if isinstance(_trainer, tuple):  # made at the first call, whose answer tells why it fails
        make, *given = _trainer
        _trainer = make(*given)
    return getattr(_trainer, method)(*arguments)
