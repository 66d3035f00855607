"""Pictures: folders of them, columns that name them, and features of their content."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from sobgnn.tables.columns import Arrays, Column, is_text, listed, shortened, text_values

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
_MODEL_SIDE, _MODEL_BATCH = 224, 32
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class PictureColumn(Column):
    """Pictures named by a column: pixels at 32 × 32 and histograms of oriented gradients, or a model's vectors.

    Both parts are centered and have the same total variance. A picture that cannot be read becomes the mean.

    Args:
        name: The column.
        root: Folder that names are relative to.
        model: File of a TorchScript or exported model, or ``None``. The model maps float32 [B, 3, 224, 224], normalized
            as usual for ImageNet, to [B, ...].
        center: Mean of the features, [width].
        factors: What features are multiplied by, [width].
    """

    kind: ClassVar[str] = "pictures"
    name: str
    root: str
    model: str | None
    center: npt.NDArray[np.float32]
    factors: npt.NDArray[np.float32]
    _loaded: list[Any] = field(default_factory=list, compare=False, repr=False)

    @classmethod
    def fit(cls, series: pl.Series, root: Path, model: str | Path | None = None) -> tuple[PictureColumn, list[str]]:
        """Fit the column, with features centered on these pictures; also returns what users may not expect."""
        empty = np.zeros(0, np.float32)
        bare = cls(series.name, str(root), None if model is None else str(model), empty, empty)
        sample = series[np.linspace(0, series.len() - 1, min(series.len(), 5000)).astype(np.int64)]
        features, broken = bare._features(text_values(sample).to_list())
        good = features[~broken]
        if 2 * len(good) < len(features):
            wrong = sample[int(np.flatnonzero(broken)[0])]
            raise ValueError(f"{int(broken.sum())} of {len(features)} pictures cannot be read{bare.reason(wrong)}")
        variance = good.var(axis=0, dtype=np.float64)
        factors = np.ones(features.shape[1])
        pixels = features.shape[1] if model is not None else 3 * SIDE * SIDE
        for part in (slice(0, pixels), slice(pixels, None)):
            total = float(variance[part].sum())
            factors[part] = 1 / np.sqrt(total) if total > 0 else 0.0
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

    def path(self, name: str) -> Path:
        """Path of the picture with that name."""
        return Path(self.root) / name

    def reason(self, name: Any) -> str:
        """The end of a sentence about pictures that cannot be read, such as that one: why, and the way out."""
        such = f", such as {shortened(name, 100)}"
        if isinstance(name, str) and _is_file(self.path(name.strip())):
            return f"{such}: the file is damaged or holds no picture. Replace it, or leave it out."
        return f"{such}. Names are relative to {self.root}."

    def _features(self, names: Sequence[str | None]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
        paths = [None if name is None else self.path(name) for name in names]
        if self.model is None:
            return see(paths)
        if not self._loaded:
            self._loaded.append(load_image_model(self.model))
        return _by_model(paths, self._loaded[0])

    def feature_names(self) -> list[str]:
        """The column's name with the feature's number."""
        return [f"{self.name} [{i}]" for i in range(len(self.center))]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {"name": self.name, "root": self.root, "model": self.model}

    def arrays(self) -> Arrays:
        """Mean and factors."""
        return {"center": self.center, "factors": self.factors}

    @classmethod
    def restore(cls, content: dict[str, Any], arrays: Arrays) -> PictureColumn:
        """Rebuild a column from :meth:`to_json` and :meth:`arrays`."""
        center, factors = (np.ascontiguousarray(arrays[key], dtype=np.float32) for key in ("center", "factors"))
        model = None if content["model"] is None else str(content["model"])
        width = 3 * SIDE * SIDE + (SIDE // CELL) ** 2 * BINS
        if center.ndim != 1 or center.shape != factors.shape or (model is None and len(center) != width):
            raise ValueError("shapes of the arrays")
        return cls(str(content["name"]), str(content["root"]), model, center, factors)


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
    return notes


def unlabeled_notes(names: Sequence[str]) -> list[str]:
    """A sentence about folders whose names mean unlabeled, if there are any."""
    counts = Counter(name.split("/")[0] for name in names if "/" in name)
    found = [f"{name} ({count:,})" for name, count in counts.items() if name.lower() in UNLABELED]
    return (
        [f"Folders whose pictures count as unlabeled: {listed(found)}. If one is a class, rename it."] if found else []
    )


def list_pictures(folder: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[str]:
    """Names of all pictures under a folder, relative to it, sorted; names that are not UTF-8 are left out."""
    return [name for name in _walk(folder, suffixes) if _is_unicode(name)]


def _is_unicode(name: str) -> bool:
    """Whether a file's name is UTF-8: Python keeps other bytes as surrogates, which no other program reads."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _walk(folder: Path, suffixes: tuple[str, ...]) -> list[str]:
    """Names of files under a folder, relative to it, sorted; hidden ones are left out, and so is __MACOSX."""
    found, seen = [], set()
    for place, folders, names in os.walk(folder, followlinks=True):
        own = os.path.realpath(place)
        folders[:] = [] if own in seen else [n for n in folders if not n.startswith(".") and n != "__MACOSX"]
        if own not in seen:  # a link may form a loop
            pictures = [Path(place) / n for n in names if not n.startswith(".") and n.lower().endswith(suffixes)]
            found += [path.relative_to(folder).as_posix() for path in pictures if path.is_file()]
        seen.add(own)
    return sorted(found)


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


def load_image_model(file: str | Path) -> Any:
    """A function from float32 [B, 3, 224, 224] to vectors, from a TorchScript (.pt) or exported (.pt2) file."""
    import warnings

    import torch

    path = Path(file)
    if not path.is_file():
        raise ValueError(f"There is no file {str(path)!r} with an image model. Nothing is downloaded: copy one there.")
    try:
        if path.suffix == ".pt2":
            return torch.export.load(path).module()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(str(path), map_location="cpu").eval()  # type: ignore[no-untyped-call]
    except Exception as error:  # torch can raise anything, from RuntimeError to IndexError
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a TorchScript or exported model: {reason}") from None


def _by_model(paths: Sequence[Path | None], model: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.bool_]]:
    import torch

    parts, broken = [], np.zeros(len(paths), np.bool_)
    mean, deviation = np.array(_MEAN, np.float32), np.array(_DEVIATION, np.float32)
    for start in range(0, len(paths), _MODEL_BATCH):
        pixels = np.zeros((len(paths[start : start + _MODEL_BATCH]), _MODEL_SIDE, _MODEL_SIDE, 3), np.float32)
        for number, path in enumerate(paths[start : start + _MODEL_BATCH]):
            held = _read(path, _MODEL_SIDE)
            broken[start + number] = held is None
            if held is not None:
                pixels[number] = (held - mean) / deviation
        try:
            with torch.no_grad():
                found = model(torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[-160:]
            raise ValueError(f"The image model does not accept [B, 3, 224, 224]: {reason}") from None
        parts.append(torch.nan_to_num(found).reshape(len(pixels), -1).float().numpy())
    return np.concatenate(parts), broken


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


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
