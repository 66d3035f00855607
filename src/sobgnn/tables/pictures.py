"""Pictures: folders of them, columns that name them, and features of their content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn._system.files import is_inside
from sobgnn.tables.columns.base import Arrays, Column, is_text, text_values
from sobgnn.tables.columns.names import listed, listed_counts, shortened
from sobgnn.tables.meaning import ImageModel, ModelRecord, check_same

if TYPE_CHECKING:
    import polars as pl
    from PIL.Image import Image

SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# What these files may hold, whatever their name says: Pillow would start Ghostscript for an EPS.
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
# Picture formats that are not read; other files are ignored silently.
UNREAD = (
    ".heic", ".heif", ".avif", ".svg", ".jxl", ".jp2", ".psd", ".raw", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".ico",
    ".eps", ".xcf",
)  # fmt: skip
UNLABELED = ("unlabelled", "unlabeled", "unknown", "unsorted")
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

    Args:
        name: The column.
        root: Folder that names are relative to; ``None`` after loading, since a saved column names no path.
        model: What a vision model is recognized by, or ``None``.
        center: Mean of the features, [width].
        factors: What features are multiplied by, [width].
    """

    kind: ClassVar[str] = "pictures"
    name: str
    root: str | None
    model: ModelRecord | None
    center: npt.NDArray[np.float32]
    factors: npt.NDArray[np.float32]
    _opened: ImageModel | None = field(default=None, compare=False, repr=False, kw_only=True)

    @classmethod
    def fit(cls, series: pl.Series, root: Path, model: ImageModel | None = None) -> tuple[PictureColumn, list[str]]:
        """Fit the column, with features centered on these pictures; also returns what users may not expect."""
        empty = np.zeros(0, np.float32)
        bare = cls(series.name, str(root), None if model is None else model.record, empty, empty, _opened=model)
        sample = series[np.linspace(0, series.len() - 1, min(series.len(), 5000)).astype(np.int64)]
        features, broken = bare._features(text_values(sample).to_list())
        good = features[~broken]
        if 2 * len(good) < len(features):
            wrong = sample[int(np.flatnonzero(broken)[0])]
            raise ValueError(f"{int(broken.sum())} of {len(features)} pictures cannot be read{bare.reason(wrong)}")
        variance = good.var(axis=0, dtype=np.float64)
        factors = np.ones(features.shape[1])
        # A model's vectors have the variance of pixels and gradients together.
        for part, weight in ((slice(0, _PIXELS), 1), (slice(_PIXELS, _SEEN), 1), (slice(_SEEN, None), 2)):
            total = float(variance[part].sum())
            factors[part] = np.sqrt(weight / total) if total > 0 else 0.0
        said = []
        if broken.any():
            first = str(sample[int(np.flatnonzero(broken)[0])])[:100]
            number = int(broken.sum())
            said.append(f"{number:,} picture{'s' if number > 1 else ''} cannot be read ({first!r}), set to the mean")
        center = good.mean(axis=0, dtype=np.float64)
        return replace(bare, center=center.astype(np.float32), factors=factors.astype(np.float32)), said

    def encode(self, series: pl.Series) -> npt.NDArray[np.float32]:
        """Features float32 [rows, width]."""
        out = np.zeros((series.len(), len(self.center)), np.float32)
        if not series.len():
            return out
        features, broken = self._features(text_values(series).to_list())
        out[~broken] = (features[~broken] - self.center) * self.factors
        return out

    def with_model(self, model: ImageModel | None) -> PictureColumn:
        """The same column with its model; raises ValueError if it is another one or none."""
        if self.model is None:
            return self
        check_same(self.model, model, "--image-model FOLDER (in Python, image_model=FOLDER)")
        return replace(self, _opened=model)

    @property
    def opened(self) -> ImageModel | None:
        """The model, if there is one."""
        return self._opened

    def path(self, name: str) -> Path:
        """Path of the picture with that name."""
        if self.root is None:
            raise ValueError("The folder of the pictures is not saved with an encoder. Pass it: image_folder=FOLDER.")
        return Path(self.root) / name

    def open_path(self, name: str | None) -> Path | None:
        """Path of the picture with that name; ``None`` for no name, and for a link that leads out of the folder."""
        return None if name is None or leads_out(self.root or "", self.path(name)) else self.path(name)

    def reason(self, name: Any) -> str:
        """The end of a sentence about pictures that cannot be read, such as that one: why, and the way out."""
        such = f", such as {shortened(name, 100)}"
        if isinstance(name, str) and leads_out(self.root or "", self.path(name.strip())):
            return f"{such}: it is a link to a file outside {self.root}, which is not opened. Copy the file there."
        if isinstance(name, str) and _is_file(self.path(name.strip())):
            return f"{such}: the file is damaged or holds no picture. Replace it, or leave it out."
        return f"{such}. Names are relative to {self.root}."

    def _features(self, names: Sequence[str | None]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        paths = [self.open_path(name) for name in names]
        seen, broken = see(paths)
        if self.model is None:
            return seen, broken
        if broken.all():  # also without the model
            return np.zeros((len(paths), max(len(self.center), _SEEN)), np.float32), broken
        if self._opened is None:
            self.with_model(None)  # raises, and says what is missing
        assert self._opened is not None
        return np.hstack([seen, _by_model(paths, self._opened)]), broken

    def feature_names(self) -> list[str]:
        """The column's name with the feature's number."""
        return [f"{self.name} [{i}]" for i in range(len(self.center))]

    def to_json(self) -> dict[str, Any]:
        """Plain values: neither the folder nor the model's."""
        return {"name": self.name, "model": None if self.model is None else self.model.to_json()}

    def arrays(self) -> Arrays:
        """Mean and factors."""
        return {"center": self.center, "factors": self.factors}

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> PictureColumn:
        """Rebuild a column from :meth:`to_json` and :meth:`arrays`, without its folder and its model."""
        center, factors = (np.ascontiguousarray(arrays[key], dtype=np.float32) for key in ("center", "factors"))
        model = None if content["model"] is None else ModelRecord.restore(content["model"])
        wide = len(center) == _SEEN if model is None else len(center) > _SEEN
        if center.ndim != 1 or center.shape != factors.shape or not wide:
            raise ValueError("shapes of the arrays")
        return cls(str(content["name"]), None, model, center, factors)


def see(paths: Sequence[Path | None]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    """Pixels and oriented gradients [pictures, 3072 + 576], and which pictures cannot be read."""
    cells = SIDE // CELL
    pixels = np.zeros((len(paths), SIDE, SIDE, 3), np.float32)
    broken = np.zeros(len(paths), np.bool_)
    for number, path in enumerate(paths):
        held = _read(path, SIDE)
        broken[number] = held is None
        if held is not None:
            pixels[number] = held
    hog = np.empty((len(paths), cells * cells * BINS), np.float32)
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


def left_out(folder: Path) -> list[str]:
    """Sentences about pictures that are not read, for the format or the bytes of their names."""
    notes = []
    odd = [name for name in _walk(folder, SUFFIXES) if not _is_unicode(name)]
    if odd:
        which, them = (
            (f"{len(odd):,} pictures whose names are", "them") if odd[1:] else ("1 picture whose name is", "it")
        )
        notes.append(f"Left out, {which} not UTF-8, such as {repr(os.fsencode(odd[0]))[1:]}. Rename {them}.")
    names = list_pictures(folder, UNREAD)
    if names:
        kinds = [kind for kind, _ in Counter(Path(name).suffix.lower() for name in names).most_common()]
        files = f"{len(names):,} files of kinds that are" if names[1:] else "1 file of a kind that is"
        notes.append(f"Left out, {files} not read: {listed(kinds)}. Convert them to PNG or JPEG.")
    outside = _links_out(folder)
    if outside:
        which, them = (f"{len(outside):,} links", "they lead") if outside[1:] else ("1 link", "it leads")
        notes.append(f"Left out, {which} to outside the folder ({shortened(outside[0])}): copy what {them} to into it.")
    return notes


def unlabeled_notes(names: Sequence[str]) -> list[str]:
    """A sentence about folders whose names mean unlabeled, if there are any."""
    counts = Counter(name.split("/")[0] for name in names if "/" in name)
    found = [(name, count) for name, count in counts.items() if name.lower() in UNLABELED]
    if not found:
        return []
    return [
        f"Folders whose pictures count as unlabeled: {listed_counts(found, 'picture')}. If one is a class, rename it."
    ]


def list_pictures(folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
    """Names of all pictures under a folder, relative to it, sorted; names that are not UTF-8 are left out."""
    return [name for name in _walk(folder, suffixes) if _is_unicode(name)]


def _is_unicode(name: str) -> bool:
    """Whether a file's name is UTF-8: Python keeps other bytes as surrogates, which no other program reads."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _walk(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Names of files under a folder, relative to it, sorted, without those behind links that lead out of it."""
    found = [path for path in _entries(folder) if path.name.lower().endswith(suffixes) and path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in found if not leads_out(folder, path))


def _links_out(folder: Path) -> list[str]:
    """Names of links that lead out of a folder to folders or to pictures."""
    found = [path for path in _entries(folder) if path.is_symlink() and leads_out(folder, path)]
    kept = [path for path in found if path.is_dir() or path.name.lower().endswith(SUFFIXES)]
    return sorted(os.fsencode(path.relative_to(folder)).decode(errors="replace") for path in kept)


def _entries(folder: Path) -> Iterator[Path]:
    """Files under a folder, each folder once, and links that lead out of it; hidden ones and __MACOSX are left out."""
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        own = os.path.realpath(place)
        if own in seen:  # a link may form a loop
            folders.clear()
            continue
        seen.add(own)
        inner = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        outside = [name for name in inner if leads_out(folder, Path(place) / name)]
        folders[:] = [name for name in inner if name not in outside]
        yield from (Path(place) / name for name in (*outside, *names) if not name.startswith("."))


def folder_labels(names: Sequence[str]) -> list[str | None]:
    """The first folder of each name; ``None`` if there is none or it means unlabeled."""
    first = [name.split("/")[0] if "/" in name else None for name in names]
    return [None if label is None or label.lower() in UNLABELED else label for label in first]


def names_pictures(series: pl.Series, root: Path) -> bool:
    """Whether a column names pictures; raises if none of the first pictures exists."""
    if not is_text(series):
        return False
    known = text_values(series).drop_nulls().head(200)
    pattern = "(?i)(?:" + "|".join(suffix.replace(".", r"\.") for suffix in SUFFIXES) + ")$"
    if not known.len() or known.str.contains(pattern).mean() < 0.9:  # type: ignore[operator]
        return False
    if not any(_is_file(root / name) for name in known.head(20).to_list()):
        raise ValueError(
            f"Column {series.name!r} names pictures that do not exist, such as {shortened(known[0])}: names are "
            f"relative to {str(root)!r}. Put the table beside the pictures, or leave the column out with --drop."
        )
    return True


def _by_model(paths: Sequence[Path | None], model: ImageModel) -> npt.NDArray[np.float32]:
    """The model's vectors of pictures [pictures, width]; black for those that cannot be read."""
    parts = []
    for start in range(0, len(paths), _MODEL_BATCH):
        pixels = np.zeros((len(paths[start : start + _MODEL_BATCH]), model.side, model.side, 3), np.float32)
        for number, path in enumerate(paths[start : start + _MODEL_BATCH]):
            held = _read(path, model.side)
            if held is not None:
                pixels[number] = held
        parts.append(model.encode(pixels))
    return np.concatenate(parts)


def open_picture(path: str | Path | None, side: int) -> Image | None:
    """The picture upright and in RGB, at least about ``side`` pixels wide and high if it is large enough.

    Transparent pixels become white. ``None`` if there is no readable picture.
    """
    import warnings

    from PIL import Image, ImageOps

    if path is None or not _is_file(Path(path)):  # opening a pipe may never end
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=FORMATS) as image:
                image.draft("RGB", (2 * side, 2 * side))
                upright = ImageOps.exif_transpose(image)
                if upright.mode in ("I", "F") or upright.mode.startswith("I;16"):
                    values = np.asarray(upright, np.float32)
                    top = float(values.max()) or 1.0
                    upright = Image.fromarray((255 * np.clip(values / top, 0, 1)).astype(np.uint8))
                return _on_white(upright)
    except Exception:  # a damaged picture can make Pillow raise anything
        return None


def _on_white(image: Image) -> Image:
    """The picture in RGB on a white background: transparent pixels have arbitrary colors, mostly black."""
    from PIL import Image

    if "transparency" not in image.info and image.mode not in ("RGBA", "LA", "PA", "La", "RGBa"):
        return image.convert("RGB")
    layered = image.convert("RGBA")
    if layered.getchannel("A").getextrema()[0] == 255:
        return layered.convert("RGB")
    return Image.alpha_composite(Image.new("RGBA", layered.size, "white"), layered).convert("RGB")


def _read(path: Path | None, side: int) -> npt.NDArray[np.float32] | None:
    """RGB in [0, 1], [side, side, 3]; ``None`` if there is no picture."""
    from PIL.Image import Resampling

    opened = open_picture(path, side)
    if opened is None:
        return None
    pixels = np.asarray(opened.resize((side, side), Resampling.BOX), np.float32)
    return np.asarray(pixels / 255, dtype=np.float32)


def leads_out(folder: str | Path, path: Path) -> bool:
    """Whether a path into a folder is, or passes, a link that leads out of it."""
    if not Path(os.path.normpath(path)).is_relative_to(os.path.normpath(folder)):
        return False  # the table itself names a file elsewhere
    try:
        return not is_inside(path, folder)
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
