"""The map's points in a form for the page: packed numbers, and a few words for each point."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.runs.content import picture_path, row_content, row_name
from sobgnn.runs.page.layout import plane_layout
from sobgnn.runs.page.pictures import sheet
from sobgnn.runs.run import Fitted

MOST_POINTS = 100_000
# Number of points up to which each has a few words of its row, and its picture.
MOST_TOLD, _WORDS = 5_000, 70


def map_points(fitted: Fitted) -> dict[str, Any]:
    """Data for the page's script, for up to ``MOST_POINTS`` points drawn at random.

    Positions are uint16 shares of the box, probabilities uint8 shares of 255, classes uint16 with 65535 for unknown.
    """
    count = len(fitted.given)
    rows = np.arange(count)
    if count > MOST_POINTS:
        rows = np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))
    place = plane_layout(fitted.classifier.embedding_[rows])
    table = fitted.table
    result: dict[str, Any] = {
        "x": _packed(_share(place[:, 0]), 65535, "<u2"),
        "y": _packed(1 - _share(place[:, 1]), 65535, "<u2"),
        "predicted": _packed(fitted.predicted[rows], 1, "<u2"),
        "true": _packed(np.where(table.codes[rows] < 0, 65535, table.codes[rows]), 1, "<u2"),
        "confidence": _packed(fitted.confidence[rows], 255, "<u1"),
        "given": _packed(fitted.given[rows] != -1, 1, "<u1"),
        "row": None if len(rows) == count else rows.tolist(),
        "names": None if table.ids is None else [row_name(table, int(row)) for row in rows],
        "classes": [str(name) for name in table.classes],
        "floor": round(1 / max(2, len(table.classes)), 3),
    }
    if len(rows) <= MOST_TOLD and table.encoding.named:
        result["words"] = [_words(table, int(row)) for row in rows]
    if len(rows) <= MOST_TOLD and table.encoding.pictures is not None:
        result["pictures"] = sheet([picture_path(table, int(row)) for row in rows])
    return result


def _words(table: Any, row: int) -> str:
    said = ""
    for name, cell in row_content(table, row).items():
        said += ("; " if said else "") + f"{name}: {cell}"
        if len(said) >= _WORDS:
            return said[: _WORDS - 1].rstrip() + "…"
    return said


def _share(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Values as shares of their range."""
    extent = float(np.ptp(values)) if len(values) else 0.0
    if extent == 0:
        return np.full(len(values), 0.5)
    return np.asarray((values.astype(np.float64) - float(values.min())) / extent)


def _packed(values: npt.NDArray[Any] | Sequence[Any], factor: float, dtype: str) -> str:
    return base64.b64encode(np.rint(np.asarray(values) * factor).astype(dtype).tobytes()).decode()
