"""The map's points in a form for the page: packed numbers, and a few words for each point."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.app import web
from sobgnn.app.runs.content import row_content, row_name, shortened
from sobgnn.app.runs.page.layout import plane_layout
from sobgnn.app.runs.page.pictures import pictured, row_picture, sheet
from sobgnn.app.runs.run import Fitted

MOST_POINTS = 100_000
# Number of points up to which each has a few words of its row, and its picture.
MOST_TOLD, _WORDS, _SIDE = 5_000, 70, 48


def map_points(fitted: Fitted, gray: bool) -> dict[str, Any]:
    """Data for the page's script, for up to ``MOST_POINTS`` points drawn at random.

    Positions are uint16 shares of the box, y upward; probabilities uint8 shares of 255; classes uint16, with 65535 for
    unknown.
    """
    table, count = fitted.table, len(fitted.given)
    rows = np.arange(count)
    if count > MOST_POINTS:
        rows = np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))
    place = plane_layout(fitted.classifier.embedding_[rows])
    known = table.codes[rows]
    result: dict[str, Any] = {
        "x": _packed(65535 * _share(place[:, 0]), "<u2"),
        "y": _packed(65535 * _share(place[:, 1]), "<u2"),
        "predicted": _packed(fitted.predicted[rows], "<u2"),
        "truth": _packed(np.where(known < 0, 65535, known), "<u2"),
        "confidence": _packed(255 * fitted.confidence[rows], "<u1"),
        "given": _packed(fitted.given[rows] != -1, "<u1"),
        "row": None if len(rows) == count else rows.tolist(),
        "names": None if table.ids is None else [row_name(table, int(row)) for row in rows],
        "classes": [str(name) for name in table.classes],
        "colors": [web.class_color(code) for code in range(len(table.classes))],
        "floor": round(1 / max(2, len(table.classes)), 3),
        "gray": gray,
    }
    if len(rows) <= MOST_TOLD and table.encoding.named:
        result["words"] = [_words(table, int(row)) for row in rows]
    if len(rows) <= MOST_TOLD and pictured(fitted):
        result["pictures"] = sheet([row_picture(fitted, int(row), _SIDE) for row in rows])
    return result


def _words(table: Any, row: int) -> str:
    return shortened("; ".join(f"{name}: {cell}" for name, cell in row_content(table, row).items()), _WORDS)


def _share(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Values as shares of their range."""
    extent = float(np.ptp(values)) if len(values) else 0.0
    if extent == 0:
        return np.full(len(values), 0.5)
    return np.asarray((values.astype(np.float64) - float(values.min())) / extent)


def _packed(values: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.rint(values).astype(dtype).tobytes()).decode()
