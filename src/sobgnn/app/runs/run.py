"""A fitted estimator with the data it was fitted on, and the checks of its predictions: accept, review, far."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import check_inside, read_json, write_text
from sobgnn.app.runs import CHECKS
from sobgnn.estimator.fitted import shown_out_of_fold
from sobgnn.estimator.suggestion import suggest_points
from sobgnn.estimator.trust import Acceptance, Suspect, find_acceptance
from sobgnn.tables import Encoding, Table

# A new point is far if its nearest training point is farther than this many times the 99 % quantile of the training
# points' own nearest-neighbor distances.
_FAR, _SHARE = 1.5, 0.99
# The share of accepted predictions to be right that users are advised to ask for.
USUAL = 0.95


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator with the data it was fitted on.

    Args:
        name: Name of the data.
        classifier: A fitted ``SobolevClassifier``.
        table: The points, with every label that is known.
        given: int64 [N], the codes that training saw; if ``table.codes`` has more, labels were hidden.
        seconds: Wall time of each stage.
        complete: False if training was stopped by the user.
        search: The result of ``TuningResult.to_json``, if the setting was searched.
        accept: Share of accepted predictions that should be right; ``None``: predictions are not marked.
        side: Width and height of the pictures whose gray values the features are; 0 if they are not.
    """

    name: str
    classifier: Any
    table: Table
    given: npt.NDArray[np.int64]
    seconds: dict[str, float] = field(default_factory=dict)
    complete: bool = True
    search: dict[str, Any] | None = None
    accept: float | None = None
    side: int = 0

    @property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """Rows whose label is known but was hidden from training, [N]."""
        return np.asarray((self.given == -1) & (self.table.codes != -1))

    @cached_property
    def encoding(self) -> Encoding:
        """The table's encoding; blank cells are gaps in columns without blanks in rows with a given label."""
        frame = self.table.frame
        return self.table.encoding if frame is None else self.table.encoding.judged_on(frame.filter(self.given != -1))

    @cached_property
    def empty(self) -> npt.NDArray[np.bool_]:
        """Rows that hold nothing to predict from: all cells are blank, or the picture cannot be read, [N]."""
        frame, unread = self.table.frame, self.encoding.unread_pictures(self.table.X)
        return unread if frame is None else unread | self.encoding.empty(frame)

    @cached_property
    def doubtful(self) -> npt.NDArray[np.bool_]:
        """Rows that are empty, or have a blank cell in a column without blanks in rows with a given label, [N]."""
        if self.table.frame is None:
            return self.empty
        return self.empty | self.encoding.gaps(self.encoding.features_of(self.table.frame))[1]

    @cached_property
    def suspects(self) -> list[Suspect]:
        """Given labels that look wrong, most suspicious first."""
        return list(self.classifier.suspects())

    def suggested(self, most: int) -> npt.NDArray[np.int64]:
        """Up to ``most`` rows whose labels would help most, best first; none if every row is labeled.

        Doubtful rows are left out. If all rows without a label are doubtful, those are suggested that are not empty.
        """
        classifier, free = self.classifier, self.given == -1
        left_out = self.doubtful if (free & ~self.doubtful).any() else self.empty
        count = min(most, int((free & ~left_out).sum()))
        if not count:
            return np.zeros(0, np.int64)
        return suggest_points(
            classifier.graph_,
            classifier.label_distributions_,
            classifier.labelled_,
            count,
            reached=classifier.component_labelled_,
            exclude=np.flatnonzero(free & left_out),
        )

    @cached_property
    def own_codes(self) -> npt.NDArray[np.int64]:
        """The table's code of each of the estimator's classes, [C]."""
        codes = {value: code for code, value in enumerate(self.table.classes)}
        return np.array([codes[value] for value in self.classifier.classes_.tolist()], dtype=np.int64)

    @cached_property
    def predicted(self) -> npt.NDArray[np.int64]:
        """The code of each row's predicted class, [N]."""
        return np.asarray(self.own_codes[self.classifier.label_distributions_.argmax(axis=1)])

    @cached_property
    def confidence(self) -> npt.NDArray[np.float64]:
        """The probability of each row's predicted class, [N]."""
        return np.asarray(self.classifier.label_distributions_.max(axis=1), dtype=np.float64)


