"""The report's charts as plotly.js specifications, plain values only. ``"@name"`` stands for a color of the page."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Chart = dict[str, Any]
# Past this many, rings would cover the points: they are shown when the legend is clicked.
MOST_RINGS = 600
_LOG = {"type": "log", "exponentformat": "power", "dtick": 1}
_AXIS_OFF = {"visible": False, "showgrid": False, "zeroline": False}


def packed(values: npt.NDArray[Any]) -> dict[str, str]:
    """float32 values as plotly.js reads them from base64: a third of the size of decimals."""
    data = np.ascontiguousarray(values, dtype="<f4").tobytes()
    return {"dtype": "f4", "bdata": base64.b64encode(data).decode()}


def text(value: object) -> str:
    """Escaped: plotly.js reads its texts as a kind of HTML, and ids and class names are the user's."""
    return html.escape(str(value))


def points_map(
    place: npt.NDArray[np.float32],
    names: Sequence[str],
    classes: Sequence[Any],
    predicted: npt.NDArray[np.int64],
    confidence: npt.NDArray[np.float64],
    true: npt.NDArray[np.int64],
    given: npt.NDArray[np.bool_],
) -> Chart:
    """Points [M, 2] colored by predicted class; those whose label was given are ringed.

    ``true`` is -1 where the class is not known.
    """
    shown = [text(name) for name in classes]
    size = 7 if len(place) < 3000 else 5 if len(place) < 20000 else 2.5
    data: list[dict[str, Any]] = []
    for code, name in enumerate(shown):
        rows = np.flatnonzero(predicted == code)
        if not rows.size:
            continue
        hover = [
            [text(names[int(row)]), round(float(confidence[row]), 3), shown[true[row]] if true[row] >= 0 else "unknown"]
            for row in rows
        ]
        data.append(
            {
                "type": "scattergl",
                "mode": "markers",
                "name": name,
                "x": packed(place[rows, 0]),
                "y": packed(place[rows, 1]),
                "customdata": hover,
                "marker": {
                    "size": size,
                    "color": f"@class:{code}",
                    "opacity": 0.82 if len(place) < 20000 else 0.6,
                    "line": {"width": 0},
                },
                "meta": {
                    "confidence": confidence[rows].round(3).tolist(),
                    "wrong": [int(true[row] >= 0 and true[row] != code) for row in rows],
                },
                "hovertemplate": "<b>%{customdata[0]}</b><br>predicted %{fullData.name}, "
                "probability %{customdata[1]:.2f}<br>true label %{customdata[2]}<extra></extra>",
            }
        )
    ringed = np.flatnonzero(given)
    if 0 < ringed.size < len(place):
        data.append(
            {
                "type": "scattergl",
                "mode": "markers",
                "name": "label given",
                "x": packed(place[ringed, 0]),
                "y": packed(place[ringed, 1]),
                "hoverinfo": "skip",
                "visible": True if ringed.size <= MOST_RINGS else "legendonly",
                "marker": {
                    "size": size + 4,
                    "symbol": "circle-open",
                    "color": "@ink",
                    "opacity": 0.65,
                    "line": {"width": 1},
                },
            }
        )
    layout = {
        "height": 560,
        "margin": {"l": 6, "r": 6, "t": 6, "b": 6},
        "xaxis": dict(_AXIS_OFF),
        "yaxis": {**_AXIS_OFF, "scaleanchor": "x"},
        "dragmode": "pan",
        "hovermode": "closest",
        "legend": {"itemsizing": "constant"},
        "uirevision": "map",
    }
    return {"data": data, "layout": layout}


def confusion_matrix(counts: npt.NDArray[np.int64], classes: Sequence[Any]) -> Chart:
    """Counts [true, predicted], shaded by the share of the true class's row."""
    shown = [text(name) for name in classes]
    total = counts.sum(axis=1, keepdims=True)
    share = counts / np.maximum(total, 1)
    few = len(shown) <= 15
    trace = {
        "type": "heatmap",
        "z": share.round(4).tolist(),
        "x": shown,
        "y": shown,
        "customdata": counts.tolist(),
        "colorscale": "@ramp",
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "xgap": 1,
        "ygap": 1,
        "hovertemplate": "true %{y}, predicted %{x}: %{customdata} (%{z:.1%})<extra></extra>",
        # Zeros stay empty, so that the mistakes stand out.
        "text": [[str(c) if c else "" for c in row] for row in counts.tolist()] if few else None,
        "texttemplate": "%{text}" if few else "",
        "textfont": {"size": 12},
    }
    axis: dict[str, Any] = {"type": "category", "showgrid": False, "zeroline": False}
    layout = {
        "height": 480,
        "xaxis": {**axis, "title": {"text": "predicted"}, "tickangle": 0 if few else 90},
        "yaxis": {**axis, "title": {"text": "true"}, "autorange": "reversed"},
    }
    return {"data": [trace], "layout": layout}


