"""Class colors for light and dark pages."""

from __future__ import annotations

import math

# Muted colors that most readers can distinguish, for the first classes. Light page first, dark page second.
_CHOSEN = (
    ("#3b6fb6", "#7aa7e8"),
    ("#d5793a", "#f0a06a"),
    ("#3f9268", "#6cc298"),
    ("#b64a5e", "#e8849a"),
    ("#7d63b0", "#b49ce6"),
    ("#a8872c", "#d9ba5f"),
    ("#2f98a8", "#63cbdb"),
    ("#c264a0", "#eb98cc"),
    ("#6f7f3a", "#a9bb6a"),
    ("#7a6a5f", "#b5a497"),
)


# Later classes: each hue is turned by the golden angle, which never comes back to the same place.
_GOLDEN_DEGREES = 137.50776


def class_colors(count: int) -> list[tuple[str, str]]:
    """``count`` pairs of hex colors, for a light and for a dark page; the first ones do not depend on ``count``."""
    return list(_CHOSEN[:count]) + [_turned(place) for place in range(count - len(_CHOSEN))]


def _turned(place: int) -> tuple[str, str]:
    """Colors of successive hues, at three lightnesses in turn."""
    hue, step = place * _GOLDEN_DEGREES % 360, place % 3
    return _oklch(0.42 + 0.12 * step, 0.13, hue), _oklch(0.62 + 0.11 * step, 0.12, hue)


def _oklch(lightness: float, chroma: float, hue: float) -> str:
    """The sRGB color of OKLCH coordinates (Ottosson 2020), clipped to the range of screens."""
    a, b = chroma * math.cos(math.radians(hue)), chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(channel)):02x}" for channel in linear)


def _gamma(channel: float) -> float:
    channel = min(1.0, max(0.0, channel))
    return 12.92 * channel if channel <= 0.0031308 else 1.055 * channel ** (1 / 2.4) - 0.055
