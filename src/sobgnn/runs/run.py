"""A fitted estimator with the data it was fitted on, and what is measured of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.tables import Table


@dataclass(frozen=True)
class Fitted:
    """A fitted estimator with the data it was fitted on.

    Args:
        name: What the data is called.
        classifier: A fitted ``SobolevClassifier``.
        table: The points, with every label that is known.
        given: int64 [N], the codes that training saw; where ``table.codes`` knows more, labels were hidden.
        seconds: Wall time of each stage.
        complete: False where training was stopped by hand.
        search: What ``TuningResult.to_json`` gives, where the setting was searched for.
    """

    name: str
    classifier: Any
    table: Table
    given: npt.NDArray[np.int64]
    seconds: dict[str, float] = field(default_factory=dict)
    complete: bool = True
    search: dict[str, Any] | None = None

    @property
    def hidden(self) -> npt.NDArray[np.bool_]:
        """Rows whose label is known but was kept from training, [N]."""
        return np.asarray((self.given == -1) & (self.table.codes != -1))

    @property
    def predicted(self) -> npt.NDArray[np.int64]:
        """The code of each row's predicted class, [N]."""
        place = {value: code for code, value in enumerate(self.table.classes)}
        own = np.array([place[value] for value in self.classifier.classes_.tolist()], dtype=np.int64)
        return np.asarray(own[np.searchsorted(self.classifier.classes_, self.classifier.transduction_)])

    @property
    def confidence(self) -> npt.NDArray[np.float64]:
        """The probability of each row's predicted class, [N]."""
        column = np.searchsorted(self.classifier.classes_, self.classifier.transduction_)
        rows = np.arange(len(column))
        return np.asarray(self.classifier.label_distributions_[rows, column], dtype=np.float64)


def hide_labels(codes: npt.NDArray[np.int64], labels: float | None, seed: int) -> npt.NDArray[np.int64]:
    """Codes with all but a share (below 1) or a number per class (from 1) of the known labels set to -1.

    Each class keeps at least one label; a class with fewer than the number asked for keeps all.
    """
    if labels is None:
        return codes
    if not labels > 0 or not np.isfinite(labels) or (labels >= 1 and labels != round(labels)):
        raise ValueError(
            f"--labels must be a share between 0 and 1 or a whole number per class, but got {labels:g}. "
            "Try --labels 0.1 or --labels 5."
        )
    generator = np.random.default_rng(seed)
    given = np.full_like(codes, -1)
    for code in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == code)
        if rows.size:
            keep = int(labels) if labels >= 1 else max(1, round(labels * rows.size))
            chosen = generator.permutation(rows)[:keep]
            given[chosen] = code
    return given


def metrics(fitted: Fitted) -> dict[str, Any]:
    """What was measured, in plain values: sizes, accuracy on hidden labels, filters, graph, seconds, versions."""
    import sobgnn

    table, hidden = fitted.table, fitted.hidden
    count, features = table.X.shape
    result: dict[str, Any] = {
        "data": fitted.name,
        "rows": int(count),
        "features": int(features),
        "classes": list(table.classes),
        "labels_given": int((fitted.given != -1).sum()),
        "labels_hidden": int(hidden.sum()),
        "complete": fitted.complete,
    }
    if hidden.any():
        right = fitted.predicted[hidden] == table.codes[hidden]
        result["accuracy"] = float(right.mean())
        result["accuracy_interval"] = wilson_interval(int(right.sum()), int(right.size))
        result["majority_share"] = float(np.bincount(table.codes[hidden]).max() / hidden.sum())
        result["confusion"] = confusion(table.codes[hidden], fitted.predicted[hidden], len(table.classes)).tolist()
    report = fitted.classifier.graph_.describe(table.codes)
    result["graph"] = {
        "nodes": report.nodes,
        "edges": report.edges,
        "components": report.components,
        "isolated": report.isolated,
        "degree_quantiles": list(report.degree_quantiles),
        "weight_quantiles": list(report.weight_quantiles),
        "agreement": [a for a in report.agreement if np.isfinite(a)] if report.agreement else [],
    }
    classifier = fitted.classifier
    result["families"] = {name: round(share, 6) for name, share in classifier.family_shares_.items()}
    result["filter_importance"] = {name: round(lost, 6) for name, lost in classifier.filter_importance_.items()}
    result["settings"] = plain(fitted.classifier.get_params())
    result["seconds"] = {stage: round(spent, 3) for stage, spent in fitted.seconds.items()}
    result["versions"] = {"sobgnn": sobgnn.__version__, "numpy": np.__version__}
    if fitted.search is not None:
        result["search"] = fitted.search
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
