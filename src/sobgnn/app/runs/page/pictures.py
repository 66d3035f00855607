"""Small copies of pictures in the report itself: one beside a row, or all of the map's points on one sheet."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sobgnn.app.runs.content import picture_path
from sobgnn.app.runs.run import Fitted
from sobgnn.tables.picture_files import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

_QUALITY = 70
# Sides of a picture on the sheet, in pixels, largest first; and the maximum bytes of a sheet, of the report's 3 MB.
_SIDES = (48, 32, 24, 16)
_MOST_BYTES = 1_500_000


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
