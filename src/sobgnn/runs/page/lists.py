"""Rows that a person should check, with their content: what to label next, labels that look wrong, mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sobgnn.runs.content import picture_path, row_content
from sobgnn.runs.metrics import suggested_rows
from sobgnn.runs.page.charts import text
from sobgnn.runs.page.pictures import address, thumbnail
from sobgnn.runs.run import Fitted

_SUGGESTED, _SUSPECTS, _MISTAKES = 20, 30, 30
_PICTURE = 72


def suggestions(fitted: Fitted, importance: Mapping[str, float]) -> str:
    """Section of rows worth a label, or nothing if every row has one."""
    rows = suggested_rows(fitted, _SUGGESTED)
    if not len(rows):
        return ""
    predicted, confidence, classes = fitted.predicted, fitted.confidence, fitted.table.classes
    cells = [[text(classes[predicted[row]]), _meter(confidence[row])] for row in rows]
    return _section(
        "next",
        "What to label next",
        "Rows whose labels would help most: uncertain, in dense regions, and far from each other.",
        _table(fitted, rows.tolist(), ("best guess", "probability"), cells, importance, name="next"),
    )


def suspects(fitted: Fitted, importance: Mapping[str, float]) -> str:
    """Section of given labels that look wrong, or nothing if none does."""
    found = fitted.classifier.suspects()
    if not found:
        return ""
    shown = found[:_SUSPECTS]
    cells = [[text(s.given), _meter(s.probability), text(s.predicted), _meter(s.predicted_probability)] for s in shown]
    more = f" The first {len(shown)} of {len(found):,}." if len(shown) < len(found) else ""
    return _section(
        "suspects",
        "Labels that look wrong",
        "Given labels that models which did not see them disagree with, most suspicious first. Some are wrong, others "
        f"are only hard to predict: check before changing them.{more}",
        _table(
            fitted,
            [s.row for s in shown],
            ("given", "its probability", "predicted", "probability"),
            cells,
            importance,
            name="suspects",
        ),
    )


def mistakes(fitted: Fitted, importance: Mapping[str, float]) -> str:
    """Section of hidden labels that were predicted wrong, most confident first, or nothing if there are none."""
    predicted, confidence, codes = fitted.predicted, fitted.confidence, fitted.table.codes
    wrong = np.flatnonzero(fitted.hidden & (predicted != codes))
    if not len(wrong):
        return ""
    rows = wrong[np.argsort(-confidence[wrong], kind="stable")][:_MISTAKES]
    classes = fitted.table.classes
    cells = [[text(classes[codes[row]]), text(classes[predicted[row]]), _meter(confidence[row])] for row in rows]
    more = f" The first {len(rows)} of {len(wrong):,}." if len(rows) < len(wrong) else ""
    return _section(
        "mistakes",
        "Mistakes",
        f"Hidden labels that were predicted wrong, most confident first.{more}",
        _table(fitted, rows.tolist(), ("hidden label", "predicted", "probability"), cells, importance, name="mistakes"),
    )


def _section(place: str, title: str, explanation: str, table: str) -> str:
    button = f'<div class="bar"><button data-copy="{place}-table">Copy table</button>'
    note = '<span class="grow">Rows are counted from 0.</span></div>'
    return f'<section id="{place}"><h2>{title}</h2><p>{explanation}</p>{button}{note}{table}</section>'


def _table(
    fitted: Fitted,
    rows: Sequence[int],
    heads: Sequence[str],
    cells: Sequence[Sequence[str]],
    importance: Mapping[str, float],
    *,
    name: str,
) -> str:
    ids = fitted.table.ids
    contents = [_content(fitted.table, row, importance) for row in rows]
    named = ["row", *(["id"] if ids is not None else []), *heads, *(["content"] if any(contents) else [])]
    lines = []
    for row, own, content in zip(rows, cells, contents, strict=True):
        line = [str(row), *([text(ids[row])] if ids is not None else []), *own]
        # On a narrow page each cell shows its heading, and the content goes below.
        shown = "".join(f'<td data-head="{head}">{cell}</td>' for head, cell in zip(named, line, strict=False))
        shown += f'<td class="text">{content}</td>' if any(contents) else ""
        lines.append(f"<tr>{shown}</tr>")
    head = "".join(f"<th>{title}</th>" for title in named)
    return (
        f'<div class="scroll"><table class="rows" id="{name}-table"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _content(table: Any, row: int, importance: Mapping[str, float]) -> str:
    """The row's picture, if it has one, and a few of its columns."""
    cells = row_content(table, row, importance) if table.encoding.named else {}
    said = " ".join(f'<span class="cell"><i>{text(name)}</i> {text(cell)}</span>' for name, cell in cells.items())
    picture = thumbnail(picture_path(table, row), _PICTURE)
    return ("" if picture is None else f'<img alt="" src="{address(picture)}">') + said


def _meter(share: float) -> str:
    return (
        f'<span class="meter" style="width:{60 * float(share):.0f}px"></span> <span class="v">{float(share):.2f}</span>'
    )
