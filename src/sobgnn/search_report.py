"""search.html: a search on one page that needs nothing else; best so far over time, and what mattered."""

from __future__ import annotations

import html
import json
from typing import Any

from sobgnn.report.colors import class_colors
from sobgnn.report.figures import Chart
from sobgnn.report.template import SCRIPT, STYLE, fill


def render_search(name: str, search: dict[str, Any]) -> str:
    """The page as HTML. ``search`` is what ``TuningResult.to_json`` gives."""
    from plotly.offline import get_plotlyjs

    charts: dict[str, Chart] = {}
    section = search_section({"search": search}, charts)
    head = (
        f'<header><div><div class="kicker">sobgnn search</div><h1>{html.escape(name)}</h1></div>'
        '<button id="theme" aria-label="Switch between light and dark">Dark</button></header>'
        '<button data-view="class" hidden></button>'  # the report's script presses its first view when it opens
    )
    data = json.dumps({"figures": charts, "colors": class_colors(10), "floor": 0.5}, allow_nan=False)
    # Nothing in the data can end the script element it stands in.
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    title = f"{html.escape(name)} · sobgnn search"
    return fill(title=title, style=STYLE, body=head + section, plotly=get_plotlyjs(), data=data, script=SCRIPT)


def search_section(measured: dict[str, Any], charts: dict[str, Chart]) -> str:
    """HTML of the section, its charts added to ``charts``; empty where there was no search."""
    search = measured.get("search")
    if not search:
        return ""
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
