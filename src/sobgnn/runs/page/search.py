"""The report's section on the search for a setting: the trials, the best so far, and what mattered."""

from __future__ import annotations

import html
from typing import Any

from sobgnn.runs.page import charts


def search_section(search: dict[str, Any]) -> str:
    """HTML of the section. ``search`` is the result of ``TuningResult.to_json``."""
    finished, pruned = len(search["trials"]), search["pruned"]
    early = f", {pruned:,} of them pruned early" if pruned else ""
    said = (
        f"{finished:,} of {search['wanted']:,} trials finished{early}. The best has a log "
        f"loss of {search['log_loss']:.3f} and an accuracy of {search['accuracy']:.1%} on labels held out"
    )
    before = search["default_log_loss"]
    said += f"; the setting before the search had {before:.3f}." if before is not None else "."
    said += " The best of many looks a little better than it is; hidden labels, where there are any, tell."
    shown = []
    if finished > 1:
        place = list(range(1, finished + 1))
        series = {
            "best so far": (place, search["best_so_far"]),
            "trial": (place, [trial["log_loss"] for trial in search["trials"]]),
        }
        drawn = charts.lines(series, "trials finished", whole=True, dots=("trial",))
        shown.append(charts.figure("<b>Out-of-fold log loss</b> of each trial, and the best so far", drawn))
    if len(search["importance"]) > 1:
        drawn = charts.bars(search["importance"], lambda share: f"{share:.0%}")
        shown.append(charts.figure("<b>What mattered</b> Share of the differences each parameter explains", drawn))
    return (
        f'<section><h2>The search</h2><p>{said}</p><div class="pair">{"".join(shown)}</div>'
        f'<div class="scroll narrow spaced">{_settings(search)}</div></section>'
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


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
