"""Rows that a person should check, with their content and pictures; empty lists are left out."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sobgnn.app.runs.run import Fitted
from sobgnn.app.runs.source import picture_path, row_content
from sobgnn.tables.pictures import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

_SUGGESTED, _SUSPECTS, _MISTAKES = 20, 30, 30
_PICTURE = 96
_QUALITY = 70
# Sides of a picture on the sheet, in pixels, largest first; and the maximum bytes of a sheet, of the report's 3 MB.
_SIDES = (48, 32, 24, 16)
_MOST_BYTES = 1_500_000


def lists(fitted: Fitted, importance: Mapping[str, float], guessing: bool) -> dict[str, dict[str, Any]]:
    """Rows worth a label, given labels that look wrong, hidden labels that were predicted wrong; none if empty."""
    codes, confidence = fitted.table.codes, fitted.confidence.tolist()
    names = [str(name) for name in fitted.table.classes]
    best = [names[code] for code in fitted.predicted.tolist()]
    wrong = np.flatnonzero(fitted.hidden & (fitted.predicted != codes))
    wrong = wrong[np.argsort(-fitted.confidence[wrong], kind="stable")]
    worth = [(row, best[row], confidence[row]) for row in fitted.suggested(_SUGGESTED).tolist()]
    doubted = [
        (each.row, str(each.given), each.probability, str(each.predicted), each.predicted_probability)
        for each in ([] if guessing else fitted.suspects[:_SUSPECTS])
    ]
    mistaken = [(row, names[codes[row]], best[row], confidence[row]) for row in wrong[:_MISTAKES].tolist()]
    found: tuple[tuple[str, list[Any], int, tuple[str, ...]], ...] = (
        ("next", worth, len(worth), ("best guess", "probability")),
        ("suspects", doubted, len(fitted.suspects), ("given", "its probability", "predicted", "probability")),
        ("mistakes", mistaken, len(wrong), ("hidden label", "predicted", "probability")),
    )
    return {name: _list(fitted, heads, rows, importance, total) for name, rows, total, heads in found if rows}


def _list(
    fitted: Fitted, heads: Sequence[str], rows: Sequence[Any], importance: Mapping[str, float], total: int
) -> dict[str, Any]:
    """Rows with what was found, ``(row, *cells)``, their content and their pictures."""
    table = fitted.table
    lines: list[dict[str, Any]] = []
    for row, *own in rows:
        content = row_content(table, row, importance) if table.encoding.named else {}
        picture = row_picture(fitted, row, _PICTURE) if pictured(fitted) else None
        cells = [str(row), *([] if table.ids is None else [str(table.ids[row])]), *own]
        lines.append({"cells": cells, "content": content, "picture": None if picture is None else address(picture)})
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


def pictured(fitted: Fitted) -> bool:
    """Whether rows are pictures."""
    return bool(fitted.side) or fitted.table.encoding.pictures is not None


def row_picture(fitted: Fitted, row: int, side: int) -> Image | None:
    """The row's picture, at most ``side`` pixels wide and high; ``None`` if there is none that can be read."""
    from PIL import Image

    if fitted.side:  # the features are its gray values
        values = np.asarray(fitted.table.X[row], dtype=np.float64).reshape(fitted.side, fitted.side)
        gray = np.clip(255 * values / max(float(values.max()), 1e-12), 0, 255)
        return Image.fromarray(gray.astype(np.uint8))
    picture = open_picture(picture_path(fitted.table, row), side)
    if picture is not None:
        picture.thumbnail((side, side))
    return picture


def address(picture: Image) -> str:
    """The picture as a data: address."""
    kind, content = _encoded(picture)
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def sheet(pictures: Sequence[Image | None], most_bytes: int = _MOST_BYTES) -> dict[str, Any] | None:
    """All pictures side by side on one sheet, as large as ``most_bytes`` allow; they are made smaller in place.

    Returns:
        ``image``, a data: address; ``side``, width and height of each cell in pixels; ``columns``, cells in a row;
        ``missing``, numbers of the pictures that are ``None``. ``None`` if all are, or if even the smallest take too
        many bytes.
    """
    from PIL import Image

    known = [picture for picture in pictures if picture is not None]
    if not known:
        return None
    columns = math.ceil(math.sqrt(len(pictures)))
    widest = min(max(max(picture.size) for picture in known), _SIDES[0])
    for side in (widest, *(smaller for smaller in _SIDES if smaller < widest)):
        size = (columns * side, math.ceil(len(pictures) / columns) * side)
        whole = Image.new(known[0].mode, size, 128 if known[0].mode == "L" else (128, 128, 128))
        for number, small in enumerate(pictures):
            if small is None:
                continue
            small.thumbnail((side, side))
            left, top = (number % columns) * side, (number // columns) * side
            whole.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))
        if len(_encoded(whole)[1]) <= most_bytes:
            missing = [number for number, picture in enumerate(pictures) if picture is None]
            return {"image": address(whole), "side": side, "columns": columns, "missing": missing}
    return None


def _encoded(picture: Image) -> tuple[str, bytes]:
    """As JPEG, or as PNG if it is gray: such pictures are of few pixels, which JPEG would blur."""
    kind = "png" if picture.mode == "L" else "jpeg"
    file = io.BytesIO()
    picture.save(file, kind, quality=_QUALITY, optimize=True)
    return kind, file.getvalue()
