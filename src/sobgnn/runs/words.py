"""What users need to know about a run, in sentences: how good it is, what was not used, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sobgnn.estimator.guessing import BETTER_LEVEL

GUESSING = "Not shown to be better than guessing"
# Least number of labels per class from which hiding most of them leaves enough to learn from.
_HIDEABLE = 10


def is_guessing(measured: dict[str, Any]) -> bool:
    """Whether out-of-fold labels fail to show that predictions are better than guessing."""
    return bool(measured["held_out"]["verdict"] == "guessing")


def quality(measured: dict[str, Any]) -> list[str]:
    """How good the predictions probably are. ``measured`` is the result of ``metrics``."""
    held, said = measured["held_out"], []
    if not held["labels"]:
        if "accuracy" not in measured:  # hidden labels show it
            said.append(
                "Accuracy is not known: there are too few labels to hold any out. Label at least 3 rows of each class."
            )
    else:
        low, high = held["interval"]
        score = f"{held['accuracy']:.1%} on {held['labels']:,} held-out labels"
        score += f" (95% interval {low:.1%} to {high:.1%})"
        constant = f"the largest class, {held['largest_class']!r}, has {held['majority_share']:.1%} of them"
        if held["majority_share"] == 1:
            constant = f"all of them are of the class {held['largest_class']!r}, the only one with enough labels"
        if held["verdict"] == "guessing":
            said.append(f"{GUESSING}: accuracy {score}; {constant}. Do not rely on these predictions.")
        elif held["verdict"] == "unknown":
            said.append(f"Too few labels to say whether this is better than guessing: accuracy {score}; {constant}.")
        else:
            said.append(f"Estimated accuracy {score}; {constant}.")
        if held["verdict"] != "better" and low > held["majority_share"]:
            said.append(
                f"The interval is above the largest class's share, but this may still be chance: p = "
                f"{held['p_value']:.2g} in a permutation test, where {BETTER_LEVEL:g} is required because folds share "
                "labels."
            )
        if held.get("copies"):
            said.append(
                f"{held['copies']:,} further labels are on copies or near copies of these rows. Each group of copies "
                "counts once, because rows without a label have no labeled copy."
            )
        if held["uneven"]:
            balanced = held["balanced_accuracy"]
            said.append(f"Classes are imbalanced: the mean recall of classes (balanced accuracy) is {balanced:.1%}.")
        if held["never_predicted"]:
            said.append(f"Never predicted, which accuracy hides: {_listed(held['never_predicted'])}.")
        if held["not_held_out"]:
            said.append(
                f"No accuracy is known for classes with fewer than 3 labels, which are not held out: "
                f"{_listed(held['not_held_out'])}."
            )
    if "accuracy" in measured:
        low, high = measured["accuracy_interval"]
        said.append(
            f"Accuracy {measured['accuracy']:.1%} on {measured['labels_hidden']:,} hidden labels "
            f"(95% interval {low:.1%} to {high:.1%}); the largest class has {measured['majority_share']:.1%} of them."
        )
    if "accept" in measured:
        said.append(_accepted(measured["accept"]))
    if not measured["complete"]:
        said.append("Training was interrupted: this is the best model so far.")
    return said


def _accepted(accept: dict[str, Any]) -> str:
    target = f"{accept['target']:.4g}"
    if accept["threshold"] is None:
        why = (
            f"at least {accept['labels_needed']:,} labels are needed, and {accept['labels']:,} were held out"
            if accept["labels"] < accept["labels_needed"]
            else f"{accept['labels']:,} out-of-fold labels do not support any confidence threshold"
        )
        return f"Accepted at {target}: none, so review all rows; {why}."
    share = accept["rows_accepted"] / max(1, accept["rows"])
    said = (
        f"Accepted at {target}: {accept['rows_accepted']:,} of {accept['rows']:,} rows without a label ({share:.1%}), "
        f"those with a confidence of at least {accept['threshold']:.3f}; review the others."
    )
    if accept.get("rows_doubtful"):
        said += f" {accept['rows_doubtful']:,} of these reach it, but have a blank cell where no labeled row has one."
    if "hidden_error" in accept:
        said += f" Of {accept['hidden_accepted']:,} accepted hidden labels, {accept['hidden_error']:.1%} are wrong."
    return said


def next_steps(measured: dict[str, Any], suggested: Sequence[str] = ()) -> list[str]:
    """What to do next. ``suggested`` names rows worth a label, best first."""
    held, said = measured["held_out"], list(measured["unsaid"])
    free = measured["rows"] - measured["labels_given"]
    if held["verdict"] == "guessing":
        said.append(
            "Check whether the columns can predict the label at all, and whether labels and rows match; then label "
            "more rows."
        )
    elif measured["suspects"]:  # if predictions are guesses, contradictions mean nothing
        number = measured["suspects"]
        said.append(f"Check {number:,} given {'label that looks' if number == 1 else 'labels that look'} wrong.")
    if free and suggested and not measured["labels_hidden"]:  # of hidden labels more are known already
        labels = "this label" if len(suggested) == 1 else "these labels"
        counted = " (counted from 0)" if measured.get("rows_numbered") else ""
        said.append(f"Label {', '.join(suggested)}{counted}: {labels} would help most.")
    elif not free and not measured["labels_hidden"]:
        line = "Every row is labeled: `sobgnn predict` labels new rows"
        if measured["labels_given"] >= _HIDEABLE * len(measured["classes"]):
            line += "; --labels 0.1 hides most labels and measures accuracy on them"
        said.append(line + ".")
    lopsided = held.get("uneven") and held["balanced_accuracy"] < held["accuracy"] - 0.1
    if (held.get("never_predicted") or lopsided) and measured["settings"].get("class_weight") is None:
        said.append("Try --class-weight balanced, which gives rare classes the same weight as common ones.")
    if held["verdict"] == "better" and measured.get("acceptable"):
        said.append("--accept 0.95 marks the predictions that need no review.")
    return said


def _listed(names: Sequence[Any], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")
