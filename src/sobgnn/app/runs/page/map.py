"""The map of the points: where each is shown, what the page is told of it, and its picture."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.spatial import cKDTree

from sobgnn.app import web
from sobgnn.app.runs.run import Fitted
from sobgnn.app.runs.source import picture_path, row_contents, shortened
from sobgnn.tables.pictures import open_picture

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_POINTS = 100_000
# Number of points up to which each has a few words of its row, and its picture.
MOST_TOLD, _WORDS, _SIDE = 5_000, 70, 48
_NEIGHBORS = 10
_STRANGERS = 5
_DIMENSIONS = 8
# Sides of a picture on the sheet, in pixels, largest first; the maximum bytes of a sheet, of the report's 3 MB; JPEG's.
_SIDES = (48, 32, 24, 16)
_MOST_BYTES = 1_500_000
_QUALITY = 70


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
        "names": None if table.ids is None else [table.row_name(int(row)) for row in rows],
        "classes": [str(name) for name in table.classes],
        "colors": [web.class_color(code) for code in range(len(table.classes))],
        "floor": round(1 / max(2, len(table.classes)), 3),
        "gray": gray,
    }
    if len(rows) <= MOST_TOLD and table.encoding.named:
        contents = row_contents(table, rows.tolist())
        lines = ["; ".join(f"{name}: {cell}" for name, cell in content.items() if cell) for content in contents]
        result["words"] = [shortened(line, _WORDS) for line in lines]
    if len(rows) <= MOST_TOLD and pictured(fitted):
        result["pictures"] = sheet([row_picture(fitted, int(row), _SIDE) for row in rows])
    return result


def _share(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Values as shares of their range."""
    extent = float(np.ptp(values)) if len(values) else 0.0
    if extent == 0:
        return np.full(len(values), 0.5)
    return np.asarray((values.astype(np.float64) - float(values.min())) / extent)


def _packed(values: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.rint(values).astype(dtype).tobytes()).decode()


def plane_layout(points: npt.NDArray[Any], seed: int = 0) -> npt.NDArray[np.float32]:
    r"""Positions [N, 2] of points [N, d]: principal components, then steps that attract neighbors and repel others.

    At each step every point i is paired with one of its neighbors j and some random points r, and moves along the
    gradient of

    .. math:: \log \frac{1}{1 + \|p_i - p_j\|^2} + \sum_r \log \left(1 - \frac{1}{1 + \|p_i - p_r\|^2}\right)

    The cost is O(N) per step, with fewer steps from 20 000 points. The same seed gives the same map.
    """
    count = points.shape[0]
    reduced = principal_components(points, _DIMENSIONS)
    place = np.zeros((count, 2), dtype=np.float32)
    place[:, : min(2, reduced.shape[1])] = reduced[:, :2]
    generator = np.random.default_rng(seed)
    spread = float(np.abs(place).max())
    place = (8 / spread * place if spread > 0 else place) + generator.normal(0, 0.01, place.shape).astype(np.float32)
    if count <= _NEIGHBORS + 1:  # too few for neighbors to add anything to the components
        return place
    # In few dimensions a k-d tree finds near points quickly, and a map does not need the exact nearest.
    slack = 0 if count <= 20_000 else 2
    _, near = cKDTree(reduced).query(reduced, _NEIGHBORS + 1, eps=slack, workers=-1)
    near = near[:, 1:]
    steps = int(np.clip(8e6 / count, 100, 400))
    rows = np.arange(count)
    for step in range(steps):
        rate = np.float32(1 - step / steps)
        other = near[rows, generator.integers(0, _NEIGHBORS, count)]
        apart = place - place[other]
        pull = np.clip(apart * (2 / (1 + _square(apart)))[:, None], -4, 4)
        move = -pull
        for axis in (0, 1):  # the neighbor moves too
            move[:, axis] += np.bincount(other, weights=pull[:, axis], minlength=count)
        for _ in range(_STRANGERS):
            apart = place - place[generator.integers(0, count, count)]
            square = _square(apart)
            move += np.clip(apart * (2 / ((0.001 + square) * (1 + square)))[:, None], -4, 4)
        place += rate * move
    return principal_components(place, 2)  # rotated so that it is wider than high


def principal_components(points: npt.NDArray[Any], most: int) -> npt.NDArray[np.float32]:
    """The first ``most`` principal components [N, <= most], each with a sign that makes its largest entry positive."""
    centered = np.asarray(points, dtype=np.float64)
    centered = centered - centered.mean(axis=0)
    _, vectors = np.linalg.eigh(centered.T @ centered)
    basis = vectors[:, ::-1][:, :most]
    basis = basis * np.sign(basis[np.abs(basis).argmax(axis=0), np.arange(basis.shape[1])])
    components: npt.NDArray[np.float32] = (centered @ basis).astype(np.float32)
    return components


def _square(apart: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    square: npt.NDArray[np.float32] = apart[:, 0] ** 2 + apart[:, 1] ** 2
    return square


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
