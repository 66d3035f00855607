"""What users need to know about a run, in sentences: how good it is, what was not used, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sobgnn.app.runs.result import Accepted, HeldOut, Result
from sobgnn.estimator.trust import BETTER_LEVEL, HARD
from sobgnn.tables.columns.names import counted
from sobgnn.tables.predictions import Sheet

GUESSING = "Not shown to be better than guessing"
# Least number of labels per class from which hiding most of them leaves enough to learn from.
_HIDEABLE = 10
# Share of held-out labels that are hard to predict from which they are counted.
_HARD = 0.05


def percent(share: float) -> str:
    """A share as users see it, such as 95.5%."""
    return f"{share:.1%}"


def interval_words(interval: Sequence[float]) -> str:
    """The interval of a share, such as 95% interval 91.4% to 97.7%."""
    return f"95% interval {percent(interval[0])} to {percent(interval[1])}"


def formula_notes(count: int) -> list[str]:
    """The note about cells that were made harmless, if there are any."""
    return [f"Cells that a spreadsheet would run as formulas were written with ' before them: {count:,}."] * (count > 0)


def spreadsheet_notes(sheet: Sheet, formats: Sequence[str]) -> list[str]:
    """A hint at the format for spreadsheets, if the file has decimal commas and that format was not requested."""
    if sheet.decimal == "." or "spreadsheet" in formats:
        return []
    return [
        "Predictions have decimal points between commas. For a spreadsheet that expects decimal commas: --export "
        "spreadsheet."
    ]


def headlines(result: Result) -> list[tuple[str, str, str]]:
    """How good the predictions probably are, by held-out and by hidden labels: what it is, the number, on what."""
    held, hidden, said = result.held_out, result.hidden, []
    if held.labels:
        said.append(_held_out(held))
    if hidden is not None:
        interval = interval_words(hidden.accuracy_interval)
        largest = f"the largest class has {percent(hidden.majority_share)} of them."
        on = f"on {result.labels_hidden:,} hidden labels ({interval}); {largest}"
        said.append(("Accuracy", percent(hidden.accuracy), on))
    return said or [
        (
            "Accuracy is not known:",
            "",
            "at least 3 labeled rows of each class are needed, and copies of a row count as one.",
        )
    ]


def _held_out(held: HeldOut) -> tuple[str, str, str]:
    on = f"on {held.labels:,} held-out labels ({interval_words(held.interval)})"
    if held.unknown:
        on += f", {held.unknown:,} more of classes with fewer than 3 labels, never held out, counted as unknown"
    if held.majority_share == 1:
        on += f"; all of them are of the class {held.largest_class!r}, the only one with enough labels."
    else:
        on += f"; the largest class, {held.largest_class!r}, has {percent(held.majority_share)} of them."
    what = "Estimated accuracy"
    if held.verdict == "guessing":
        what, on = f"{GUESSING}: accuracy", f"{on} Do not rely on these predictions."
    elif held.verdict == "unknown":
        few = "different labeled rows" if held.copies else "labels"
        what = f"Too few {few} to say whether this is better than guessing: accuracy"
    return what, percent(held.accuracy), on


def details(result: Result) -> list[str]:
    """What else is known of how good they are."""
    said = _more(result.held_out) if result.held_out.labels else []
    if result.held_out.labels and result.hidden is not None:
        said.append(
            "The first accuracy is estimated from given labels, each predicted by models that did not see it; the "
            "second compares these predictions with the hidden labels. Where they differ, go by the second."
        )
    if result.accept is not None:
        said.append(_accepted(result.accept))
    if not result.complete:
        said.append("Training was interrupted: this is the best model so far.")
    return said


def _more(held: HeldOut) -> list[str]:
    said = []
    if held.verdict != "better" and held.interval[0] > held.majority_share:
        said.append(
            f"The interval is above the largest class's share, but this may still be chance: p = {held.p_value:.2g} in "
            f"a permutation test, where {BETTER_LEVEL:g} is required."
        )
    if held.copies:
        said.append(
            f"{held.copies:,} further labels are on copies or near copies of these rows. Each group of copies counts "
            "once, because rows without a label have no labeled copy."
        )
    if held.uneven:
        balanced = percent(held.balanced_accuracy)
        said.append(f"Classes are imbalanced: the mean recall of classes (balanced accuracy) is {balanced}.")
    if held.never_predicted:
        said.append(f"Never predicted, which accuracy hides: {_listed(held.never_predicted)}.")
    if held.hard > _HARD * held.labels and held.verdict == "better":
        said.append(
            f"Hard to predict are {held.hard:,} labels that need no check: another class is at least {HARD:g} times as "
            "probable, but probably few of them are wrong."
        )
    if held.not_held_out:
        said.append(
            "No accuracy is known for classes with fewer than 3 labels, which are not held out: "
            f"{_listed(held.not_held_out)}."
        )
    return said


def _accepted(accept: Accepted) -> str:
    target = f"{accept.target:.4g}"
    if accept.threshold is None:
        why = (
            f"at least {accept.needed:,} labels are needed, and {accept.labels:,} were held out"
            if accept.labels < accept.needed
            else f"{accept.labels:,} out-of-fold labels do not support any confidence threshold"
        )
        return f"Accepted at {target}: none, so review all rows; {why}."
    said = (
        f"Accepted at {target}: {accept.rows_accepted:,} of {accept.rows:,} rows without a label "
        f"({percent(accept.rows_accepted / max(1, accept.rows))}), those with a confidence of at least "
        f"{accept.threshold:.3f}; review the others."
    )
    if accept.rows_doubtful:
        said += f" {accept.rows_doubtful:,} of these reach it, but have a blank cell where no labeled row has one."
    if accept.hidden_error is not None:
        said += f" Of {accept.hidden_accepted:,} accepted hidden labels, {percent(accept.hidden_error)} are wrong."
    return said


@dataclass(frozen=True)
class Step:
    """Advice, and the section of the report that it is about: "suspects", "next" or none."""

    text: str
    section: str = ""


def next_steps(result: Result) -> list[Step]:
    """What to do next."""
    held, steps = result.held_out, [Step(note) for note in result.unsaid]
    free = result.rows - result.labels_given
    if result.guessing:
        steps.append(
            Step(
                "Check whether the columns can predict the label at all, and whether labels and rows match; then label "
                "more rows."
            )
        )
    elif result.suspects:  # if predictions are guesses, contradictions mean nothing
        what = "label that looks" if result.suspects == 1 else "labels that look"
        steps.append(Step(f"Check {result.suspects:,} given {what} wrong.", "suspects"))
    if free and result.suggested and not result.labels_hidden:  # of hidden labels more are known already
        labels = "this label" if len(result.suggested) == 1 else "these labels"
        counted = " (counted from 0)" if result.rows_numbered else ""
        steps.append(Step(f"Label {', '.join(result.suggested)}{counted}: {labels} would help most.", "next"))
    elif not free and not result.labels_hidden:
        line = "Every row is labeled: `sobgnn predict` labels new rows"
        if result.labels_given >= _HIDEABLE * len(result.classes):
            line += "; --labels 0.1 hides most labels and measures accuracy on them"
        steps.append(Step(line + "."))
    lopsided = held.uneven and held.balanced_accuracy < held.accuracy - 0.1
    if (held.never_predicted or lopsided) and result.settings.get("class_weight") is None:
        steps.append(Step("Try --class-weight balanced, which gives rare classes the same weight as common ones."))
    if held.verdict == "better" and result.acceptable:
        steps.append(Step("Fit with --accept 0.95: it marks the predictions that need no review."))
    if result.advice:
        steps.append(Step(result.advice))
    return steps


def facts(result: Result) -> dict[str, str]:
    """What the model was made of, a line each: families, columns, graph, seconds."""
    shares = sorted(result.families.items(), key=lambda pair: -pair[1])
    lines = {"families": ", ".join(f"{name} {share:.0%}" for name, share in shares)}
    if result.columns:
        top = [f"{name} {drop:.3f}" for name, drop in list(result.columns.items())[:5] if drop > 0]
        said = ", ".join(top) + ": drop in the correct class's probability when shuffled"
        lines["columns"] = said if top else "none helps on held-out labels"
    lines["graph"] = f"{counted(result.graph.edges, 'edge')}, {counted(result.graph.components, 'component')}"
    parts = ", ".join(f"{stage} {spent:.1f}" for stage, spent in result.seconds.items())
    lines["seconds"] = f"{sum(result.seconds.values()):.1f} ({parts})"
    return lines


def _listed(names: Sequence[Any], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
