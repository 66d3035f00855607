"""Descriptions of a fitted estimator in sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from sobgnn.estimator.families import FAMILIES
from sobgnn.estimator.families.foreign import FittedForeign
from sobgnn.estimator.families.trees import KINDS, WHOLE, FittedTrees
from sobgnn.estimator.frequencies import much_fewer
from sobgnn.estimator.points import GIVEN

# Readable names of the families.
TITLES = {name: family.title for name, family in FAMILIES.items()}


def described(estimator: Any) -> str:
    """A few lines: labels, accuracy, families and their shares, class frequencies."""
    predictor, points = estimator.predictor_, estimator.predictor_.points
    judged = int(np.isfinite(estimator.out_of_fold_probabilities_).all(axis=1).sum())
    lines = [
        f"{len(estimator.labelled_):,} labels of {points.count:,} points, {points.classes} classes, "
        f"on {points.device.type}."
    ]
    if judged:
        # A warm refit holds nothing out: its accuracy is that of an earlier fit, which had other labels.
        current = judged == int((estimator.folds_ >= 0).sum())
        where = f"on {judged:,} labels" if current else "when labels were last held out"
        largest = np.bincount(estimator.labelled_codes_).max() / len(estimator.labelled_codes_)
        held = np.bincount(estimator.labelled_codes_[estimator.folds_ >= 0], minlength=points.classes) > 0
        never = int((~held[estimator.labelled_codes_]).sum()) if current else 0
        unknown = f", {never:,} more of classes that are never held out counted as unknown" if never else ""
        low, high = estimator.out_of_fold_interval_
        lines.append(
            f"Estimated accuracy {estimator.out_of_fold_accuracy_:.1%} {where} (95% interval {low:.1%} to {high:.1%})"
            f"{unknown}; the largest class has {largest:.1%} of the labels."
        )
        copies = int(((estimator.folds_ < 0) & held[estimator.labelled_codes_]).sum())
        if current and copies:
            lines.append(f"{copies:,} further labels are of copies of these rows and count with them.")
        if current and not held.all():
            lines.append(f"Accuracy is not known for {_listed(estimator.classes_[~held])}: no such label was held out.")
    else:
        lines.append("Labels are too few to hold any out: accuracy is not known.")
    for member, share in zip(predictor.members, predictor.blend.shares, strict=True):
        name = TITLES.get(member.name, member.name)
        if isinstance(member.fitted, FittedForeign):
            how = f"{type(member.fitted.estimator).__name__}, learned by the same folds"
        else:
            how = FAMILIES[member.name].explained
        if isinstance(member.fitted, FittedTrees) and len(member.fitted.trees.root) < len(KINDS) * WHOLE:
            how += f"; only {len(member.fitted.trees.root)} trees, as points or classes are many"
        where = f" on the {member.graph} graph" if member.graph and len(points.graphs) > 1 else ""
        alone = estimator.family_accuracy_.get(member.title, float("nan"))
        own = f"; alone {alone:.1%} right" if np.isfinite(alone) else ""
        lines.append(f"  {share:5.1%}  {name}{where}: {how}{own}")
    if estimator.encoder_ is not None:
        kinds = Counter(estimator.encoder_.outcomes_.values())
        lines.append(f"Columns: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}.")
    if estimator.filling_ is not None:
        marked = len(estimator.filling_.marked)
        have = "columns have" if marked > 1 else "column has"
        lines.append(
            f"{marked:,} {have} blank cells (NaN), which are filled with the median and marked by a further column."
        )
    lines += decisions(estimator)
    unreached = int((~estimator.component_labelled_).sum())
    if unreached:
        graph = "given graph" if GIVEN in points.graphs else "graph"
        lines.append(f"{unreached:,} points reach no label through the {graph}.")
    return "\n".join(lines)


def decisions(estimator: Any) -> list[str]:
    """How columns are scaled, how probable classes are, and the temperature, in sentences."""
    scales = f"Columns scaled by {estimator.scale_!r}"
    if estimator.neighbor_scale_ != estimator.scale_:
        scales += f", for the neighbor search by {estimator.neighbor_scale_!r}"
    lines = [f"{scales}; temperature {estimator.temperature_:.2f}."]
    ratio = estimator.predictor_.ratio
    if not np.allclose(ratio, 1):
        pairs = zip(estimator.classes_, estimator.class_prior_, strict=True)
        lines.append(f"Class frequencies assumed: {_listed([f'{name} {share:.1%}' for name, share in pairs])}.")
        few = much_fewer(estimator.labelled_codes_, len(estimator.classes_))
        times = ratio / np.median(ratio[~few])
        raised = [f"{estimator.classes_[c]} {times[c]:.1f} times" for c in np.flatnonzero(few & (times > 1.05))]
        if raised and estimator.class_priors == "auto":
            lines.append(f"Made more probable because of few labels: {', '.join(raised)}.")
    return lines


def _listed(names: Sequence[Any], most: int = 10) -> str:
    """Names separated by commas; of many, only the first."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*(str(name) for name in names[:most]), *more])
