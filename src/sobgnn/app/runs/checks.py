"""Checks of each prediction: accept or review, and whether a new point is far from all training points."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import check_inside, read_json, write_text
from sobgnn.app.runs.run import Fitted
from sobgnn.estimator.fitted import shown_out_of_fold
from sobgnn.estimator.trust import Acceptance, find_acceptance

FILE = "checks.json"
# A new point is far if its nearest training point is farther than this many times the 99 % quantile of the training
# points' own nearest-neighbor distances.
_FAR, _SHARE = 1.5, 0.99
# The share of accepted predictions to be right that users are advised to ask for.
USUAL = 0.95


@dataclass(frozen=True)
class Checks:
    """What is checked of each prediction.

    Attributes:
        acceptance: Which predictions are accepted; ``None``: not requested.
        far: Distance to the nearest training point above which a new point is far from all; ``None``: unknown.
    """

    acceptance: Acceptance | None = None
    far: float | None = None

    def columns(
        self,
        confidence: npt.NDArray[np.floating],
        nearest: npt.NDArray[np.floating] | None = None,
        given: npt.NDArray[np.bool_] | None = None,
        suspect: npt.NDArray[np.bool_] | None = None,
        doubtful: npt.NDArray[np.bool_] | None = None,
    ) -> dict[str, list[str]]:
        """Columns for predictions [M] of this confidence: ``decision`` and, for new points, ``far``.

        A decision is ``given`` for a label that was given, unless it looks wrong; else ``accept`` or ``review``. A
        prediction for a point that is far from all training points, or doubtful, is never accepted.

        Args:
            confidence: [M].
            nearest: Distance of each new point to the nearest training point, [M].
            given: bool [M], whether the label was given and not predicted.
            suspect: bool [M], whether it was given, but looks wrong.
            doubtful: bool [M], whether a point is empty, or has a cell that the model has not learned.
        """
        made: dict[str, list[str]] = {}
        distant = np.zeros(len(confidence), dtype=bool)
        if nearest is not None and self.far is not None:
            distant = np.asarray(nearest > self.far)
            made["far"] = np.where(distant, "far", "").tolist()
        if self.acceptance is not None:
            taken = self.acceptance.accepts(confidence) & ~distant
            taken = taken if doubtful is None else taken & ~doubtful
            decision = np.where(taken, "accept", "review").astype(object)
            if given is not None:
                decision[given] = "given"
            if suspect is not None:
                decision[suspect] = "review"
            made = {"decision": decision.tolist(), **made}
        return made

    def of_run(self, fitted: Fitted) -> dict[str, list[str]]:
        """:meth:`columns` for the rows that a run was fitted on."""
        if self.acceptance is None:
            return {}
        suspect = np.zeros(len(fitted.given), dtype=bool)
        suspect[[each.row for each in fitted.suspects]] = True
        return self.columns(fitted.confidence, given=fitted.given != -1, suspect=suspect, doubtful=fitted.doubtful)

    def write(self, folder: Path) -> None:
        """Write ``checks.json`` into a run folder."""
        accept = None if self.acceptance is None else asdict(self.acceptance)
        write_text(folder / FILE, json.dumps({"format": 1, "accept": accept, "far": self.far}, indent=1))

    @classmethod
    def read(cls, folder: Path) -> Checks:
        """Read what :meth:`write` wrote; without such a file, nothing is checked."""
        file = folder / FILE
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
    classifier = fitted.classifier
    shown = shown_out_of_fold(classifier)
    judged = np.isfinite(shown).all(axis=1)
    shown = shown[judged]
    right = shown.argmax(axis=1) == classifier.labelled_codes_[judged]
    free = fitted.confidence[fitted.given == -1]
    return find_acceptance(shown.max(axis=1, initial=0), right, target, free)
