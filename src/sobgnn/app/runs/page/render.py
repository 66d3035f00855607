"""report.html: how far to trust a run, what to do next and what was fitted, on one self-contained page."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sobgnn.app import web
from sobgnn.app.runs.page.map import MOST_POINTS, MOST_TOLD, address, map_points, pictured, row_picture
from sobgnn.app.runs.result import Result
from sobgnn.app.runs.run import Fitted
from sobgnn.app.runs.source import row_contents
from sobgnn.app.runs.summary import (
    GUESSING,
    details,
    headlines,
    interval_words,
    largest_class,
    never_held_out,
    next_steps,
    percent,
)
from sobgnn.estimator.describing import TITLES, decisions
from sobgnn.tables.columns.names import counted

_MOST_BARS, _BINS = 20, 40
# Maximum number of rows in each list, and the side of their pictures.
_SUGGESTED, _SUSPECTS, _MISTAKES, _PICTURE = 20, 30, 30, 96
# Number of classes up to which a confusion matrix shows counts, and up to which it is shown at all.
_COUNTED, MOST_CONFUSED = 15, 40


def render(fitted: Fitted, result: Result) -> str:
    """The page as HTML: it loads nothing and sends nothing."""
    from jinja2 import Environment, StrictUndefined

    importance = result.columns or {}
    listed = _lists(fitted, importance, result.guessing)
    search = _search(result.search) if result.search else None
    charts = {
        "training": _training(fitted),
        "graph": _graph(fitted, result),
        "search": search["charts"] if search else [],
    }
    sections = {
        "points": "The points",
        "accuracy": "Accuracy",
        "columns": "Which columns matter" if importance else "",
        "next": "What to label next" if "next" in listed else "",
        "suspects": "Labels that look wrong" if "suspects" in listed else "",
        "mistakes": "Mistakes" if "mistakes" in listed else "",
        "blend": "The blend",
        "search": "The search" if search else "",
        "training": "Training" if charts["training"] else "",
        "graph": "The graph",
    }
    shown = {name: title for name, title in sections.items() if title}
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {"percent": percent, "interval": interval_words, "breakable": _breakable}
    return page.from_string(web.read("report.html")).render(
        result=result,
        sections=shown,
        headlines=headlines(result),
        details=details(result),
        steps=[(step.text, step.section if step.section in shown else "") for step in next_steps(result)],
        measures=_measures(result),
        views=[] if result.guessing else _views(fitted),
        over=GUESSING if result.guessing else "",
        hint=_hint(fitted, result),
        accuracy=_accuracy(result),
        columns=_bars(dict(list(importance.items())[:_MOST_BARS]), "{:.3f}"),
        importance_top=max(importance.values(), default=0.0),
        more_columns=len(importance) if len(importance) > _MOST_BARS else 0,
        lists=listed,
        families=_families(fitted, result),
        filters=_bars(result.filter_importance, "{:.2f}") if len(result.filter_importance) > 1 else [],
        decisions=decisions(fitted.classifier),
        search=search,
        charts=charts,
        graph=_graph_words(fitted, result),
        settings=_settings(result),
        style="\n".join(map(web.read, ("colors.css", "report.css"))),
        script="\n".join(map(web.read, ("map.js", "charts.js", "report.js"))),
        data=_json({"map": map_points(fitted, result.guessing), "charts": charts}),
    )


def _json(value: Any) -> str:
    """JSON that cannot end the enclosing script element."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _breakable(name: Any) -> str:
    """A name as HTML whose lines break after a sign in it, and not in a word."""
    from markupsafe import Markup

    return Markup("<wbr>").join(re.split(r"(?<=[/_.:@-])(?=.)", str(name)))


def _lists(fitted: Fitted, importance: Mapping[str, float], guessing: bool) -> dict[str, dict[str, Any]]:
    """Rows worth a label, given labels that look wrong, hidden labels that were predicted wrong; none if empty."""
    codes, confidence = fitted.table.codes, fitted.confidence.tolist()
    names = [str(name) for name in fitted.table.classes]
    best = [names[code] for code in fitted.predicted.tolist()]
    wrong = np.flatnonzero(fitted.hidden & (fitted.predicted != codes))
    wrong = wrong[np.argsort(-fitted.confidence[wrong], kind="stable")]
    worth = [(row, best[row], confidence[row]) for row in fitted.suggested(_SUGGESTED).tolist()]
    doubted = [
        (each.row, str(each.given), each.probability, str(each.predicted), each.predicted_probability)
        for each in ([] if guessing else fitted.suspects[:_SUSPECTS])
    ]
    mistaken = [(row, names[codes[row]], best[row], confidence[row]) for row in wrong[:_MISTAKES].tolist()]
    found: tuple[tuple[str, list[Any], int, tuple[str, ...]], ...] = (
        ("next", worth, len(worth), ("best guess", "probability")),
        ("suspects", doubted, len(fitted.suspects), ("given", "its probability", "predicted", "probability")),
        ("mistakes", mistaken, len(wrong), ("hidden label", "predicted", "probability")),
    )
    return {name: _list(fitted, heads, rows, importance, total) for name, rows, total, heads in found if rows}


