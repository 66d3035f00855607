"""The report's charts as HTML and SVG: no library; colors come from the page's style, so charts fit light and dark."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# The drawing's own units; it is scaled to the available width.
_WIDTH, _HEIGHT = 440, 230
# The right margin leaves room for half of the last number of an axis, such as 10,000.
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 24, 12, 40
# Number of classes up to which a confusion matrix shows counts, and up to which it is shown at all.
_COUNTED, MOST_CONFUSED = 15, 40


def text(value: object) -> str:
    """Escape text for HTML: ids, class names and cells come from the user."""
    return html.escape(str(value))


def figure(caption: str, content: str) -> str:
    """A card with a chart; the caption is HTML."""
    return f"<figure><figcaption>{caption}</figcaption>{content}</figure>"


def bars(values: Mapping[str, float], shown: Callable[[float], str]) -> str:
    """A horizontal bar for each name, with its value; values below 0 have no bar."""
    most = max([*values.values(), 0.0])
    rows = []
    for name, value in values.items():
        width = 100 * max(value, 0) / most if most > 0 else 0
        number = re.sub(r"^-(0[.0]*%?)$", r"\1", shown(value))
        rows.append(
            f'<span class="name" title="{text(name)}">{text(name)}</span><span class="track">'
            f'<i style="width:{width:.1f}%"></i></span><span class="n">{text(number)}</span>'
        )
    return f'<div class="bars" role="img">{"".join(rows)}</div>'


def lines(
    series: Mapping[str, tuple[Sequence[float], Sequence[float | None]]],
    horizontal: str,
    *,
    percent: bool = False,
    whole: bool = False,
    dots: Sequence[str] = (),
    zero: bool = False,
) -> str:
    """A line for each name of ``series``: (x, y); a y of None is not drawn.

    Args:
        series: By name; several get a legend.
        horizontal: Title of the x axis.
        percent: Whether y are shares.
        whole: Whether x are integers, with ticks at integers only.
        dots: Names that are drawn as dots.
        zero: Whether the y axis begins at 0.
    """
    x = [float(value) for xs, ys in series.values() for value in xs]
    y = [float(value) for xs, ys in series.values() for value in ys if value is not None and math.isfinite(value)]
    low, high = (min(y), max(y)) if y else (0.0, 1.0)
    across = _Axis(min(x), max(x), _LEFT, _WIDTH - _RIGHT, whole=whole)
    up = _Axis(0.0 if zero else low, high, _HEIGHT - _BOTTOM, _TOP, percent=percent, nice=True)
    drawn = [_grid(across, up, horizontal)]
    for place, (name, (xs, ys)) in enumerate(series.items()):
        at = [(across(a), up(b)) for a, b in zip(xs, ys, strict=True) if b is not None and math.isfinite(float(b))]
        if name in dots or len(at) == 1:
            drawn += [f'<circle class="f{place % 10}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in at]
        else:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in at)
            drawn.append(f'<polyline class="s{place % 10}" points="{path}"/>')
    legend = ""
    if len(series) > 1:
        keys = "".join(f'<span><i class="b{place % 10}"></i>{text(name)}</span>' for place, name in enumerate(series))
        legend = f'<div class="keys">{keys}</div>'
    return legend + _svg("".join(drawn))


def histogram(values: npt.NDArray[Any], title: str, *, whole: bool = False) -> str | None:
    """Counts in up to 40 bins; ``None`` if all values are equal, which a sentence shows better."""
    if not len(values) or float(values.min()) == float(values.max()):
        return None
    if whole:
        first, last = int(values.min()), int(values.max())
        width = max(1, -(-(last - first + 1) // 40))
        edges = np.arange(first, last + width + 1, width) - 0.5
    else:
        edges = np.linspace(0, float(values.max()), 41)
    counts, edges = np.histogram(values, edges)
    across = _Axis(float(edges[0]), float(edges[-1]), _LEFT, _WIDTH - _RIGHT, whole=whole)
    up = _Axis(0.0, float(counts.max()), _HEIGHT - _BOTTOM, _TOP, whole=True, nice=True)
    drawn = [_grid(across, up, title)]
    for count, left, right in zip(counts.tolist(), edges[:-1], edges[1:], strict=True):
        if count:
            a, b, top = across(float(left)), across(float(right)), up(count)
            size = f'width="{max(b - a - 0.6, 0.6):.1f}" height="{_HEIGHT - _BOTTOM - top:.1f}"'
            drawn.append(f'<rect class="f0" x="{a:.1f}" y="{top:.1f}" {size}/>')
    return _svg("".join(drawn))


def confusion_matrix(counts: npt.NDArray[np.int64], classes: Sequence[Any]) -> str:
    """Counts [true, predicted], shaded by the share of the true class's row; zeros stay empty."""
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    few = len(classes) <= _COUNTED
    head = "".join(f'<th title="{text(name)}"><span>{text(name)}</span></th>' for name in classes)
    rows = []
    for i, name in enumerate(classes):
        cells = []
        for j, other in enumerate(classes):
            count, part = int(counts[i, j]), float(share[i, j])
            said = f"true {name}, predicted {other}: {count:,} ({part:.1%})"
            # Mistakes are few: small shares must be visible.
            shade = f' style="--p:{100 * math.sqrt(part):.0f}%"' if count else ""
            light = ' class="on"' if part > 0.4 else ""
            cells.append(f'<td{light}{shade} title="{text(said)}">{f"{count:,}" if few and count else ""}</td>')
        rows.append(f'<tr><th title="{text(name)}"><span>{text(name)}</span></th>{"".join(cells)}</tr>')
    return (
        '<div class="matrix"><p>true class in rows, predicted in columns</p>'
        f"<table><thead><tr><td></td>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


class _Axis:
    """Values to positions, with ticks at round numbers."""

    def __init__(
        self,
        low: float,
        high: float,
        first: float,
        last: float,
        *,
        percent: bool = False,
        whole: bool = False,
        nice: bool = False,
    ) -> None:
        if high <= low:
            half = max(abs(low), 1.0) / 2
            low, high = low - half, high + half
        self.percent = percent
        scale = 100.0 if percent else 1.0
        step = tick_step((high - low) * scale / 4, whole=whole) / scale
        begin = math.floor(low / step + 1e-9)
        end = max(math.ceil(high / step - 1e-9), begin + 1)  # values that differ only in their last digits
        if nice:
            low, high = begin * step, end * step
        self.low, self.high, self.first, self.last = low, high, first, last
        self.ticks = [place * step for place in range(begin, end + 1) if low - 1e-9 <= place * step <= high + 1e-9]

    def __call__(self, value: float) -> float:
        return self.first + (value - self.low) / (self.high - self.low) * (self.last - self.first)

    def labels(self) -> list[str]:
        return [tick_label(tick, percent=self.percent) for tick in self.ticks]


def tick_step(rough: float, *, whole: bool = False) -> float:
    """A round step of at least ``rough``: 1, 2 or 5 times a power of 10, never finer than two decimals."""
    rough = max(rough, 1.0 if whole else 0.01)
    power = 10.0 ** math.floor(math.log10(rough) + 1e-9)
    return next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))


def tick_label(value: float, *, percent: bool = False) -> str:
    """A number with at most two decimals."""
    if percent:
        return f"{100 * value:.2f}".rstrip("0").rstrip(".") + "%"
    if abs(value) >= 1_000_000:
        return f"{value / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"
    shown = f"{value:,.2f}".rstrip("0").rstrip(".")
    return "0" if shown == "-0" else shown


def _grid(across: _Axis, up: _Axis, title: str) -> str:
    bottom = _HEIGHT - _BOTTOM
    drawn = [
        f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{up(tick):.1f}" y2="{up(tick):.1f}"/>'
        f'<text x="{_LEFT - 7}" y="{up(tick) + 4:.1f}" text-anchor="end">{label}</text>'
        for tick, label in zip(up.ticks, up.labels(), strict=True)
    ]
    drawn += [
        f'<text x="{across(tick):.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>'
        for tick, label in zip(across.ticks, across.labels(), strict=True)
    ]
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn.append(f'<text x="{middle}" y="{_HEIGHT - 5}" text-anchor="middle">{text(title)}</text>')
    return "".join(drawn)


def _svg(content: str) -> str:
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{content}</svg>'
