"""Small copies of pictures in the report itself: one beside a row, or all of the map's points on one sheet."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sobgnn.tables.pictures import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

_QUALITY = 70
# Sides of a picture on the sheet, in pixels, largest first; and the maximum bytes of a sheet, of the report's 3 MB.
_SIDES = (48, 32, 24, 16)
_MOST_BYTES = 1_500_000


def thumbnail(path: str | None, side: int) -> Image | None:
    """The picture, at most ``side`` pixels wide and high; ``None`` if it cannot be read."""
    picture = open_picture(path, side)
    if picture is not None:
        picture.thumbnail((side, side))
    return picture


def address(picture: Image) -> str:
    """The picture as a data: address."""
    return f"data:image/jpeg;base64,{base64.b64encode(_jpeg(picture)).decode()}"


def sheet(paths: Sequence[str | None], most_bytes: int = _MOST_BYTES) -> dict[str, Any] | None:
    """All pictures side by side on one sheet, as large as ``most_bytes`` allow.

    Returns:
        ``image``, a data: address; ``side``, width and height of each cell in pixels; ``columns``, cells in a row;
        ``missing``, numbers of the pictures that cannot be read. ``None`` if none can, or if even the smallest take too
        many bytes.
    """
    from PIL import Image

    largest = [thumbnail(path, _SIDES[0]) for path in paths]
    missing = [number for number, small in enumerate(largest) if small is None]
    if len(missing) == len(paths):
        return None
    columns = math.ceil(math.sqrt(len(paths)))
    widest = max(max(small.size) for small in largest if small is not None)
    for side in (widest, *(smaller for smaller in _SIDES if smaller < widest)):
        whole = Image.new("RGB", (columns * side, math.ceil(len(paths) / columns) * side), (128, 128, 128))
        for number, small in enumerate(largest):
            if small is None:
                continue
            small.thumbnail((side, side))
            left, top = (number % columns) * side, (number // columns) * side
            whole.paste(small, (left + (side - small.width) // 2, top + (side - small.height) // 2))
        if len(_jpeg(whole)) <= most_bytes:
            return {"image": address(whole), "side": side, "columns": columns, "missing": missing}
    return None


def _jpeg(picture: Image) -> bytes:
    held = io.BytesIO()
    picture.save(held, "JPEG", quality=_QUALITY)
    return held.getvalue()
