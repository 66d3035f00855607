"""Pictures as features: pixels, oriented gradients, and the vectors of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from sobgnn.tables.columns.base import NOT_SAVED, Choice, Column, Mask, evenly_spaced, text_values
from sobgnn.tables.columns.names import counted, shortened
from sobgnn.tables.meaning import ImageModel
from sobgnn.tables.model_folder import ModelRecord, check_same
from sobgnn.tables.pictures import is_file, leads_out, open_picture

SIDE, CELL, BINS = 32, 4, 9
# Number of values of the pixels, and with the gradients.
_PIXELS = 3 * SIDE * SIDE
_SEEN = _PIXELS + (SIDE // CELL) ** 2 * BINS
_MODEL_BATCH = 32


@dataclass(frozen=True)
class PictureColumn(Column):
    """Pictures named by a column: pixels at 32 × 32 and histograms of oriented gradients, and a model's vectors.

    All parts are centered. Pixels and gradients have the same total variance, and a model's vectors that of both
    together. A picture that cannot be read becomes the mean.
    """

    kind: ClassVar[str] = "pictures"
    model: ModelRecord | None  # what a vision model is recognized by
    center: npt.NDArray[np.float32]  # mean of the features, [width]
    factors: npt.NDArray[np.float32]  # what features are multiplied by, [width]
    # Folder that names are relative to, and the model; not there after loading, since a saved column names no path.
    root: str | None = field(default=None, kw_only=True, metadata=NOT_SAVED)
    opened: ImageModel | None = field(default=None, compare=False, repr=False, kw_only=True, metadata=NOT_SAVED)

    def __post_init__(self) -> None:
        """Raise ValueError unless the arrays fit together, and the model."""
        super().__post_init__()
        wide = len(self.center) == _SEEN if self.model is None else len(self.center) > _SEEN
        if self.center.ndim != 1 or self.center.shape != self.factors.shape or not wide:
            raise ValueError("shapes of the arrays")

    @classmethod
    def fit(cls, series: pl.Series, root: Path, model: ImageModel | None = None) -> Choice:
        """The fitted column, with features centered on these pictures."""
        plain = cls(series.name, None, np.zeros(_SEEN, np.float32), np.ones(_SEEN, np.float32), root=str(root))
        sample = evenly_spaced(series, 5000)
        paths = [plain.open_path(name) for name in text_values(sample).to_list()]
        features, broken = see(paths)
        count = int(broken.sum())
        if 2 * count > len(paths):
            wrong = sample[int(broken.argmax())]
            raise ValueError(f"{count} of {len(paths)} pictures cannot be read{plain.reason(wrong)}")
        features = features if model is None else np.hstack([features, _by_model(paths, model)])
        good = features[~broken]
        variance = good.var(axis=0, dtype=np.float64)
        factors = np.ones(features.shape[1])
        # A model's vectors have the variance of pixels and gradients together.
        for part, weight in ((slice(0, _PIXELS), 1), (slice(_PIXELS, _SEEN), 1), (slice(_SEEN, None), 2)):
            total = float(variance[part].sum())
            factors[part] = np.sqrt(weight / total) if total > 0 else 0.0
        first = str(sample[int(broken.argmax())])[:100]
        notes = [f"{counted(count, 'picture')} cannot be read ({first!r}), set to the mean"] if count else []
        center = good.mean(axis=0, dtype=np.float64).astype(np.float32)
        record = None if model is None else model.record
        made = cls(series.name, record, center, factors.astype(np.float32), root=str(root), opened=model)
        return Choice(made, "pictures", notes)

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]."""
        out = np.zeros((series.len(), len(self.center)), np.float32)
        paths = [self.open_path(name) for name in series.to_list()]
        features, broken = see(paths)
        if not broken.all():
            if (model := self.checked_model()) is not None:
                features = np.hstack([features, _by_model(paths, model)])
            out[~broken] = (features[~broken] - self.center) * self.factors
        return out

    def checked_model(self) -> ImageModel | None:
        """The model, if there is one; raises ValueError if it is another than the recorded one or not at hand."""
        option = "--image-model FOLDER (in Python, image_model=FOLDER)"
        return None if self.model is None else check_same(self.model, self.opened, option)

    def open_path(self, name: str | None) -> Path | None:
        """Path of the picture with that name; ``None`` for no name, and for a link that leads out of the folder."""
        return None if name is None or leads_out(self.root or "", self._path(name)) else self._path(name)

    def reason(self, name: Any) -> str:
        """The end of a sentence about pictures that cannot be read, such as that one: why, and the way out."""
        such = f", such as {shortened(name, 100)}"
        if isinstance(name, str) and leads_out(self.root or "", self._path(name.strip())):
            return f"{such}: it is a link to a file outside {self.root}, which is not opened. Copy the file there."
        if isinstance(name, str) and is_file(self._path(name.strip())):
            return f"{such}: the file is damaged or holds no picture. Replace it, or leave it out."
        return f"{such}. Names are relative to {self.root}."

    def feature_names(self) -> list[str]:
        """The column's name with the feature's number."""
        return [f"{self.name} [{i}]" for i in range(len(self.center))]

    def _path(self, name: str) -> Path:
        if self.root is None:
            raise ValueError("The folder of the pictures is not saved with an encoder. Pass it: image_folder=FOLDER.")
        return Path(self.root) / name


