"""report.html: what was fitted and how far to trust it, on one page that needs nothing else."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from sobgnn.runs.page import figures
from sobgnn.runs.page.colors import class_colors
from sobgnn.runs.page.layout import plane_layout
from sobgnn.runs.page.search import search_section
from sobgnn.runs.page.template import SCRIPT, STYLE, fill

if TYPE_CHECKING:
    from sobgnn.runs.run import Fitted

MOST_POINTS = 100_000
_SUGGESTED = 20


def render(fitted: Fitted, measured: dict[str, Any]) -> str:
    """The page as HTML. ``measured`` is what ``fitted.metrics`` gives."""
    from plotly.offline import get_plotlyjs

    charts: dict[str, figures.Chart] = {}
    body = [
        _head(fitted, measured),
        _map(fitted, charts),
        _accuracy(fitted, measured, charts),
        _families(fitted, measured, charts),
        search_section(fitted.search, charts) if fitted.search else "",
        _training(fitted, charts),
        _graph(fitted, measured, charts),
        _next(fitted),
        _foot(measured),
    ]
    data = {
        "figures": charts,
        "colors": class_colors(max(10, len(fitted.table.classes))),
        "floor": round(1 / max(2, len(fitted.table.classes)), 3),
    }
    return fill(
        title=f"{_text(fitted.name)} · sobgnn",
        style=STYLE,
        body="\n".join(body),
        plotly=get_plotlyjs(),
        data=_json(data),
        script=SCRIPT,
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _json(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    written = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plot(name: str, caption: str, height: int) -> str:
    caption = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure>{caption}<div class="plot" id="{name}" style="height:{height}px"></div></figure>'


def _section(title: str, explanation: str, *content: str) -> str:
    return f"<section><h2>{title}</h2><p>{explanation}</p>{''.join(content)}</section>"


def _head(fitted: Fitted, measured: dict[str, Any]) -> str:
    settings, graph = measured["settings"], measured["graph"]
    where = (
        "a given graph"
        if fitted.table.graph is not None
        else f"a graph of each point's {min(settings['k'], measured['rows'] - 1)} nearest neighbors"
    )
    sentence = (
        f"{measured['labels_given']:,} labels became {measured['rows']:,}. Models of {len(measured['families'])} kinds "
        f"learned on the columns and on {where} with {graph['edges']:,} edges."
    )
    tiles = []
    if "accuracy" in measured:
        low, high = measured["accuracy_interval"]
        tiles.append(("first", f"{measured['accuracy']:.1%}", f"right on hidden labels ({low:.1%} to {high:.1%})"))
    tiles += [
        (
            "",
            f"{measured['labels_given']:,}",
            f"labels given, {measured['labels_given'] / measured['rows']:.1%} of rows",
        ),
        ("", f"{measured['rows']:,}", f"rows, {measured['features']:,} features"),
        ("", f"{len(measured['classes']):,}", "classes"),
        ("", f"{measured['seconds'].get('fitting', 0):.1f} s", "to fit"),
    ]
    shown = "".join(f'<div class="tile {kind}"><b>{value}</b><span>{said}</span></div>' for kind, value, said in tiles)
    stopped = (
        "" if measured["complete"] else '<p class="notice">Training was stopped by hand: this is the best so far.</p>'
    )
    return (
        f'<header><div><div class="kicker">sobgnn report</div><h1>{_text(fitted.name)}</h1></div>'
        f'<button id="theme" aria-label="Switch between light and dark">Dark</button></header>'
        f'<p class="lead">{_text(sentence)}</p>{stopped}<div class="tiles">{shown}</div>'
    )


def _map(fitted: Fitted, charts: dict[str, figures.Chart]) -> str:
    count = len(fitted.given)
    rows = np.arange(count)
    if count > MOST_POINTS:
        rows = np.sort(np.random.default_rng(0).choice(count, MOST_POINTS, replace=False))
    ids = fitted.table.ids
    names = [str(ids[row]) if ids is not None else f"row {row}" for row in rows]
    charts["map"] = figures.points_map(
        plane_layout(fitted.classifier.embedding_[rows]),
        names,
        fitted.table.classes,
        fitted.predicted[rows],
        fitted.confidence[rows],
        fitted.table.codes[rows],
        fitted.given[rows] != -1,
    )
    views = [("class", "Class"), ("confidence", "Confidence")] + (
        [("wrong", "Mistakes")] if fitted.hidden.any() else []
    )
    buttons = "".join(
        f'<button data-view="{view}" aria-pressed="{str(view == "class").lower()}">{name}</button>'
        for view, name in views
    )
    sampled = f"{MOST_POINTS:,} of {count:,} points, drawn at random. " if count > MOST_POINTS else ""
    hint = f"{sampled}Drag to move, scroll to zoom, double-click for all; click a class to hide it."
    bar = f'<div class="bar">{buttons}<span class="grow">{hint}</span></div>'
    return _section(
        "The points",
        "Each point where the model's last hidden layer puts it, near the points it resembles there. "
        "Directions and distances between far groups mean little; who is whose neighbor is what to look at.",
        bar,
        _plot("map", "", 560),
    )


def _accuracy(fitted: Fitted, measured: dict[str, Any], charts: dict[str, figures.Chart]) -> str:
    if "confusion" not in measured:
        return _section(
            "Accuracy", "Not known: no label was hidden. <code>--labels 0.1</code> on labeled data measures it."
        )
    counts = np.array(measured["confusion"], dtype=np.int64)
    classes = fitted.table.classes
    charts["confusion"] = figures.confusion_matrix(counts, classes)
    right = np.diag(counts)
    recall = right / np.maximum(counts.sum(axis=1), 1)
    precision = right / np.maximum(counts.sum(axis=0), 1)
    lines = "".join(
        f'<tr><td>{_text(name)}</td><td class="n">{counts[i].sum():,}</td><td class="n">{recall[i]:.1%}</td>'
        f'<td class="n">{precision[i]:.1%}</td></tr>'
        for i, name in sorted(enumerate(classes), key=lambda item: recall[item[0]])
    )
    table = (
        '<div class="scroll" style="max-height:540px"><table><thead><tr><th>class, hardest first</th>'
        f'<th class="n">hidden</th><th class="n">found</th>'
        f'<th class="n">right when named</th></tr></thead><tbody>{lines}</tbody></table></div>'
    )
    low, high = measured["accuracy_interval"]
    return _section(
        "Accuracy",
        f"On the {measured['labels_hidden']:,} labels that training did not see, {measured['accuracy']:.1%} are right "
        f"(95 % interval {low:.1%} to {high:.1%}); naming the most common class would give "
        f"{measured['majority_share']:.1%}.",
        '<div class="wide-left">',
        _plot("confusion", "<b>Confusion</b> Rows are true classes, columns what they were taken for", 480),
        table,
        "</div>",
    )


def _families(fitted: Fitted, measured: dict[str, Any], charts: dict[str, figures.Chart]) -> str:
    shown = []
    if len(measured["families"]) > 1:
        charts["families"] = figures.bars(measured["families"], "share", ".0%")
        shown.append(_plot("families", "<b>Families</b> and their shares in the result", 300))
    if measured["filter_importance"]:
        charts["filters"] = figures.bars(measured["filter_importance"], "log loss added", ".2f")
        shown.append(_plot("filters", "<b>Orders</b> Out-of-fold log loss that is added without each", 300))
    if not shown:
        return ""
    lines = "".join(f"<li>{_text(line.strip())}</li>" for line in fitted.classifier.describe().splitlines())
    return _section("What was decided", f"<ul>{lines}</ul>", '<div class="pair">', *shown, "</div>")


def _training(fitted: Fitted, charts: dict[str, figures.Chart]) -> str:
    history = fitted.classifier.history_
    shown = []
    for quantity, title, caption in (
        ("train_loss", "loss", "<b>Training loss</b>"),
        ("validation_accuracy", "accuracy", "<b>Accuracy on labels held out for early stopping</b>"),
    ):
        chart = figures.training_curves(history, quantity, title)
        if chart["data"]:
            charts[quantity] = chart
            shown.append(_plot(quantity, caption, 280))
    if not shown:
        return ""
    held_out = "" if len(shown) > 1 else " There were too few labels to hold some out, so a fixed schedule was used."
    return _section("Training", f"Mean over the networks.{held_out}", '<div class="pair">', *shown, "</div>")


def _graph(fitted: Fitted, measured: dict[str, Any], charts: dict[str, figures.Chart]) -> str:
    graph, facts = fitted.classifier.graph_, measured["graph"]
    said = [f"{facts['nodes']:,} points and {facts['edges']:,} edges in {_many(facts['components'], 'component')}."]
    if facts["isolated"]:
        said.append(f"{_many(facts['isolated'], 'point')} without a neighbor.")
    stranded = int((~np.asarray(fitted.classifier.component_labelled_, dtype=bool)).sum())
    if stranded:
        said.append(f"{_many(stranded, 'point')} reach no label through the graph and are judged by features alone.")
    charts["degrees"] = figures.histogram(graph.degree.numpy(), "neighbours", whole=True)
    shown = [_plot("degrees", "<b>Neighbors</b> of each point", 240)]
    if graph.num_edges:
        charts["weights"] = figures.histogram(graph.weight.numpy(), "weight")
        shown.append(_plot("weights", "<b>Weights</b> of the edges", 240))
    if facts["agreement"]:
        charts["agreement"] = figures.agreement(facts["agreement"])
        shown.append(_plot("agreement", "<b>Agreement</b> Weight<sup>ρ</sup> between equal labels", 240))
        first, last = facts["agreement"][0], facts["agreement"][-1]
        said.append(
            "Of the weight between points of known label, "
            f"{first:.1%} joins equal labels; of its {len(facts['agreement'])}th Hadamard power, {last:.1%}."
        )
    return _section("The graph", " ".join(said), '<div class="triple">', *shown, "</div>")


def _next(fitted: Fitted) -> str:
    unlabelled = int((fitted.given == -1).sum())
    if not unlabelled:
        return ""
    rows = np.asarray(fitted.classifier.suggest(min(_SUGGESTED, unlabelled)), dtype=np.int64)
    predicted, confidence = fitted.predicted, fitted.confidence
    classes, ids = fitted.table.classes, fitted.table.ids
    lines = "".join(
        f"<tr><td>{row}</td>"
        + (f"<td>{_text(ids[row])}</td>" if ids is not None else "")
        + f"<td>{_text(classes[predicted[row]])}</td>"
        + f'<td data-copy="{confidence[row]:.3f}"><span class="meter" style="width:{70 * confidence[row]:.0f}px">'
        + f"</span> {confidence[row]:.2f}</td></tr>"
        for row in rows
    )
    identity = "<th>id</th>" if ids is not None else ""
    return _section(
        "What to label next",
        "Points whose labels would teach the model most: uncertain, in dense places, and far from each other.",
        '<div class="bar"><button id="copy">Copy table</button>'
        '<span class="grow">Rows are counted from 0.</span></div>',
        f'<div class="scroll narrow"><table id="next"><thead><tr><th>row</th>{identity}<th>best guess</th>'
        f"<th>probability</th></tr></thead><tbody>{lines}</tbody></table></div>",
    )


def _foot(measured: dict[str, Any]) -> str:
    entries = {**measured["settings"], **{f"{name} version": v for name, v in measured["versions"].items()}}
    listed = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in entries.items())
    return (
        f"<details><summary>Settings and versions</summary><dl>{listed}</dl></details>"
        "<footer>This page is complete: it loads nothing and sends nothing.</footer>"
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