def bars(values: Mapping[str, float], title: str, tickformat: str) -> Chart:
    """A bar for each name."""
    trace = {
        "type": "bar",
        "x": list(values),
        "y": [float(f"{value:.4g}") for value in values.values()],
        "marker": {"color": "@accent", "opacity": 0.88},
        "hovertemplate": "%{x}: %{y}<extra></extra>",
    }
    layout = {
        "height": 300,
        "bargap": 0.35,
        "xaxis": {"type": "category", "showgrid": False},
        "yaxis": {"rangemode": "tozero", "tickformat": tickformat, "title": {"text": title}, "nticks": 5},
        "showlegend": False,
    }
    return {"data": [trace], "layout": layout}


def training_curves(history: Mapping[str, Mapping[str, Sequence[float]]], quantity: str, title: str) -> Chart:
    """The mean over members of ``quantity`` [T] at each step, one line per family that has finite values."""
    data = []
    for place, (name, curves) in enumerate(history.items()):
        mean = np.asarray(curves.get(quantity, ()), dtype=float)
        if not mean.size or not np.isfinite(mean).all():
            continue
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": name,
                "x": np.asarray(curves["epoch"]).tolist(),
                "y": [float(f"{v:.4g}") for v in mean],
                "line": {"width": 2, "color": f"@class:{place}"},
                "hovertemplate": "epoch %{x}: %{y:.3f}<extra>%{fullData.name}</extra>",
            }
        )
    layout = {
        "height": 280,
        "xaxis": {"title": {"text": "epoch"}, "showgrid": False},
        "yaxis": {"title": {"text": title}, **({"tickformat": ".0%"} if "accuracy" in quantity else _LOG)},
        "legend": {"orientation": "h", "y": 1.14, "x": 0},
        "showlegend": len(data) > 1,
    }
    return {"data": data, "layout": layout}


def histogram(values: npt.NDArray[Any], title: str, whole: bool = False) -> Chart:
    """Counts in up to 40 bins."""
    if whole:
        low, high = int(values.min()), int(values.max())
        width = max(1, -(-(high - low + 1) // 40))
        edges = np.arange(low, high + width + 1, width) - 0.5
    else:
        edges = np.linspace(0, max(float(values.max()), 1e-12), 41)
    counts, edges = np.histogram(values, edges)
    trace = {
        "type": "bar",
        "x": ((edges[:-1] + edges[1:]) / 2).round(4).tolist(),
        "y": counts.tolist(),
        "width": np.diff(edges).round(6).tolist(),
        "marker": {"color": "@accent", "opacity": 0.75, "line": {"width": 0}},
        "hovertemplate": "%{x:.3~g}: %{y:,}<extra></extra>",
    }
    layout = {
        "height": 240,
        "bargap": 0,
        "xaxis": {"title": {"text": title}, "showgrid": False},
        "yaxis": {"nticks": 5},
    }
    return {"data": [trace], "layout": layout}


def agreement(shares: Sequence[float]) -> Chart:
    """Share of the weight w^ρ between equal labels, for each power."""
    trace = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(range(1, len(shares) + 1)),
        "y": [round(share, 5) for share in shares],
        "line": {"width": 2, "color": "@accent"},
        "marker": {"size": 7},
        "hovertemplate": "ρ=%{x}: %{y:.1%}<extra></extra>",
    }
    layout = {
        "height": 240,
        "xaxis": {"title": {"text": "Hadamard power ρ"}, "dtick": 1, "showgrid": False},
        "yaxis": {"tickformat": ".0%", "nticks": 5},
    }
    return {"data": [trace], "layout": layout}
