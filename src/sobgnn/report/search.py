"""The report's section on the search for a setting: the trials, the best so far, and what mattered."""

from __future__ import annotations

import html
from typing import Any

from sobgnn.report.figures import Chart


def search_section(search: dict[str, Any], charts: dict[str, Chart]) -> str:
    """HTML of the section, its charts added to ``charts``. ``search`` is what ``TuningResult.to_json`` gives."""
    charts["search"] = _over_time(search)
    finished, pruned = len(search["trials"]), search["pruned"]
    said = (
        f"{finished:,} of {search['wanted']:,} trials finished, {pruned:,} of them pruned early. The best has a log "
        f"loss of {search['log_loss']:.3f} and an accuracy of {search['accuracy']:.1%} on labels held out"
    )
    before = search["default_log_loss"]
    said += f"; the setting before the search had {before:.3f}." if before is not None else "."
    said += " The best of many looks a little better than it is; hidden labels, where there are any, tell."
    shown = [_figure("search", "<b>Log loss</b> of each trial, and the best so far")]
    if search["importance"]:
        charts["importance"] = _importance(search["importance"])
        shown.append(_figure("importance", "<b>What mattered</b> Share of the differences each parameter explains"))
    rows = "".join(
        f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(_short(value))}</td></tr>"
        for name, value in search["setting"].items()
    )
    table = f"<table><thead><tr><th>parameter</th><th>best</th></tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<section><h2>The search</h2><p>{said}</p><div class="pair">{"".join(shown)}</div>'
        f'<div class="scroll narrow">{table}</div></section>'
    )


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
