"""What the labeling page and the report share: one sheet of colors and type (colors.css) and one map (map.js).

The page serves these files beside its own; the report carries their text. Both use the same names of colors.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

# Each hue is turned by the golden angle, which never comes back to the same place.
_GOLDEN_DEGREES = 137.50776
# Number of classes whose colors are chosen by hand, in colors.css.
_CHOSEN = 10


@cache
def read(name: str) -> str:
    """The text of a file of this folder, such as ``"map.js"``."""
    return (resources.files("sobgnn.app.web") / name).read_text(encoding="utf-8")


@cache
def class_color(code: int) -> str:
    """The color of a class as CSS, for light and dark pages; it does not depend on the number of classes."""
    if code < _CHOSEN:
        return f"var(--c{code})"
    hue, step = (code - _CHOSEN) * _GOLDEN_DEGREES % 360, (code - _CHOSEN) % 3  # three lightnesses in turn
    light, dark = 0.42 + 0.12 * step, 0.62 + 0.11 * step
    return f"light-dark(oklch({light:.2f} 0.13 {hue:.1f}), oklch({dark:.2f} 0.12 {hue:.1f}))"