def _list(
    fitted: Fitted, heads: Sequence[str], rows: Sequence[Any], importance: Mapping[str, float], total: int
) -> dict[str, Any]:
    """Rows with what was found, ``(row, *cells)``, a few of their columns and their pictures."""
    table = fitted.table
    own = ["row", *([] if table.ids is None else [table.encoding.id or "id"]), *heads]
    contents = row_contents(table, [row for row, *_ in rows], importance)
    heads = [*own, *contents[0]]
    lines, copied = [], [heads]
    for (row, *found), content in zip(rows, contents, strict=True):
        cells = [str(row), *([] if table.ids is None else [str(table.ids[row])]), *found, *content.values()]
        picture = row_picture(fitted, row, _PICTURE) if pictured(fitted) else None
        lines.append({"cells": cells, "picture": None if picture is None else address(picture)})
        copied.append([" ".join((f"{cell:.2f}" if isinstance(cell, float) else cell).split()) for cell in cells])
    cards = any(line["picture"] for line in lines)
    tsv = "\n".join("\t".join(line) for line in copied)
    return {"heads": heads, "own": len(own), "lines": lines, "cards": cards, "total": total, "tsv": tsv}


def _measures(result: Result) -> list[tuple[str, str, str]]:
    """The headline as large numbers, what each is, and on what; empty if the sentence says it better."""
    held, hidden, found = result.held_out, result.hidden, []
    if held.labels and held.verdict == "better":
        on = f"{interval_words(held.interval)}, on {held.labels:,} held-out labels{never_held_out(held)}"
        found.append((percent(held.accuracy), "estimated accuracy", f"{on}; {largest_class(held)}"))
    if hidden is not None and (found or not held.labels):
        on = f"{interval_words(hidden.accuracy_interval)}, on {result.labels_hidden:,} labels that were hidden"
        found.append((percent(hidden.accuracy), "accuracy on hidden labels", on))
    return found


def _views(fitted: Fitted) -> list[tuple[str, str]]:
    wrong = [("wrong", "Mistakes")] if fitted.hidden.any() else []
    return [("class", "Class"), ("confidence", "Confidence"), *wrong]


def _hint(fitted: Fitted, result: Result) -> str:
    count = result.rows
    said = f"{MOST_POINTS:,} of {count:,} points, drawn at random. " if count > MOST_POINTS else ""
    said += "" if result.guessing else "Click a class to hide it. "
    if pictured(fitted):
        many = f"Pictures are shown for up to {MOST_TOLD:,} points."
        said += many if count > MOST_TOLD else "Point at a dot, or tap it, to see its picture."
    return said


def _accuracy(result: Result) -> list[dict[str, Any]]:
    """A confusion matrix beside recall and precision of each class, for held-out and for hidden labels."""
    held, hidden, names = result.held_out, result.hidden, [str(name) for name in result.classes]
    parts = [("Held-out labels", "given", held.confusion)] if held.labels else []
    parts += [("Hidden labels", "hidden", hidden.confusion)] if hidden else []
    return [{"name": name, "kind": kind, **_judged(np.array(counts), names)} for name, kind, counts in parts]


def _judged(counts: Any, names: list[str]) -> dict[str, Any]:
    right, have, named = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    true, columns = np.flatnonzero(have).tolist(), np.flatnonzero(have + named).tolist()
    table = [
        (names[i], int(have[i]), right[i] / have[i], right[i] / named[i] if named[i] else None)
        for i in sorted(true, key=lambda i: right[i] / have[i])
    ]
    if len(columns) > MOST_CONFUSED:
        return {"table": table, "matrix": None}
    cells = [
        (names[i], [(int(counts[i, j]), counts[i, j] / have[i], names[j]) for j in columns]) for i in true
    ]  # fmt: skip
    heads = [names[j] for j in columns]
    upright = len(heads) > 6 and max(map(len, heads)) > 3
    return {
        "table": table,
        "matrix": {"columns": heads, "rows": cells, "few": len(heads) <= _COUNTED, "upright": upright},
    }


def _bars(values: Mapping[str, float], form: str) -> list[tuple[str, str, float, float]]:
    """Name, number, and where the bar begins and how long it is, in percent; bars below 0 go to the left."""
    low, high = min([*values.values(), 0.0]), max([*values.values(), 0.0])
    span = (high - low) or 1.0
    return [
        (name, _unsigned(form.format(value)), 100 * (min(value, 0) - low) / span, 100 * abs(value) / span)
        for name, value in values.items()
    ]


def _unsigned(number: str) -> str:
    """The number without the sign of a negative one that is 0 when rounded."""
    return number.lstrip("-") if not number.strip("-0.") else number


def _families(fitted: Fitted, result: Result) -> list[tuple[str, str, float, str]]:
    """Name, share as text, length of its bar, and its own accuracy, largest share first."""
    alone = {name: percent(own) for name, own in fitted.classifier.family_accuracy_.items() if np.isfinite(own)}
    shares = dict(sorted(result.families.items(), key=lambda item: -item[1]))
    return [
        (TITLES.get(name, name), share, length, alone.get(name, ""))
        for name, share, _, length in _bars(shares, "{:.0%}")
    ]


