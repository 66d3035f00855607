"""A fitted estimator with the data it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.suggestion import suggest_points
from sobgnn.estimator.trust import Suspect
from sobgnn.tables import Encoding, Table


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
    def doubtful(self) -> npt.NDArray[np.bool_]:
        """Rows that are empty, or have a blank cell in a column without blanks in rows with a given label, [N]."""
        if self.table.frame is None:
            return np.zeros(len(self.given), dtype=bool)
        return self.encoding.gaps(self.encoding.features_of(self.table.frame))[1]

    @cached_property
    def suspects(self) -> list[Suspect]:
        """Given labels that look wrong, most suspicious first."""
        return list(self.classifier.suspects())

    def suggested(self, most: int) -> npt.NDArray[np.int64]:
        """Up to ``most`` rows whose labels would help most, best first; none if every row is labeled.

        Doubtful rows are left out, and pictures that cannot be read: a person could not label them. If all rows without
        a label are doubtful, those are suggested that are not empty.
        """
        classifier, free, frame = self.classifier, self.given == -1, self.table.frame
        unread = self.encoding.unread_pictures(self.table.X)
        left_out = self.doubtful | unread
        if frame is not None and not (free & ~left_out).any():
            left_out = self.encoding.empty(frame) | unread
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
        return np.asarray(self.own_codes[np.searchsorted(self.classifier.classes_, self.classifier.transduction_)])

    @cached_property
    def confidence(self) -> npt.NDArray[np.float64]:
        """The probability of each row's predicted class, [N]."""
        column = np.searchsorted(self.classifier.classes_, self.classifier.transduction_)
        return np.asarray(self.classifier.label_distributions_[np.arange(len(column)), column], dtype=np.float64)


def hide_labels(codes: npt.NDArray[np.int64], labels: float | None, seed: int) -> npt.NDArray[np.int64]:
    """Codes with all but a share (below 1) or a number per class (from 1) of the known labels set to -1.

    Each class keeps at least one label; a class with fewer than the requested number keeps all.
    """
    if labels is None:
        return codes
    if not labels > 0 or not np.isfinite(labels) or (labels >= 1 and labels != round(labels)):
        raise ValueError(
            f"--labels must be a share between 0 and 1 or a whole number per class, but got {labels:g}. "
            "Try --labels 0.1 or --labels 5."
        )
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
