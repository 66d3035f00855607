"""A folder of JSON lines -> tables and plots in another folder; trains nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sobgnn.protocol.report import plots, studies, tables
from sobgnn.protocol.report.summary import summarize
from sobgnn.protocol.results import read
from sobgnn.runtime.files import write_text
from sobgnn.runtime.packages import installed


def write(lines: Path, out: Path, device_minutes: Mapping[str, float] | None = None) -> list[Path]:
    """Write Markdown, CSV, LaTeX and plots of every study in the lines; returns the paths, in order.

    Args:
        lines: Folder of JSON lines.
        out: Where the files go.
        device_minutes: Study -> how long devices were in use for it, if measured.
    """
    if not lines.exists():
        raise FileNotFoundError(f"No results at {lines}. Create some with `python -m sobgnn.protocol table1`.")
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
        minutes = (device_minutes or {}).get(study)
        if study == "table1":
            text = tables.table1_markdown(own, lines_of, minutes)
            paths.append(write_text(out / f"{name}.tex", tables.to_latex(own)))
            paths += plots.draw_table1(own, out) if drawn else []
        elif study == "few-labels":
            text = studies.few_labels_markdown(own, lines_of, minutes)
            paths += plots.draw_few_labels(own, out) if drawn else []
        else:
            text = studies.ablations_markdown(own, lines_of, minutes)
        paths += [write_text(out / f"{name}.md", text), write_text(out / f"{name}.csv", tables.to_csv(own))]
    return paths
