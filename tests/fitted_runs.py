"""A fitted run without the fitting: what the report and the run folder read, made from clusters in a moment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from sobgnn import knn_graph
from sobgnn.app.runs.run import Fitted, hide_labels
from sobgnn.estimator.trust import suspect_labels, wilson_interval
from sobgnn.tables import from_arrays


class KnownClassifier(SimpleNamespace):
    """The fitted attributes of a SobolevClassifier, given."""

    class_weight = None

    @property
    def out_of_fold_accuracy_(self) -> float:
        judged = np.isfinite(self.out_of_fold_probabilities_).all(axis=1)
        predicted = self.out_of_fold_probabilities_[judged].argmax(axis=1)
        return float((predicted == self.labelled_codes_[judged]).mean()) if judged.any() else float("nan")

    @property
    def out_of_fold_interval_(self) -> Any:
        judged = int(np.isfinite(self.out_of_fold_probabilities_).all(axis=1).sum())
        return np.array(wilson_interval(self.out_of_fold_accuracy_ * judged, judged))

    def suspects(self) -> Any:
        return suspect_labels(self.labelled_, self.labelled_codes_, self.out_of_fold_probabilities_, self.classes_)

    def get_params(self) -> dict[str, Any]:
        return {"k": 10, "alpha": 3, "num_layers": 2, "n_members": 4, "epsilon": 1.0}


def fitted_run(
    points: int = 300,
    classes: tuple[str, ...] = ("ash", "birch", "cedar"),
    name: str = "clusters",
    ids: Any = None,
    labels: float | None = 0.2,
    X: Any = None,
    codes: Any = None,
    search: dict[str, Any] | None = None,
    table: Any = None,
    noise: bool = False,
    suspects: int = 0,
    accept: float | None = None,
) -> Fitted:
    """Gaussian clusters (or X and codes, or a table, as given), with probabilities that are mostly right.

    With ``noise`` out-of-fold probabilities have nothing to do with the labels; the first ``suspects`` given labels are
    contradicted by theirs.
    """
    generator = np.random.default_rng(0)
    count = len(classes)
    if table is not None:
        X, codes, classes, count = table.X, table.codes, tuple(table.classes), len(table.classes)
    elif X is None:
        codes = generator.integers(0, count, points)
        X = 6 * generator.normal(size=(count, 8))[codes] + 2 * generator.normal(size=(points, 8))
    if table is None:
        table = from_arrays(X, codes, ids=ids, class_names=classes)
    given = hide_labels(table.codes, labels, seed=0)
    logits = 2.5 * np.eye(count)[table.codes] + generator.normal(size=(len(X), count))
    probability = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    steps = np.arange(5, 105, 5)
    curves = {
        "epoch": steps,
        "train_loss": (np.exp(-steps / 30) + 0.05 * generator.random(20)).tolist(),
        "validation_accuracy": (0.95 - 0.6 * np.exp(-steps / 25) + 0.02 * generator.random(20)).tolist(),
    }
    names = np.array(classes, dtype=object)
    order = np.argsort(names)
    labelled = np.flatnonzero(given >= 0)
    held_out = probability[generator.permutation(len(X))[labelled] if noise else labelled][:, order]
    wrong = np.argsort(order)[(given[labelled[:suspects]] + 1) % count]
    held_out[:suspects] = 1e-6 + (1 - 1e-6 * count) * np.eye(count)[wrong]
    classifier = KnownClassifier(
        folds_=np.arange(len(labelled)) % 4,
        classes_=names[order],
        transduction_=names[probability.argmax(axis=1)],
        label_distributions_=probability[:, order],
        embedding_=np.asarray(X, dtype=np.float32)[:, :32],
        graph_=knn_graph(np.asarray(X, dtype=np.float32), k=min(10, len(X) - 1)),
        history_={"sobolev": curves, "mlp": {"epoch": steps, "train_loss": curves["train_loss"]}, "diffusion": {}},
        family_shares_={"sobolev": 0.5, "mlp": 0.3, "diffusion": 0.2},
        family_accuracy_={"sobolev": 0.875, "mlp": 0.75},
        scale_="range",
        neighbor_scale_="range",
        temperature_=1.25,
        filter_importance_={"no graph": 0.02, "ρ=1": 0.11, "ρ=2": 0.04},
        component_labelled_=np.ones(len(X), dtype=bool),
        labelled_=labelled,
        labelled_codes_=np.argsort(order)[given[labelled]],
        out_of_fold_probabilities_=held_out,
        predictor_=SimpleNamespace(ratio=np.ones(count), spacing=lambda: np.linspace(0.5, 1.5, 101)),
    )
    return Fitted(name, classifier, table, given, {"reading": 0.1, "fitting": 2.4}, search=search, accept=accept)


def found_search(trials: int = 6, importance: bool = True) -> dict[str, Any]:
    """What ``TuningResult.to_json`` gives; the second trial was pruned."""
    losses = [0.9 - 0.1 * number if number != 1 else None for number in range(trials)]
    settings = [{"k": 10 + number, "combine": "<b>linear</b>"} for number in range(trials)]
    return {
        "setting": settings[-1] | {"scale": "range"},
        "log_loss": losses[-1],
        "accuracy": 0.8,
        "default_log_loss": losses[0],
        "wanted": 10,
        "pruned": 1,
        "importance": {"k": 0.7, "combine": 0.3} if importance else {},
        "best_so_far": [0.9, 0.9, *losses[2:]],
        "trials": [
            {"number": number, "log_loss": loss, "accuracy": loss and 0.8, "seconds": 1.5, "setting": settings[number]}
            for number, loss in enumerate(losses)
        ],
    }
