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
from sobgnn.app.runs import CHECKS
from sobgnn.app.runs.run import Fitted
from sobgnn.estimator.fitted import shown_out_of_fold
from sobgnn.estimator.trust import Acceptance, find_acceptance

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

    def of_run(self, fitted: Fitted) -> dict[str, list[str]]:
        """The column ``decision`` for the rows of a run: given for a label that was given and does not look wrong."""
        if self.acceptance is None:
            return {}
        decision = np.where(self._accepted(fitted.confidence, fitted.doubtful), "accept", "review").astype(object)
        decision[fitted.given != -1] = "given"
        decision[[each.row for each in fitted.suspects]] = "review"
        return {"decision": decision.tolist()}

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
