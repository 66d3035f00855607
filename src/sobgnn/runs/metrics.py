"""Measurements of a run as plain values: for metrics.json, the terminal and the report."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.estimator.acceptance import Acceptance
from sobgnn.estimator.guessing import judge
from sobgnn.estimator.outcome import shown_out_of_fold
from sobgnn.estimator.suggestion import suggest_points
from sobgnn.runs.checks import USUAL, find_threshold
from sobgnn.runs.content import row_name
from sobgnn.runs.run import Fitted
from sobgnn.tables import Table
from sobgnn.tables.labels import unsaid_classes, unsaid_note

# Classes are imbalanced if the largest is at least this many times as frequent as the mean.
_UNEVEN = 1.5
# Number of suggested rows named on the terminal; the report lists more.
_NAMED = 5


def metrics(fitted: Fitted, acceptance: Acceptance | None = None) -> dict[str, Any]:
    """What was measured, as plain values for JSON.

    ``held_out`` is out of fold, on given labels; ``accuracy``, ``accuracy_interval``, ``majority_share`` and
    ``confusion`` are on labels that training never saw, if ``--labels`` hid some. ``acceptable`` is the number of rows
    that ``--accept 0.95`` would accept, if nothing was requested. ``unsaid`` holds sentences about large classes whose
    name may mean unlabeled.

    Args:
        fitted: The run.
        acceptance: Which predictions are accepted, if requested.
    """
    import sobgnn

    table, hidden, classifier = fitted.table, fitted.hidden, fitted.classifier
    suggested = [int(row) for row in suggested_rows(fitted, _NAMED)]
    count, features = table.X.shape
    result: dict[str, Any] = {
        "data": fitted.name,
        "rows": int(count),
        "features": int(features),
        "classes": list(table.classes),
        "labels_given": int((fitted.given != -1).sum()),
        "labels_hidden": int(hidden.sum()),
        "complete": fitted.complete,
        "held_out": held_out(fitted),
        "notes": list(table.notes),
        "unsaid": _large_unsaid(table),
        "suspects": len(classifier.suspects()),
        "suggested": [row_name(table, row) for row in suggested],
        "rows_numbered": table.ids is None or not all(table.ids[row] for row in suggested),
    }
    if hidden.any():
        right = fitted.predicted[hidden] == table.codes[hidden]
        result["accuracy"] = float(right.mean())
        result["accuracy_interval"] = wilson_interval(int(right.sum()), int(right.size))
        result["majority_share"] = float(np.bincount(table.codes[hidden]).max() / hidden.sum())
        result["confusion"] = confusion(table.codes[hidden], fitted.predicted[hidden], len(table.classes)).tolist()
    if acceptance is not None:
        result["accept"] = accepted(fitted, acceptance)
    elif fitted.accept is None:
        result["acceptable"] = accepted(fitted, find_threshold(fitted, USUAL))["rows_accepted"]
    report = classifier.graph_.describe(table.codes)
    result["graph"] = {
        "nodes": report.nodes,
        "edges": report.edges,
        "components": report.components,
        "isolated": report.isolated,
        "degree_quantiles": list(report.degree_quantiles),
        "weight_quantiles": list(report.weight_quantiles),
        "agreement": [a for a in report.agreement if np.isfinite(a)] if report.agreement else [],
    }
    result["families"] = {name: round(share, 6) for name, share in classifier.family_shares_.items()}
    result["filter_importance"] = {name: round(lost, 6) for name, lost in classifier.filter_importance_.items()}
    result["settings"] = plain(classifier.get_params())
    result["seconds"] = {stage: round(spent, 3) for stage, spent in fitted.seconds.items()}
    result["versions"] = {"sobgnn": sobgnn.__version__, "numpy": np.__version__}
    if fitted.search is not None:
        result["search"] = fitted.search
    return result


def suggested_rows(fitted: Fitted, most: int) -> npt.NDArray[np.int64]:
    """Rows whose labels would help most, best first; empty if every row is labeled.

    Doubtful rows are left out, and pictures that cannot be read: a person could not label them. If all rows without a
    label are doubtful, those are suggested that are not empty.
    """
    classifier, free = fitted.classifier, fitted.given == -1
    unread = fitted.encoding.unread_pictures(fitted.table.X)
    left_out = fitted.doubtful | unread
    if not (free & ~left_out).any():
        left_out = fitted.empty | unread
    count = min(most, int((free & ~left_out).sum()))
    if not count:
        return np.zeros(0, np.int64)
    return suggest_points(
        classifier.graph_,
        classifier.label_distributions_,
        classifier.labelled_,
        count,
        reached=classifier.component_labelled_,
        exclude=np.flatnonzero(free & left_out),
    )


def _large_unsaid(table: Table) -> list[str]:
    """Sentences about classes with at least half of all rows whose name may mean unlabeled."""
    counts = np.bincount(table.codes[table.codes >= 0], minlength=len(table.classes))
    large = {
        name: int(count) for name, count in zip(table.classes, counts, strict=True) if 2 * count >= len(table.codes)
    }
    return [unsaid_note(name, large[name]) for name in unsaid_classes(table.classes) if name in large]


def held_out(fitted: Fitted) -> dict[str, Any]:
    """How good out-of-fold predictions of the given labels are, and whether they are better than guessing.

    ``labels`` counts them; if it is 0, the only other entry is ``verdict``. ``copies`` counts further labels of copies
    or near copies of these rows, which were held out with them and are not counted. ``uneven`` is whether balanced
    accuracy is more informative than accuracy. ``confusion`` is [given, predicted] by the table's classes.
    """
    classifier, own = fitted.classifier, fitted.own_codes
    shown = shown_out_of_fold(classifier)
    judged = np.isfinite(shown).all(axis=1)
    probability = shown[judged]
    codes, predicted = own[classifier.labelled_codes_[judged]], own[probability.argmax(axis=1)]
    classes = len(fitted.table.classes)
    verdict = judge(classifier.labelled_codes_[judged], probability)
    if not len(codes):
        return {"labels": 0, "verdict": verdict.outcome}
    counts = confusion(codes, predicted, classes)
    have, held = counts.sum(axis=1), classifier.folds_ >= 0
    return {
        "labels": len(codes),
        "copies": int((~held & (have[own[classifier.labelled_codes_]] > 0)).sum()) if held.any() else 0,
        "verdict": verdict.outcome,
        "accuracy": verdict.accuracy,
        "interval": wilson_interval(int(np.trace(counts)), len(codes)),
        "majority_share": verdict.majority,
        "largest_class": fitted.table.classes[int(have.argmax())],
        "balanced_accuracy": verdict.balanced,
        "uneven": bool(verdict.majority * np.count_nonzero(have) >= _UNEVEN),
        "p_value": verdict.p_value,
        "confusion": counts.tolist(),
        "never_predicted": [
            fitted.table.classes[code] for code in np.flatnonzero((have > 0) & (counts.sum(axis=0) == 0)).tolist()
        ],
        "not_held_out": [
            fitted.table.classes[code] for code in np.unique(own[classifier.labelled_codes_]).tolist() if not have[code]
        ],
    }


def accepted(fitted: Fitted, acceptance: Acceptance) -> dict[str, Any]:
    """The threshold, the labels it is based on, and how many rows without a given label it accepts."""
    free = fitted.given == -1
    sure = acceptance.accepts(fitted.confidence) & free
    taken = sure & ~fitted.doubtful
    result: dict[str, Any] = {
        "target": acceptance.target,
        "threshold": acceptance.threshold,
        "labels": acceptance.labels,
        "labels_accepted": acceptance.accepted,
        "labels_wrong": acceptance.wrong,
        "labels_needed": acceptance.needed,
        "rows": int(free.sum()),
        "rows_accepted": int(taken.sum()),
        "rows_doubtful": int((sure & ~taken).sum()),
    }
    measured = taken & fitted.hidden
    if measured.any():
        result["hidden_accepted"] = int(measured.sum())
        result["hidden_error"] = float((fitted.predicted[measured] != fitted.table.codes[measured]).mean())
    return result


def confusion(true: npt.NDArray[Any], predicted: npt.NDArray[Any], classes: int) -> npt.NDArray[np.int64]:
    """Counts [true class, predicted class]."""
    flat = np.bincount(true * classes + predicted, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.int64)


def wilson_interval(right: int, total: int) -> list[float]:
    """The 95 % score interval of a share, which stays within [0, 1]."""
    z = 1.959964
    share = right / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * np.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return [float(center - half), float(center + half)]


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that JSON can hold; anything else by its repr."""
    return {
        name: value if isinstance(value, str | int | float | bool | tuple | None) else repr(value)
        for name, value in sorted(settings.items())
        if not callable(value)
    }
