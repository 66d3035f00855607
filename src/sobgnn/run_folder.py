"""A run folder: what `sobgnn fit` leaves behind and `sobgnn predict` reads."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.tables import Batch, Encoding, Table, write_predictions

FORMAT = 1


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
    """

    name: str
    classifier: Any
    table: Table
    given: npt.NDArray[np.int64]
    seconds: dict[str, float] = field(default_factory=dict)
    complete: bool = True

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
    weights = fitted.classifier.filter_weights_
    result["filters"] = [] if weights is None else filter_names(weights.shape[1], fitted.classifier.alpha)
    result["filter_weights"] = [] if weights is None else weights.astype(float).round(6).tolist()
    result["mixing"] = float(fitted.classifier.mixing_)
    result["smoothing"] = float(fitted.classifier.smoothing_)
    result["settings"] = plain(fitted.classifier.get_params())
    result["seconds"] = {stage: round(spent, 3) for stage, spent in fitted.seconds.items()}
    result["versions"] = {"sobgnn": sobgnn.__version__, "numpy": np.__version__}
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


def filter_names(branches: int, alpha: int) -> list[str]:
    """What a layer's filters are called: ρ=1 … ρ=α, after the graph-free branch where there is one."""
    return ["no graph"] * (branches - alpha) + [f"ρ={rho}" for rho in range(1, alpha + 1)]


def plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that JSON can hold; anything else by its repr."""
    return {
        name: value if isinstance(value, str | int | float | bool | None) else repr(value)
        for name, value in sorted(settings.items())
        if not callable(value)
    }


def free_folder(name: str, under: Path = Path("runs")) -> Path:
    """runs/<name>-<n> with the smallest n that is not taken."""
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "run"
    number = 1
    while (under / f"{safe}-{number}").exists():
        number += 1
    return under / f"{safe}-{number}"


def write_run(folder: Path, fitted: Fitted) -> dict[str, Any]:
    """Write the run folder, whole or not at all, and return its metrics."""
    from sobgnn.report.page import render

    with atomic_folder(folder) as place:
        started = time.perf_counter()
        fitted.classifier.save(place / "model")
        table = fitted.table
        with open(place / "predictions.csv", "wb") as file:
            classifier = fitted.classifier
            write_predictions(
                file,
                classifier.classes_.tolist(),
                0,
                classifier.transduction_,
                classifier.label_distributions_,
                table.ids,
                header=True,
            )
        content = {"format": FORMAT, "encoding": table.encoding.to_json()}
        (place / "table.json").write_text(json.dumps(content, indent=1), encoding="utf-8")
        measured = metrics(fitted)
        (place / "report.html").write_text(render(fitted, measured), encoding="utf-8")
        measured["seconds"]["writing"] = round(time.perf_counter() - started, 3)
        (place / "metrics.json").write_text(json.dumps(measured, indent=1), encoding="utf-8")
    return measured


def open_run(folder: Path) -> tuple[Any, Encoding]:
    """The fitted estimator and the encoding of its table."""
    if not folder.is_dir():
        raise ValueError(f"There is no run folder {str(folder)!r}. `sobgnn fit` makes one.")
    try:
        content = json.loads((folder / "table.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{folder} is not a run folder: it has no table.json.") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{folder / 'table.json'} is damaged. Fit the run again.") from None
    if not isinstance(content, dict) or not isinstance(content.get("format"), int):
        raise ValueError(f"{folder / 'table.json'} is damaged. Fit the run again.")
    if content["format"] > FORMAT:
        raise ValueError(f"{folder} has format {content['format']}, newer than this version reads. Upgrade sobgnn.")
    encoding = Encoding.from_json(content.get("encoding"))

    from sobgnn.classifier import SobolevClassifier

    classifier = SobolevClassifier.load(folder / "model")
    if classifier.n_features_in_ != encoding.width:
        raise ValueError(
            f"{folder} is damaged: its model takes {classifier.n_features_in_} features, its table gives "
            f"{encoding.width}. Fit the run again."
        )
    return classifier, encoding


def predict_batches(classifier: Any, batches: Iterator[Batch], file: Any) -> Iterator[int]:
    """Write predictions of each batch as it comes, yielding the number of rows done."""
    done = 0
    for batch in batches:
        if not batch.X.shape[0]:
            continue
        probability = classifier.predict_proba(batch.X)
        label = classifier.classes_[probability.argmax(axis=1)]
        classes = classifier.classes_.tolist()
        write_predictions(file, classes, batch.first_row, label, probability, batch.ids, header=done == 0)
        done = batch.first_row + batch.X.shape[0]
        yield done
    if not done:
        raise ValueError("The file has no rows, so there is nothing to predict.")


@contextlib.contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears under its name when the block ends well, and not at all when it fails."""
    check_free(folder)
    made = [parent for parent in folder.absolute().parents if not parent.exists()]
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        partial.mkdir()
        yield partial
        os.rename(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in made:
            with contextlib.suppress(OSError):
                parent.rmdir()
        raise


def check_device(device: str | None) -> None:
    """Raise where torch knows no such device, or has none."""
    import torch

    if device is None:
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ValueError(f"There is no device {device!r} here. Try --device cpu, or leave it out.") from None


def check_free(folder: Path) -> None:
    """Raise where a run could not be written later, before time is spent on it."""
    if folder.exists():
        raise ValueError(f"{folder} is already there. Name another folder with --out.")
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ValueError(f"{folder} cannot be made: {nearest} is not a folder that can be written to.")