def _training(fitted: Fitted) -> list[dict[str, Any]]:
    charts = []
    for quantity, title, more, is_share in (
        ("train_loss", "Training loss", "mean over the networks", False),
        ("validation_accuracy", "Accuracy", "on labels held out for early stopping", True),
    ):
        series = []
        for name, curves in fitted.classifier.history_.items():
            values = np.asarray(curves.get(quantity, ()), dtype=float)
            if values.size > 1 and np.isfinite(values).all():
                x = list(map(int, curves["epoch"]))
                series.append({"name": TITLES.get(name, name), "x": x, "y": values.tolist()})
        if series:
            options = {"percent": is_share, "zero": not is_share, "whole": True}
            charts.append({"title": title, "more": more, "across": "epoch", "series": series, **options})
    return charts


def _graph(fitted: Fitted, result: Result) -> list[dict[str, Any]]:
    graph, agreement = fitted.classifier.graph_, list(result.graph.agreement or ())
    charts = [
        _histogram(graph.degree.numpy(), "Neighbors", "of each point", whole=True),
        _histogram(graph.weight.numpy(), "Weights", "of the edges") if graph.num_edges else None,
    ]
    if len(agreement) > 2:
        series = [{"name": "agreement", "x": list(range(1, len(agreement) + 1)), "y": agreement}]
        options = {"percent": True, "whole": True, "across": "Hadamard power ρ"}
        charts.append({"title": "Agreement", "more": "of weight^ρ with labels", "series": series, **options})
    return [chart for chart in charts if chart is not None]


def _histogram(values: Any, title: str, more: str, *, whole: bool = False) -> dict[str, Any] | None:
    """Counts in up to 40 bins; ``None`` if all values are equal, which a sentence shows better."""
    if not len(values) or float(values.min()) == float(values.max()):
        return None
    edges: Any = np.linspace(0, float(values.max()), _BINS + 1)
    if whole:
        first, last = int(values.min()), int(values.max())
        width = max(1, -(-(last - first + 1) // _BINS))
        edges = np.arange(first, last + width + 1, width) - 0.5
    counts, edges = np.histogram(values, edges)
    bins = {"counts": counts.tolist(), "edges": edges.tolist(), "across": title.lower(), "whole": whole}
    return {"title": title, "more": more, **bins}


def _graph_words(fitted: Fitted, result: Result) -> list[str]:
    facts, agreement = result.graph, result.graph.agreement
    said = [f"{facts.nodes:,} points and {facts.edges:,} edges in {counted(facts.components, 'component')}."]
    if facts.isolated:
        said.append(f"{counted(facts.isolated, 'point')} without a neighbor.")
    stranded = int((~np.asarray(fitted.classifier.component_labelled_, dtype=bool)).sum())
    if stranded:
        said.append(
            f"{counted(stranded, 'point')} reach no label through the graph and are predicted from features only."
        )
    low, high = facts.degree_quantiles[0], facts.degree_quantiles[-1]
    if low == high:
        said.append(f"Every point has {int(low):,} neighbors.")
    if agreement:
        power = f"; of its Hadamard power ρ = {len(agreement)}, {percent(agreement[-1])}" if len(agreement) > 1 else ""
        said.append(f"Of the edge weight between labeled points, {percent(agreement[0])} connects equal labels{power}.")
    return said


def _search(search: Mapping[str, Any]) -> dict[str, Any]:
    """The trials, the best so far, what mattered, and the best setting beside the one before the search."""
    trials, pruned, before = search["trials"], search["pruned"], search["default_log_loss"]
    early = f", {pruned:,} of them pruned early" if pruned else ""
    said = [
        f"{len(trials):,} of {search['wanted']:,} trials finished{early}.",
        f"The best has a log loss of {search['log_loss']:.3f} and an accuracy of {percent(search['accuracy'])} on "
        "labels held out" + (f"; the setting before the search had {before:.3f}." if before is not None else "."),
        "The best of many looks a little better than it is; hidden labels, where there are any, tell.",
    ]
    x = list(range(1, len(trials) + 1))
    series = [
        {"name": "best so far", "x": x, "y": search["best_so_far"]},
        {"name": "trial", "x": x, "y": [trial["log_loss"] for trial in trials], "dots": True},
    ]
    chart = {"title": "Out-of-fold log loss", "more": "of each trial", "across": "trials finished", "whole": True}
    first = min(trials, key=lambda trial: trial["number"])["setting"]
    return {
        "said": said,
        "charts": [{**chart, "series": series}] if len(trials) > 1 else [],
        "mattered": _bars(search["importance"], "{:.0%}") if len(search["importance"]) > 1 else [],
        "settings": [
            (name, _short(first.get(name, value)), _short(value)) for name, value in search["setting"].items()
        ],
    }


def _settings(result: Result) -> dict[str, str]:
    seconds = ", ".join(f"{stage} {spent:.1f}" for stage, spent in result.seconds.items())
    versions = {f"{name} version": version for name, version in result.versions.items()}
    return {name: str(value) for name, value in {**result.settings, **versions, "seconds": seconds}.items()}


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
