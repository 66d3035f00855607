"""Files of pictures: found in a folder or named by a column, and opened."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sobgnn._system.files import is_inside
from sobgnn.tables.columns.base import is_text, text_values
from sobgnn.tables.columns.names import counted, listed, listed_counts, shortened

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


def find_pictures(folder: Path) -> tuple[list[str], list[str]]:
    """Names of all pictures under a folder, relative to it, sorted, and sentences about those that are not read.

    Left out are pictures by the format or the bytes of their names, or behind links that lead out of the folder. Raises
    if there is none, or if a folder holds more other files: it is probably not the one that is meant. Files beside a
    picture that have its name, such as its description, do not count.
    """
    inside, outside = _found(folder)
    pictures = [name for name in inside if name.lower().endswith(SUFFIXES)]
    names = [name for name in pictures if _is_unicode(name)]
    unread = [name for name in inside if name.lower().endswith(UNREAD) and _is_unicode(name)]
    notes = []
    if len(pictures) > len(names):
        odd = [name for name in pictures if not _is_unicode(name)]
        which = f"{len(odd):,} pictures whose names are" if odd[1:] else "1 picture whose name is"
        such = f"such as {repr(os.fsencode(odd[0]))[1:]}. Rename {'them' if odd[1:] else 'it'}."
        notes.append(f"Left out, {which} not UTF-8, {such}")
    if unread:
        kinds = [kind for kind, _ in Counter(Path(name).suffix.lower() for name in unread).most_common()]
        files = f"{len(unread):,} files of kinds that are" if unread[1:] else "1 file of a kind that is"
        notes.append(f"Left out, {files} not read: {listed(kinds)}. Convert them to PNG or JPEG.")
    if outside:
        which, them = (f"{len(outside):,} links", "they lead") if outside[1:] else ("1 link", "it leads")
        notes.append(f"Left out, {which} to outside the folder ({shortened(outside[0])}): copy what {them} to into it.")
    if not names:
        hint = " ".join(notes) or "Give a CSV, Parquet, Excel or NPZ file, or JSON."
        raise ValueError(f"{str(folder)!r} is a folder without pictures{' that can be read' if notes else ''}. {hint}")
    stems = {os.path.splitext(name)[0] for name in names}
    others = sum(os.path.splitext(name)[0] not in stems and not name.lower().endswith(UNREAD) for name in inside)
    if others > len(names):
        raise ValueError(
            f"{str(folder)!r} holds {counted(len(names), 'picture')}, such as {shortened(names[0])}, among {others:,} "
            "other files. Name the folder whose subfolders are the classes of the pictures."
        )
    return names, notes


def unlabeled_notes(names: Sequence[str]) -> list[str]:
    """A sentence about folders whose names mean unlabeled, if there are any."""
    counts = Counter(name.split("/")[0] for name in names if "/" in name)
    found = [(name, count) for name, count in counts.items() if name.lower() in UNLABELED]
    if not found:
        return []
    return [
        f"Folders whose pictures count as unlabeled: {listed_counts(found, 'picture')}. If one is a class, rename it."
    ]


def _is_unicode(name: str) -> bool:
    """Whether a file's name is UTF-8: Python keeps other bytes as surrogates, which no other program reads."""
    return name.isascii() or not any("\ud800" <= sign <= "\udfff" for sign in name)


def _found(folder: Path) -> tuple[list[str], list[str]]:
    """Names of files under a folder, relative to it, sorted; and of links that lead out of it, to folders and pictures.

    Each folder is read once; hidden ones and __MACOSX are left out.
    """
    inside, outside, seen = [], [], set()
    for place, folders, files in os.walk(folder, followlinks=True):
        own = os.path.realpath(place)
        if own in seen:  # a link may form a loop
            folders.clear()
            continue
        seen.add(own)
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__MACOSX"]
        for name in (*folders, *(name for name in files if not name.startswith("."))):
            path = Path(place, name)
            if leads_out(folder, path):
                if name in folders or (path.is_symlink() and name.lower().endswith(SUFFIXES)):
                    outside.append(os.fsencode(path.relative_to(folder)).decode(errors="replace"))
            elif path.is_file():
                inside.append(path.relative_to(folder).as_posix())
        folders[:] = [name for name in folders if not leads_out(folder, Path(place, name))]
    return sorted(inside), sorted(outside)


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
    if not any(is_file(root / name) for name in known.head(20).to_list()):
        raise ValueError(
            f"Column {series.name!r} names pictures that do not exist, such as {shortened(known[0])}: names are "
            f"relative to {str(root)!r}. Put the table beside the pictures, or leave the column out with --drop."
        )
    return True


def open_picture(path: str | Path | None, side: int) -> Image | None:
    """The picture upright and in RGB, at least about ``side`` pixels wide and high if it is large enough.

    Transparent pixels become white. ``None`` if there is no readable picture.
    """
    import warnings

    from PIL import Image, ImageOps

    if path is None or not is_file(Path(path)):  # opening a pipe may never end
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


def leads_out(folder: str | Path, path: Path) -> bool:
    """Whether a path into a folder is, or passes, a link that leads out of it."""
    if not Path(os.path.normpath(path)).is_relative_to(os.path.normpath(folder)):
        return False  # the table itself names a file elsewhere
    try:
        return not is_inside(path, folder)
    except (OSError, ValueError):  # a name that no file can have
        return False


def is_file(path: Path) -> bool:
    """Whether there is a file; no file has a name that the system refuses."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
