"""The model's process: fits, and sends back guesses, suggestions and the map. `python -m sobgnn.labeling.worker`."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from sobgnn.labeling.source import Source, check_unchanged, open_asked
from sobgnn.labeling.wire import Arrays, receive, send

SUGGESTED = 40
SUSPECTS = 50
TOP = 3
# With more rows than MANY, refits must keep up with the person: no search for a scale, and fewer steps.
MANY = 20_000
LARGE = {"scale": "range", "n_components": 64, "epochs": 60}


class Model:
    """What the process keeps between requests.

    Args:
        source: The points.
        settings: Parameters of the final fit.
    """

    def __init__(self, source: Source, settings: dict[str, Any]) -> None:
        from sobgnn.estimator.classifier import SobolevClassifier
        from sobgnn.estimator.features import FeatureMap
        from sobgnn.estimator.suggestion import two_step_walks
        from sobgnn.graphs.knn import knn_graph

        self.source = source
        self.settings = settings
        refits = {**settings, **(LARGE if source.rows > MANY else {})}
        self.classifier = SobolevClassifier(**{"random_state": 0, **refits, "warm_start": True})
        X = source.table.X
        self.points = FeatureMap.fit(X, scale="range", n_components=64, seed=0)(X)
        self.graph = source.table.graph
        if self.graph is None:
            self.graph = knn_graph(self.points, k=min(int(settings.get("k", 10)), source.rows - 1))
        self.walks = two_step_walks(self.graph)
        self._place: npt.NDArray[np.float32] | None = None
        self._drawing = threading.Lock()

    def map(self, learned: npt.NDArray[np.float32] | None = None) -> tuple[dict[str, Any], Arrays]:
        """Coordinates [N, 2] of the points: from their features, or from the rows that a fit has learned for them."""
        from sobgnn.runs.page.layout import plane_layout

        with self._drawing:
            place = plane_layout(self.points if learned is None else learned)
            if self._place is not None:  # mirrored, if that moves the points less
                place = place * np.where((place * self._place).sum(axis=0) < 0, -1, 1).astype(np.float32)
            self._place = place
        return {"what": "map", "learned": learned is not None}, {"place": place.astype("<f4")}

    def fit(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Fit the labels of a request, and return predictions for every point."""
        from sobgnn.estimator.outcome import shown_out_of_fold
        from sobgnn.estimator.suggestion import suggest_points

        rows, codes, skipped = arrays["rows"], arrays["codes"], arrays["skipped"]
        message: dict[str, Any] = {
            "what": "fitted",
            "knows": request["knows"],
            "labels": len(rows),
            "judged": 0,
            "accuracy": None,
        }
        result: Arrays = {}
        probabilities = None
        started = time.perf_counter()
        if len(np.unique(codes)) >= 2:
            classifier = self._fitted(rows, codes)
            probabilities = np.asarray(classifier.label_distributions_)
            order = np.argsort(-probabilities, axis=1, kind="stable")[:, :TOP]
            result["codes"] = classifier.classes_[order].astype("<i4")
            result["probabilities"] = np.take_along_axis(probabilities, order, axis=1).astype("<f4")
            accuracy = float(classifier.out_of_fold_accuracy_)
            message["accuracy"] = accuracy if np.isfinite(accuracy) else None
            result["suspects"] = np.array([found.row for found in classifier.suspects(SUSPECTS)], dtype=np.int64)
            held = shown_out_of_fold(classifier)
            judged = np.isfinite(held).all(axis=1)
            message["judged"] = int(judged.sum())
            result["judged"] = classifier.labelled_[judged]
            result["held_out"] = classifier.classes_[held[judged].argmax(axis=1)].astype("<i4")
        result["suggested"] = suggest_points(
            self.graph, probabilities, rows, SUGGESTED, exclude=skipped, walks=self.walks
        )
        message["seconds"] = round(time.perf_counter() - started, 2)
        return message, result

    def _fitted(self, rows: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> Any:
        y = np.full(self.source.rows, -1, dtype=np.int64)
        y[rows] = codes
        return self.classifier.fit(self.source.table.X, y, graph=self.source.table.graph)

    def finish(self, request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
        """Fit with the full settings, and write the run into the folder of the labels."""
        from sobgnn.estimator.classifier import SobolevClassifier
        from sobgnn.runs.folder import write_into
        from sobgnn.runs.run import Fitted

        check_unchanged(self.source)
        started = time.perf_counter()
        names: list[str] = request["classes"]
        codes = np.full(self.source.rows, -1, dtype=np.int64)
        codes[arrays["rows"]] = arrays["codes"]
        table = replace(self.source.table, codes=codes, classes=names)
        classifier = SobolevClassifier(**{"random_state": 0, **self.settings})
        classifier.fit(table.X, table.labels(codes), graph=table.graph)
        seconds = {"fitting": time.perf_counter() - started}
        result = write_into(Path(request["folder"]), Fitted(self.source.name, classifier, table, codes, seconds))
        answer = {"what": "finished", "folder": request["folder"], "knows": request["knows"]}
        return {**answer, "seconds": dict(result.seconds)}, {}


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until the other side ends; an error in a request is sent as its answer."""
    waiting: queue.Queue[tuple[dict[str, Any], Arrays]] = queue.Queue()

    def listen() -> None:
        while (message := receive(requests)) is not None:
            waiting.put(message)
        os._exit(0)  # the page's process has ended: a fit in progress is not needed

    def answer(message: dict[str, Any], arrays: Arrays | None = None) -> None:
        with sending:
            send(answers, message, arrays)

    def send_map(model: Model, learned: npt.NDArray[np.float32] | None = None) -> None:
        try:
            answer(*model.map(learned))
        except (Exception, MemoryError):
            traceback.print_exc()
            answer({"what": "map", "learned": learned is not None})  # the map stays as it is

    threading.Thread(target=listen, daemon=True).start()
    sending = threading.Lock()
    model: Model | None = None
    while True:
        request, arrays = waiting.get()
        try:
            if request["do"] == "open":
                model = Model(open_asked(request), request["settings"])
                answer({"what": "ready"})
                # In parallel with the first suggestions: the map of many points takes longer.
                threading.Thread(target=send_map, args=(model,), daemon=True).start()
            elif request["do"] == "layout" and model is not None:
                # In parallel with the next fit, which makes another array.
                learned = model.classifier.embedding_
                threading.Thread(target=send_map, args=(model, learned), daemon=True).start()
            elif model is not None:
                answer(*(model.fit if request["do"] == "fit" else model.finish)(request, arrays))
        except (Exception, MemoryError) as error:
            traceback.print_exc()
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            answer({"what": "failed", "during": request["do"], "reason": reason})


def main() -> None:
    """Communicate through stdin and stdout; what libraries print goes to stderr."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with contextlib.suppress(OSError):  # if memory runs out, this process is killed first, not the page's
        Path("/proc/self/oom_score_adj").write_text("1000")
    with contextlib.suppress(OSError, AttributeError):
        os.nice(5)
    serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    main()
