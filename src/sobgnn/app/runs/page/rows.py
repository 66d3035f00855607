"""Rows that a person should check, with their content and pictures; each list is ``None`` if there are none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sobgnn.app.runs.content import row_content
from sobgnn.app.runs.page.pictures import address, pictured, row_picture
from sobgnn.app.runs.run import Fitted

_SUGGESTED, _SUSPECTS, _MISTAKES = 20, 30, 30
_PICTURE = 96


def suggestions(fitted: Fitted, importance: Mapping[str, float]) -> dict[str, Any] | None:
    """Rows worth a label."""
    rows = fitted.suggested(_SUGGESTED).tolist()
    classes, predicted = fitted.table.classes, fitted.predicted
    cells = [(str(classes[predicted[row]]), float(fitted.confidence[row])) for row in rows]
    return _rows(fitted, rows, ("best guess", "probability"), cells, importance, len(rows))


def suspects(fitted: Fitted, importance: Mapping[str, float]) -> dict[str, Any] | None:
    """Given labels that look wrong."""
    found = fitted.suspects
    cells = [
        (str(each.given), each.probability, str(each.predicted), each.predicted_probability)
        for each in found[:_SUSPECTS]
    ]  # fmt: skip
    heads = ("given", "its probability", "predicted", "probability")
    return _rows(fitted, [each.row for each in found[:_SUSPECTS]], heads, cells, importance, len(found))


def mistakes(fitted: Fitted, importance: Mapping[str, float]) -> dict[str, Any] | None:
    """Hidden labels that were predicted wrong, most confident first."""
    classes, predicted, confidence, codes = (
        fitted.table.classes,
        fitted.predicted,
        fitted.confidence,
        fitted.table.codes,
    )
    wrong = np.flatnonzero(fitted.hidden & (predicted != codes))
    rows = wrong[np.argsort(-confidence[wrong], kind="stable")][:_MISTAKES].tolist()
    cells = [(str(classes[codes[row]]), str(classes[predicted[row]]), float(confidence[row])) for row in rows]
    return _rows(fitted, rows, ("hidden label", "predicted", "probability"), cells, importance, len(wrong))


def _rows(
    fitted: Fitted,
    rows: Sequence[int],
    heads: Sequence[str],
    cells: Sequence[Sequence[str | float]],
    importance: Mapping[str, float],
    total: int,
) -> dict[str, Any] | None:
    """Rows that a person should check, with what was found, their content and their pictures; ``None`` if none."""
    if not rows:
        return None
    table = fitted.table
    lines: list[dict[str, Any]] = []
    for row, own in zip(rows, cells, strict=True):
        named = [str(row), *([] if table.ids is None else [str(table.ids[row])])]
        content = row_content(table, row, importance) if table.encoding.named else {}
        picture = row_picture(fitted, row, _PICTURE) if pictured(fitted) else None
        image = None if picture is None else address(picture)
        lines.append({"cells": [*named, *own], "content": content, "picture": image})
    heads = ["row", *([] if table.ids is None else [table.encoding.id or "id"]), *heads]
    wide = any(line["content"] for line in lines)
    copied = [[*heads, "content"] if wide else heads]
    for line in lines:
        texts = [f"{cell:.2f}" if isinstance(cell, float) else cell for cell in line["cells"]]
        texts += ["; ".join(f"{name}: {text}" for name, text in line["content"].items())] if wide else []
        copied.append([" ".join(text.split()) for text in texts])
    return {
        "heads": heads,
        "lines": lines,
        "content": wide,
        "cards": any(line["picture"] for line in lines),
        "total": total,
        "tsv": "\n".join("\t".join(line) for line in copied),
    }