def see(paths: Sequence[Path | None]) -> tuple[npt.NDArray[np.float32], Mask]:
    """Pixels and oriented gradients [pictures, 3072 + 576], and which pictures cannot be read."""
    pixels, broken = _read(paths, SIDE)
    hog = np.empty((len(paths), _SEEN - _PIXELS), np.float32)
    for start in range(0, len(paths), 256):
        hog[start : start + 256] = oriented_gradients(pixels[start : start + 256].mean(axis=3))
    return np.concatenate([pixels.reshape(len(paths), -1), hog], axis=1), broken


def oriented_gradients(gray: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Histograms [B, cells * cells * 9] of the gradients' directions, without sign, in cells of 4 × 4 pixels.

    A pixel adds the gradient's size to the two nearest of 9 directions. Each cell is divided by the length of the
    histograms of the 3 × 3 cells around it, so that brightness and contrast do not matter.
    """
    count, side, _ = gray.shape
    cells = side // CELL
    dy, dx = np.gradient(gray, axis=1), np.gradient(gray, axis=2)
    size = np.hypot(dx, dy)
    angle = (np.arctan2(dy, dx) % np.pi) * (BINS / np.pi)
    low = np.floor(angle).astype(np.int64) % BINS
    share = angle - np.floor(angle)
    out = np.zeros((count, cells, cells, BINS), np.float32)
    place = np.arange(side) // CELL
    index = (np.arange(count)[:, None, None], place[None, :, None], place[None, None, :])
    np.add.at(out, (*index, low), size * (1 - share))
    np.add.at(out, (*index, (low + 1) % BINS), size * share)
    square = np.pad(np.square(out).sum(axis=3), ((0, 0), (1, 1), (1, 1)))
    around = sum(square[:, i : i + cells, j : j + cells] for i in range(3) for j in range(3))
    return np.asarray(out / np.sqrt(around + 1e-3)[..., None], dtype=np.float32).reshape(count, -1)


def _by_model(paths: Sequence[Path | None], model: ImageModel) -> npt.NDArray[np.float32]:
    """The model's vectors of pictures [pictures, width]; black for those that cannot be read."""
    starts = range(0, len(paths), _MODEL_BATCH)
    return np.concatenate([model.encode(_read(paths[at : at + _MODEL_BATCH], model.side)[0]) for at in starts])


def _read(paths: Sequence[Path | None], side: int) -> tuple[npt.NDArray[np.float32], Mask]:
    """RGB in [0, 1], [pictures, side, side, 3], and which pictures cannot be read: they are black."""
    from PIL.Image import Resampling

    pixels, broken = np.zeros((len(paths), side, side, 3), np.float32), np.ones(len(paths), np.bool_)
    for number, path in enumerate(paths):
        opened = open_picture(path, side)
        if opened is not None:
            pixels[number] = np.asarray(opened.resize((side, side), Resampling.BOX), np.float32) / 255
            broken[number] = False
    return pixels, broken
