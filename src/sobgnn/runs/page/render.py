"""report.html: how far to trust a run, what to do next and what was fitted, on one self-contained page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sobgnn.runs.page import charts, lists
from sobgnn.runs.page.charts import figure, text
from sobgnn.runs.page.colors import class_colors
from sobgnn.runs.page.points import MOST_POINTS, MOST_TOLD, map_points
from sobgnn.runs.page.search import search_section
from sobgnn.runs.page.template import STYLE, fill
from sobgnn.runs.words import GUESSING, is_guessing, next_steps, quality
from sobgnn.tables.columns import counted

if TYPE_CHECKING:
    from sobgnn.runs.run import Fitted

_MOST_BARS = 20


def render(fitted: Fitted, measured: dict[str, Any]) -> str:
    """The page as HTML. ``measured`` is the result of ``metrics.metrics``, with ``columns`` if they were measured."""
    importance = measured.get("columns") or {}
    body = [
        _head(fitted, measured),
        _map(fitted, measured),
        _accuracy(fitted, measured),
        _columns(importance),
        lists.suggestions(fitted, importance),
        "" if is_guessing(measured) else lists.suspects(fitted, importance),
        lists.mistakes(fitted, importance),
        _families(fitted, measured),
        search_section(fitted.search) if fitted.search else "",
        _training(fitted),
        _graph(fitted, measured),
        _foot(measured),
    ]
    data = {
        "map": map_points(fitted),
        "colors": class_colors(max(10, len(fitted.table.classes))),
        "gray": is_guessing(measured),
    }
    return fill(title=f"{text(fitted.name)} · sobgnn", style=STYLE, body="\n".join(body), data=_json(data))


def _json(value: Any) -> str:
    """JSON that cannot end the enclosing script element."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(title: str, explanation: str, *content: str) -> str:
    return f"<section><h2>{title}</h2><p>{explanation}</p>{''.join(content)}</section>"


def _head(fitted: Fitted, measured: dict[str, Any]) -> str:
    held = measured["held_out"]
    first, *others = quality(measured)
    kind = "verdict bad" if is_guessing(measured) else "verdict"
    said = f'<p class="{kind}">{text(first)}</p>' + "".join(f"<p>{text(line)}</p>" for line in others)
    notes = "".join(f"<li>{text(note)}</li>" for note in measured["notes"])
    used = f"<h3>How columns were read, and what was not used</h3><ul>{notes}</ul>" if notes else ""
    steps = "".join(f"<li>{text(line)}</li>" for line in next_steps(measured, measured["suggested"]))
    todo = f"<h3>What to do next</h3><ul>{steps}</ul>" if steps else ""
    tiles = []
    if held["labels"]:
        low, high = held["interval"]
        tiles.append(("first", f"{held['accuracy']:.1%}", f"estimated accuracy ({low:.1%} to {high:.1%})"))
    if "accuracy" in measured:
        low, high = measured["accuracy_interval"]
        tiles.append(("first", f"{measured['accuracy']:.1%}", f"accuracy on hidden labels ({low:.1%} to {high:.1%})"))
    share = measured["labels_given"] / measured["rows"]
    labels, rows = (counted(measured[key], what) for key, what in (("labels_given", "label"), ("rows", "row")))
    classes = counted(len(measured["classes"]), "class")
    for line, more in (
        (labels, f" given, {share:.1%} of rows"),
        (rows, f", {counted(measured['features'], 'feature')}"),
        (classes, ""),
    ):
        number, what = line.split()
        tiles.append(("", number, what + more))
    shown = "".join(f'<div class="tile {kind}"><b>{value}</b><span>{of}</span></div>' for kind, value, of in tiles)
    return (
        f'<header><div><div class="kicker">sobgnn report</div><h1>{text(fitted.name)}</h1></div>'
        f'<button id="theme" aria-label="Switch between light and dark">Dark</button></header>'
        f'<div class="summary">{said}{used}{todo}</div><div class="tiles">{shown}</div>'
    )


