"""The report's section on the search for a setting: the trials, the best so far, and what mattered."""

from __future__ import annotations

import html
from typing import Any

from sobgnn.runs.page.figures import Chart


def search_section(search: dict[str, Any], charts: dict[str, Chart]) -> str:
    """HTML of the section, its charts added to ``charts``. ``search`` is what ``TuningResult.to_json`` gives."""
    charts["search"] = _over_time(search)
    finished, pruned = len(search["trials"]), search["pruned"]
    early = f", {pruned:,} of them pruned early" if pruned else ""
    said = (
        f"{finished:,} of {search['wanted']:,} trials finished{early}. The best has a log "
        f"loss of {search['log_loss']:.3f} and an accuracy of {search['accuracy']:.1%} on labels held out"
    )
    before = search["default_log_loss"]
    said += f"; the setting before the search had {before:.3f}." if before is not None else "."
    said += " The best of many looks a little better than it is; hidden labels, where there are any, tell."
    shown = [_figure("search", "<b>Log loss</b> of each trial, and the best so far")]
    if search["importance"]:
        charts["importance"] = _importance(search["importance"])
        shown.append(_figure("importance", "<b>What mattered</b> Share of the differences each parameter explains"))
    return (
        f'<section><h2>The search</h2><p>{said}</p><div class="pair">{"".join(shown)}</div>'
        f'<div class="scroll narrow" style="margin-top:14px">{_settings(search)}</div></section>'
    )


def _settings(search: dict[str, Any]) -> str:
    """The best setting beside the one before the search, which was the first trial's."""
    first = min(search["trials"], key=lambda trial: trial["number"])["setting"]
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(_short(cell))}</td>" for cell in (name, first.get(name, value), value))
        + "</tr>"
        for name, value in search["setting"].items()
    )
    return f"<table><thead><tr><th>parameter</th><th>before</th><th>best</th></tr></thead><tbody>{rows}</tbody></table>"


def _figure(name: str, caption: str) -> str:
    return (
        f'<figure><figcaption>{caption}</figcaption><div class="plot" id="{name}" style="height:300px"></div></figure>'
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _over_time(search: dict[str, Any]) -> Chart:
    place = list(range(1, len(search["trials"]) + 1))
    common = {"type": "scatter", "x": place, "hovertemplate": "trial %{x}: %{y:.3f}<extra>%{fullData.name}</extra>"}
    data = [
        {
            **common,
            "mode": "markers",
            "name": "trial",
            "y": [trial["log_loss"] for trial in search["trials"]],
            "marker": {"size": 6, "opacity": 0.6, "color": "@class:1"},
        },
        {
            **common,
            "mode": "lines",
            "name": "best so far",
            "y": search["best_so_far"],
            "line": {"width": 2, "shape": "hv", "color": "@accent"},
        },
    ]
    layout = {
        "height": 300,
        "xaxis": {"title": {"text": "trials finished"}, "showgrid": False},
        "yaxis": {"title": {"text": "out-of-fold log loss"}},
        "legend": {"orientation": "h", "y": 1.12, "x": 0},
        "showlegend": True,
    }
    return {"data": data, "layout": layout}


def _importance(importance: dict[str, float]) -> Chart:
    names = list(importance)[::-1]
    bar = {
        "type": "bar",
        "orientation": "h",
        "x": [importance[name] for name in names],
        "y": names,
        "marker": {"color": "@accent", "opacity": 0.88},
        "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
    }
    layout = {
        "height": 300,
        "xaxis": {"tickformat": ".0%", "rangemode": "tozero"},
        "yaxis": {"type": "category", "showgrid": False, "automargin": True},
        "showlegend": False,
    }
    return {"data": [bar], "layout": layout}