def hide_labels(codes: npt.NDArray[np.int64], labels: float | None, seed: int) -> npt.NDArray[np.int64]:
    """Codes with all but a share (below 1) or a number per class (from 1) of the known labels set to -1.

    Each class keeps at least one label; a class with fewer than the requested number keeps all.
    """
    if labels is None:
        return codes
    generator = np.random.default_rng(seed)
    given = np.full_like(codes, -1)
    for code in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == code)
        if rows.size:
            keep = int(labels) if labels >= 1 else max(1, round(labels * rows.size))
            given[generator.permutation(rows)[:keep]] = code
    if labels >= 1 and bool((given == codes).all()):
        raise ValueError(f"--labels {labels:g} would hide nothing: no class has more labels.")
    return given


@dataclass(frozen=True)
class Checks:
    """What is checked of each prediction.

    Attributes:
        acceptance: Which predictions are accepted; ``None``: not requested.
        far: Distance to the nearest training point above which a new point is far from all; ``None``: unknown.
    """

    acceptance: Acceptance | None = None
    far: float | None = None

    def of_run(self, fitted: Fitted) -> dict[str, list[str]]:
        """Columns for the rows of a run: ``decision``, and ``far`` if there are rows that hold nothing.

        The decision is given for a label that was given and does not look wrong.
        """
        made: dict[str, list[str]] = {}
        if self.acceptance is not None:
            decision = np.where(self._accepted(fitted.confidence, fitted.doubtful), "accept", "review").astype(object)
            decision[fitted.given != -1] = "given"
            decision[[each.row for each in fitted.suspects]] = "review"
            made["decision"] = decision.tolist()
        if fitted.empty.any():
            made["far"] = np.where(fitted.empty, "far", "").tolist()
        return made

    def of_new(
        self,
        confidence: npt.NDArray[np.floating],
        nearest: npt.NDArray[np.floating],
        doubtful: npt.NDArray[np.bool_] | None = None,
    ) -> dict[str, list[str]]:
        """Columns for predictions of new points: ``decision``, accept or review, and ``far``.

        A prediction for a point that is far from all training points, or doubtful, is never accepted.

        Args:
            confidence: [M].
            nearest: Distance of each point to the nearest training point, [M].
            doubtful: bool [M], whether a point is empty, or has a cell that the model has not learned.
        """
        distant = np.zeros(len(confidence), dtype=bool) if self.far is None else np.asarray(nearest > self.far)
        made: dict[str, list[str]] = {}
        if self.acceptance is not None:
            barred = distant if doubtful is None else distant | doubtful
            made["decision"] = np.where(self._accepted(confidence, barred), "accept", "review").tolist()
        if self.far is not None:
            made["far"] = np.where(distant, "far", "").tolist()
        return made

    def _accepted(self, confidence: npt.NDArray[np.floating], barred: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        assert self.acceptance is not None
        return self.acceptance.accepts(confidence) & ~barred

    def write(self, folder: Path) -> None:
        """Write ``checks.json`` into a run folder."""
        accept = None if self.acceptance is None else asdict(self.acceptance)
        write_text(folder / CHECKS, json.dumps({"format": 1, "accept": accept, "far": self.far}, indent=1))

    @classmethod
    def read(cls, folder: Path) -> Checks:
        """Read what :meth:`write` wrote; without such a file, nothing is checked."""
        file = folder / CHECKS
        if not os.path.lexists(file):
            return cls()
        check_inside(file, folder)
        try:
            content = read_json(file)
            acceptance = None if content["accept"] is None else Acceptance(**content["accept"])
            far = None if content["far"] is None else float(content["far"])
            numbers = [acceptance.target, acceptance.threshold or 0.0] if acceptance is not None else []
            if not all(math.isfinite(float(value)) for value in [*numbers, far or 0.0]):
                raise ValueError("a number is not finite")
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            raise ValueError(f"{file} is damaged. Fit the run again.") from None
        return cls(acceptance, far)


def checks_of(fitted: Fitted) -> Checks:
    """The checks of a run: acceptance, if the run requests it, and the distance above which new points are far."""
    acceptance = None if fitted.accept is None else find_threshold(fitted, fitted.accept)
    spacing = fitted.classifier.predictor_.spacing()
    far = None if spacing is None else _FAR * float(np.quantile(spacing, _SHARE))
    return Checks(acceptance, far if far else None)


def find_threshold(fitted: Fitted, target: float) -> Acceptance:
    """Which predictions of a run may be accepted so that a share ``target`` of them is right."""
    shown = shown_out_of_fold(fitted.classifier)
    judged = np.isfinite(shown).all(axis=1)
    right = shown[judged].argmax(axis=1) == fitted.classifier.labelled_codes_[judged]
    return find_acceptance(shown[judged].max(axis=1, initial=0), right, target, fitted.confidence[fitted.given == -1])