def _map(fitted: Fitted, measured: dict[str, Any]) -> str:
    count = len(fitted.given)
    gray = is_guessing(measured)
    views = [("class", "Class"), ("confidence", "Confidence")]
    views += [("wrong", "Mistakes")] if fitted.hidden.any() else []
    buttons = "".join(
        f'<button data-view="{view}" aria-pressed="{str(view == "class").lower()}">{name}</button>'
        for view, name in views
        if not gray
    )
    sampled = f"{MOST_POINTS:,} of {count:,} points, drawn at random. " if count > MOST_POINTS else ""
    hide = "" if gray else " Click a class to hide it."
    seen = ""
    if fitted.table.encoding.pictures is not None:
        many = count > MOST_TOLD
        seen = f" Pictures are shown for up to {MOST_TOLD:,} points." if many else " Point at one to see its picture."
    hint = f"{sampled}Drag to move, scroll to zoom, double-click for all.{hide}{seen}"
    over = f'<div class="over">{GUESSING}</div>' if gray else ""
    return _section(
        "The points",
        "Points that the model's last hidden layer finds similar lie close together. Look at which points are "
        "neighbors; directions and distances between far groups mean little.",
        f'<div class="bar">{buttons}<span class="grow">{hint}</span></div>',
        f'<figure class="map"><div class="box"><canvas id="map"></canvas>{over}<div id="tip" hidden></div></div>'
        '<div class="keys" id="legend"></div></figure>',
    )


def _accuracy(fitted: Fitted, measured: dict[str, Any]) -> str:
    held = measured["held_out"]
    parts = []
    if held["labels"]:
        low, high = held["interval"]
        parts.append(
            f"Each of {held['labels']:,} given labels was predicted by a model that did not see it: "
            f"{held['accuracy']:.1%} are correct (95% interval {low:.1%} to {high:.1%}). The final model learned from "
            "all labels, so it is usually a little better. The estimate assumes that the labeled rows were drawn at "
            "random."
        )
    if "confusion" in measured:
        low, high = measured["accuracy_interval"]
        parts.append(
            f"Of {measured['labels_hidden']:,} hidden labels, {measured['accuracy']:.1%} are predicted correctly "
            f"({low:.1%} to {high:.1%}); always predicting the largest class would give "
            f"{measured['majority_share']:.1%}."
        )
    shown = [
        _judged(np.array(held["confusion"], dtype=np.int64), fitted, "Held out", "given") if held["labels"] else "",
        _judged(np.array(measured["confusion"], dtype=np.int64), fitted, "Hidden", "hidden")
        if "confusion" in measured
        else "",
    ]
    if not parts:
        return _section("Accuracy", text(quality(measured)[0]))
    return _section("Accuracy", " ".join(parts), *shown)


def _judged(counts: Any, fitted: Fitted, name: str, kind: str) -> str:
    """A confusion matrix beside recall and precision of each class."""
    classes = fitted.table.classes
    right, have, named = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    order = sorted(np.flatnonzero(have).tolist(), key=lambda i: right[i] / have[i])
    lines = "".join(
        f'<tr><td>{text(classes[i])}</td><td class="n">{have[i]:,}</td><td class="n">{right[i] / have[i]:.1%}</td>'
        f'<td class="n">{f"{right[i] / named[i]:.1%}" if named[i] else "never predicted"}</td></tr>'
        for i in order
    )
    table = (
        f'<div class="scroll"><table><thead><tr><th>class, hardest first</th><th class="n">{kind}</th>'
        f'<th class="n">recall</th><th class="n">precision</th></tr></thead><tbody>{lines}</tbody></table></div>'
    )
    if len(classes) > charts.MOST_CONFUSED:
        return f'<div class="spaced">{table}</div>'
    matrix = figure(f"<b>{name} labels</b> and their predictions", charts.confusion_matrix(counts, classes))
    return f'<div class="wide-left spaced">{matrix}{table}</div>'


def _columns(importance: dict[str, float]) -> str:
    if not importance:
        return ""
    shown = dict(list(importance.items())[:_MOST_BARS])
    more = f" The first {len(shown)} of {len(importance)} columns." if len(shown) < len(importance) else ""
    if max(shown.values()) <= 0:
        return _section("Which columns matter", "None: shuffling any one of them does not make predictions worse.")
    return _section(
        "Which columns matter",
        "Drop in the correct class's probability on held-out labels when a column is shuffled, with models fitted on "
        "half of the labels. Redundant columns share their importance; a value near 0 may be chance."
        f"{more}",
        figure("<b>Columns</b>", charts.bars(shown, lambda value: f"{value:.3f}")),
    )


