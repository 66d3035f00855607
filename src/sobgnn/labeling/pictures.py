"""Pictures for the page: unchanged if a browser can show them well, otherwise reduced."""

from __future__ import annotations

import io
import threading
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sobgnn.tables.pictures import FORMATS

if TYPE_CHECKING:
    from PIL.Image import Image

LARGEST_SIDE = 1600
# Maximum number of pixels decoded per picture: 4 bytes each, and up to 12 for 16-bit pictures.
MOST_PIXELS = 64_000_000
LARGEST_FILE = 32 * 2**20
# Cache size for reduced pictures, in bytes.
KEPT = 32 * 2**20

Shown = tuple[bytes, str]


class Pictures:
    """Reads pictures, at most one large one at a time."""

    def __init__(self) -> None:
        self._opening = threading.Lock()  # Python's warning filter is shared by all threads
        self._decoding = threading.Lock()
        self._kept: OrderedDict[tuple[str, int, int], Shown] = OrderedDict()

    def read(self, path: Path) -> Shown:
        """The picture's bytes and media type, PNG or JPEG.

        Raises:
            ValueError: It cannot be shown; the message is one line.
        """
        from PIL import Image, UnidentifiedImageError

        try:
            if not path.is_file():
                raise ValueError("There is no such file." if not path.exists() else "It is not a regular file.")
            about = path.stat()
            with self._opening, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about many pixels, which are counted here
                image = Image.open(path, formats=FORMATS)
            with image:
                plain = image.format in ("PNG", "JPEG") and max(image.size) <= LARGEST_SIDE
                if plain and about.st_size <= LARGEST_FILE:
                    return path.read_bytes(), f"image/{str(image.format).lower()}"
                return self._made((str(path), about.st_mtime_ns, about.st_size), image)
        except ValueError:
            raise
        except UnidentifiedImageError:
            raise ValueError("The file is not a readable picture.") from None
        except Image.DecompressionBombError:
            raise ValueError("It has too many pixels to be shown.") from None
        except Exception as error:  # a damaged picture can make Pillow raise anything
            raise ValueError(f"The picture is damaged: {' '.join(str(error).split())[:160]}.") from None

    def _made(self, key: tuple[str, int, int], image: Image) -> Shown:
        with self._decoding:
            if key in self._kept:
                self._kept.move_to_end(key)
            else:
                self._kept[key] = _smaller(image)
            made = self._kept[key]
            while len(self._kept) > 1 and sum(len(content) for content, _ in self._kept.values()) > KEPT:
                self._kept.popitem(last=False)
            return made


def _smaller(image: Image) -> Shown:
    """The picture upright, at most ``LARGEST_SIDE`` wide and high; a JPEG stays a JPEG, all others become PNG."""
    from PIL import Image, ImageOps

    kind = "JPEG" if image.format == "JPEG" else "PNG"
    width, height = image.size
    image.draft("RGB", (LARGEST_SIDE, LARGEST_SIDE))  # a JPEG is decoded at a half, a quarter or an eighth of its size
    if image.width * image.height > MOST_PIXELS:
        raise ValueError(
            f"It has {width:,} × {height:,} pixels; at most {MOST_PIXELS // 10**6} million can be shown. The model "
            "still uses it."
        )
    ImageOps.exif_transpose(image, in_place=True)
    reduced = image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        values = np.asarray(image)  # as the model sees them: the largest value is white
        step = max(1, max(image.size) // LARGEST_SIDE)
        top = float(values.max()) or 1.0
        shares = np.clip(values[::step, ::step].astype(np.float32) / top, 0, 1)
        reduced = Image.fromarray((255 * shares).astype(np.uint8))
    elif image.mode in ("1", "P", "PA"):
        reduced = image.convert("L" if image.mode == "1" else "RGBA")
    reduced.thumbnail((LARGEST_SIDE, LARGEST_SIDE), reducing_gap=2.0)
    if kind == "JPEG" or reduced.mode not in ("L", "LA", "RGB", "RGBA"):
        reduced = reduced.convert("RGB")
    held = io.BytesIO()
    reduced.save(held, kind)
    return held.getvalue(), f"image/{kind.lower()}"
