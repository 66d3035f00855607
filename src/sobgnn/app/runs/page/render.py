"""report.html: how far to trust a run, what to do next and what was fitted, on one self-contained page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sobgnn.app import web
from sobgnn.app.runs.page.map import MOST_POINTS, MOST_TOLD, address, map_points, pictured, row_picture
from sobgnn.app.runs.result import Result
from sobgnn.app.runs.run import Fitted
from sobgnn.app.runs.source import row_contents
from sobgnn.app.runs.summary import GUESSING, details, headlines, next_steps, percent
from sobgnn.estimator.describing import TITLES, decisions
from sobgnn.tables.columns.names import counted

_BINS = 40
# Maximum number of rows in each list, and the side of their pictures.
_SUGGESTED, _SUSPECTS, _MISTAKES, _PICTURE = 20, 30, 30, 96
# Number of classes up to which a confusion matrix shows counts, and up to which it is shown at all.
_COUNTED, MOST_CONFUSED = 15, 40


def render(fitted: Fitted, result: Result) -> str:
    """The page as HTML: it loads nothing and sends nothing."""
    from jinja2 import Environment, StrictUndefined

    lists, charts = _lists(fitted, result.columns or {}, result.guessing), _charts(fitted, result)
    sections = {
        "points": "The points",
        "accuracy": "Accuracy",
        "columns": "Which columns matter" if result.columns else "",
        "next": "What to label next" if "next" in lists else "",
        "suspects": "Labels that look wrong" if "suspects" in lists else "",
        "mistakes": "Mistakes" if "mistakes" in lists else "",
        "blend": "The blend",
        "search": "The search" if result.search else "",
        "training": "Training" if charts["training"] else "",
        "graph": "The graph",
    }
    page = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    page.filters |= {"percent": percent, "breakable": _breakable, "number": "{:,}".format}
    page.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return page.from_string(web.read("report.html")).render(
        result=result,
        sections={name: title for name, title in sections.items() if title},
        headlines=headlines(result),
        details=details(result),
        steps=next_steps(result),
        guessing=GUESSING,
        pictured=pictured(fitted),
        most=MOST_POINTS,
        most_told=MOST_TOLD,
        accuracy=_accuracy(result),
        lists=lists,
        titles=TITLES,
        alone={name: own for name, own in fitted.classifier.family_accuracy_.items() if np.isfinite(own)},
        decisions=decisions(fitted.classifier),
        charts=charts,
        counted=counted,
        stranded=int((~np.asarray(fitted.classifier.component_labelled_, dtype=bool)).sum()),
        style="\n".join(map(web.read, ("colors.css", "report.css"))),
        script="\n".join(map(web.read, ("map.js", "charts.js", "report.js"))),
        data={"map": map_points(fitted, result.guessing), "charts": charts},
    )


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


def _charts(fitted: Fitted, result: Result) -> dict[str, list[dict[str, Any]]]:
    """The charts of each section, as web/charts.js draws them; those that would say nothing are left out."""
    graph, agreement, search = fitted.classifier.graph_, result.graph.agreement or (), result.search
    charts: dict[str, list[dict[str, Any] | None]] = {
        "training": [
            _curves(fitted, "train_loss", "Training loss", "mean over the networks", zero=True),
            _curves(fitted, "validation_accuracy", "Accuracy", "on labels held out for early stopping", percent=True),
        ],
        "graph": [
            _histogram(graph.degree.numpy(), "Neighbors", "of each point", whole=True),
            _histogram(graph.weight.numpy(), "Weights", "of the edges"),
        ],
        "search": [],
    }
    if len(agreement) > 2:
        options: dict[str, Any] = {"across": "Hadamard power ρ", "percent": True}
        charts["graph"].append(_lines({"agreement": agreement}, "Agreement", "of weight^ρ with labels", **options))
    if search and len(search["trials"]) > 1:
        lines = {"best so far": search["best_so_far"], "trial": [trial["log_loss"] for trial in search["trials"]]}
        chart = _lines(lines, "Out-of-fold log loss", "of each trial", across="trials finished")
        chart["series"][1]["dots"] = True
        charts["search"].append(chart)
    return {name: [chart for chart in found if chart is not None] for name, found in charts.items()}


def _lines(lines: Mapping[str, Sequence[float]], title: str, more: str, **options: Any) -> dict[str, Any]:
    """Lines over 1, 2, 3 and so on, by name."""
    series = [{"name": name, "x": list(range(1, len(y) + 1)), "y": list(y)} for name, y in lines.items()]
    return {"title": title, "more": more, "whole": True, "series": series, **options}


def _curves(fitted: Fitted, quantity: str, title: str, more: str, **options: Any) -> dict[str, Any] | None:
    """A quantity of each family over the epochs of its training."""
    series = []
    for name, curves in fitted.classifier.history_.items():
        values = np.asarray(curves.get(quantity, ()), dtype=float)
        if values.size > 1 and np.isfinite(values).all():
            series.append({"name": TITLES.get(name, name), "x": list(map(int, curves["epoch"])), "y": values.tolist()})
    chart = {"title": title, "more": more, "across": "epoch", "whole": True, "series": series, **options}
    return chart if series else None


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