def _families(fitted: Fitted, measured: dict[str, Any]) -> str:
    shown = []
    if len(measured["families"]) > 1:
        shares = dict(sorted(measured["families"].items(), key=lambda item: -item[1]))
        bars = charts.bars(shares, lambda share: f"{share:.0%}")
        shown.append(figure("<b>Families</b> and their shares in the blend", bars))
    if len(measured["filter_importance"]) > 1:
        bars = charts.bars(measured["filter_importance"], lambda loss: f"{loss:.2f}")
        shown.append(figure("<b>Sobolev networks</b>: rise of the out-of-fold log loss without each input", bars))
    # The accuracy is above, with its interval; here classes count by their frequency, which would be another number.
    said = [line.strip() for line in fitted.classifier.describe().splitlines() if not line.startswith("Out-of-fold")]
    lines = "".join(f"<li>{text(line)}</li>" for line in said)
    return f'<section><h2>What was decided</h2><ul>{lines}</ul><div class="pair">{"".join(shown)}</div></section>'


def _training(fitted: Fitted) -> str:
    shown = []
    for quantity, caption, percent in (
        ("train_loss", "<b>Training loss</b>", False),
        ("validation_accuracy", "<b>Accuracy on labels held out for early stopping</b>", True),
    ):
        series = {}
        for name, curves in fitted.classifier.history_.items():
            values = np.asarray(curves.get(quantity, ()), dtype=float)
            if values.size > 1 and np.isfinite(values).all():
                series[name] = (list(curves["epoch"]), values.tolist())
        if series:
            drawn = charts.lines(series, "epoch", percent=percent, whole=True, zero=not percent)
            shown.append(figure(caption, drawn))
    if not shown:
        return ""
    return _section("Training", "Mean over the networks.", '<div class="pair">', *shown, "</div>")


def _graph(fitted: Fitted, measured: dict[str, Any]) -> str:
    graph, facts = fitted.classifier.graph_, measured["graph"]
    said = [f"{facts['nodes']:,} points and {facts['edges']:,} edges in {_many(facts['components'], 'component')}."]
    if facts["isolated"]:
        said.append(f"{_many(facts['isolated'], 'point')} without a neighbor.")
    stranded = int((~np.asarray(fitted.classifier.component_labelled_, dtype=bool)).sum())
    if stranded:
        said.append(
            f"{_many(stranded, 'point')} reach no label through the graph and are predicted from features only."
        )
    shown = []
    degrees = charts.histogram(graph.degree.numpy(), "neighbors", whole=True)
    if degrees is None:
        said.append(f"Every point has {int(facts['degree_quantiles'][0]):,} neighbors.")
    else:
        shown.append(figure("<b>Neighbors</b> of each point", degrees))
    weights = charts.histogram(graph.weight.numpy(), "weight") if graph.num_edges else None
    if weights is not None:
        shown.append(figure("<b>Weights</b> of the edges", weights))
    agreement = facts["agreement"]
    if agreement:
        said.append(f"Of the edge weight between labeled points, {agreement[0]:.1%} connects equal labels")
        said[-1] += f"; of its Hadamard power ρ = {len(agreement)}, {agreement[-1]:.1%}." if len(agreement) > 1 else "."
    if len(agreement) > 2:
        series = {"agreement": (list(range(1, len(agreement) + 1)), agreement)}
        drawn = charts.lines(series, "Hadamard power ρ", percent=True, whole=True)
        shown.append(figure("<b>Agreement</b> Weight<sup>ρ</sup> between equal labels", drawn))
    return _section("The graph", " ".join(said), '<div class="triple">', *shown, "</div>")


def _foot(measured: dict[str, Any]) -> str:
    entries = {**measured["settings"], **{f"{name} version": v for name, v in measured["versions"].items()}}
    entries["seconds"] = ", ".join(f"{stage} {spent:.1f}" for stage, spent in measured["seconds"].items())
    listed = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in entries.items())
    return (
        f"<details><summary>Settings, time and versions</summary><dl>{listed}</dl></details>"
        "<footer>This page is self-contained: it loads nothing and sends nothing.</footer>"
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
