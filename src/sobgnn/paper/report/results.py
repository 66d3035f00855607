"""A folder of JSON lines -> tables and plots in another folder; trains nothing."""

from __future__ import annotations

from pathlib import Path

from sobgnn._system.files import write_text
from sobgnn._system.packages import installed
from sobgnn.paper.protocol.results import read
from sobgnn.paper.report import plots, studies, tables
from sobgnn.paper.report.summary import summarize


def write(lines: Path, out: Path) -> list[Path]:
    """Write Markdown, CSV and a plot of every study in the lines; returns the paths, in order.

    Args:
        lines: Folder of JSON lines.
        out: Where the files go.
    """
    if not lines.exists():
        raise FileNotFoundError(f"No results at {lines}. Create some with `sobgnn reproduce table1`.")
    records = list(read(lines))
    cells = summarize(records)
    if not cells:
        raise ValueError(f"{lines} holds {len(records)} lines, but none of a final stage. Let a cell finish first.")
    out.mkdir(parents=True, exist_ok=True)
    drawn = installed("matplotlib")
    paths = []
    for study, name in (("table1", "table1"), ("few-labels", "few_labels"), ("ablations", "ablations")):
        own, lines_of = [c for c in cells if c.study == study], [r for r in records if r.study == study]
        if not own:
            continue
        if study == "table1":
            text = tables.table1_markdown(own, lines_of)
            paths += [plots.draw_table1(own, out)] if drawn else []
        elif study == "few-labels":
            text = studies.few_labels_markdown(own, lines_of)
            paths += [plots.draw_few_labels(own, out)] if drawn else []
        else:
            text = studies.ablations_markdown(own, lines_of)
        paths += [write_text(out / f"{name}.md", text), write_text(out / f"{name}.csv", tables.to_csv(own))]
    return paths
