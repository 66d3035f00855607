"""How often predictions of new points agree with labels that their file has."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.app.runs.summary import interval_words, percent
from sobgnn.estimator.trust import wilson_interval
from sobgnn.tables.columns.names import listed_counts
from sobgnn.tables.labels import UNLABELED

# Up to 15 digits, which a float holds exactly: longer ones are names.
_INTEGER = r"-?(?:0|[1-9]\d{0,14})$"
_NUMBER = r"[+-]?(?:0|[1-9]\d{0,14})(?:\.\d{0,15})?$"


@dataclass
class Agreement:
    """Counts of rows whose file names a class of the model."""

    classes: Sequence[Any]  # of the model, text or whole numbers
    counted: int = 0  # such rows that are no copies of training points
    right: int = 0  # of these
    accepted: int = 0  # of these
    accepted_right: int = 0
    copies: int = 0  # such rows that equal a training point, whose label the model may have learned
    others: Counter[str] = field(default_factory=Counter)  # rows for each label that is no class of the model

    def add(
        self,
        labels: Sequence[str | None],
        predicted: npt.NDArray[Any],
        nearest: npt.NDArray[np.floating],
        accepted: npt.NDArray[np.bool_],
    ) -> None:
        """Count rows.

        Args:
            labels: Text of each row's label, or ``None`` if it has none, [M]. -1, unlabeled and the like are none too,
                unless they are classes.
            predicted: Predicted classes, [M].
            nearest: Distance to the nearest training point, [M].
            accepted: bool [M].
        """
        names = {str(value): value for value in self.classes}
        found = _classes_of({label for label in labels if label is not None}, names)
        for row, label in enumerate(labels):
            if label not in found:
                continue
            name = found[label]
            if name is None:
                self.others[label] += 1
            elif nearest[row] == 0:
                self.copies += 1
            else:
                right = bool(predicted[row] == names[name])
                self.counted += 1
                self.right += right
                self.accepted += bool(accepted[row])
                self.accepted_right += right and bool(accepted[row])

    def notes(self) -> list[str]:
        """Sentences about the counts; none if no row has a class of the model as its label."""
        said = []
        if self.counted:
            interval = interval_words(wilson_interval(self.right, self.counted))
            among = f"; among accepted rows, in {self.accepted_right:,} of {self.accepted:,}" if self.accepted else ""
            said.append(
                f"Predictions agree with the file's labels in {self.right:,} of {self.counted:,} rows "
                f"({percent(self.right / self.counted)}, {interval}){among}."
            )
        if self.copies:
            said.append(
                f"Rows with a label that equal a training point, whose label the model may have learned: "
                f"{self.copies:,}. They are not counted."
            )
        if said and self.others:
            named = listed_counts(self.others.most_common(), "row")
            said.append(f"Labels that are no class of the model, not counted: {named}.")
        return said


def _classes_of(labels: Collection[str], names: Collection[str]) -> dict[str, str | None]:
    """The class that each label means, ``None`` where it is none of ``names``; without labels that mean unlabeled.

    If all names are numbers, 1.50 means 1.5; otherwise only integers are compared as numbers, so that 03 and 3.0 stay
    names.
    """
    numeric = all(re.match(_NUMBER, name) for name in names)
    numbers = {float(name): name for name in names if re.match(_NUMBER if numeric else _INTEGER, name)}
    found: dict[str, str | None] = {}
    for label in labels:
        try:
            number = float(label)
        except ValueError:
            number = float("nan")
        name = label if label in names else numbers.get(number)
        if name is not None or not (number == -1 or label.lower() in UNLABELED):
            found[label] = name
    return found
