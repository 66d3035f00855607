"""Search for the estimator's setting with the least log loss on labels while they are held out."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from sklearn.base import clone

from sobgnn.classifier import SobolevClassifier
from sobgnn.features import FeatureMap
from sobgnn.fitting import FitProgress
from sobgnn.graph import Graph
from sobgnn.knn import graph_from_neighbors
from sobgnn.labels import encode_labels
from sobgnn.neighbors import Neighbors, nearest
from sobgnn.shared_study import Pulse, Sampler, StopSearch, is_url, open_storage, run_search, slots

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``, both included; whole ones where ``low`` is whole."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw one."""
        if isinstance(self.low, int):
            return trial.suggest_int(name, self.low, int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class OneOf:
    """One of the given values: numbers, texts, booleans or ``None``."""

    choices: tuple[Any, ...]

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return value in self.choices

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw one."""
        return trial.suggest_categorical(name, self.choices)


Space = Mapping[str, Between | OneOf]

# Around the ranges of the paper's authors (layers 2-5, hidden 16-64, dropout 0.3-0.7, lr 0.005-0.02, weight decay
# 1e-4-1e-3, α 1-6, ε 0.5-2), and the graph itself. Wider or deeper networks cost ten times as much per trial.
SPACE: Space = {
    "k": Between(5, 30, log=True),
    "bandwidth": OneOf(("mean", "local")),
    "alpha": Between(1, 6),
    "epsilon": Between(0.25, 4.0, log=True),
    "hidden_channels": OneOf((16, 32, 64)),
    "num_layers": Between(1, 3),
    "dropout": Between(0.1, 0.8),
    "combine": OneOf(("linear", "concat")),
    "self_branch": OneOf((False, True)),
    "lr": Between(0.002, 0.03, log=True),
    "weight_decay": Between(1e-5, 1e-2, log=True),
}
# Searched only where the graph is made from the points.
_GRAPH_SETTINGS = ("k", "bandwidth", "symmetrize")
# What all trials share: the features and the neighbours are made once, and folds are the same for all.
_SHARED = ("scale", "n_components", "metric", "method", "device", "verbose", "random_state", "n_members", "tune")
# Trials that run to their end before any is pruned, and epochs before a trial is.
STARTUP_TRIALS = 10
WARM_UP_EPOCHS = 40


@dataclass(frozen=True)
class TuningProgress:
    """Where a search stands.

    Args:
        done: Trials finished, by all processes.
        total: Trials asked for.
        log_loss: The least so far; None before the first.
        accuracy: Of that trial, out of fold.
        fit: Where the trial being run stands; None between trials.
    """

    done: int
    total: int
    log_loss: float | None
    accuracy: float | None
    fit: FitProgress | None


Hook = Callable[[TuningProgress], "bool | None"]


@dataclass(frozen=True)
class Trial:
    """One finished trial; ``log_loss`` and ``accuracy`` are None where it was pruned."""

    number: int
    setting: dict[str, Any]
    log_loss: float | None
    accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class TuningResult:
    """What a search found.

    Attributes:
        setting: The parameters with the least out-of-fold log loss, among those searched.
        log_loss: That loss, a mean over labels held out.
        accuracy: Out of fold, of the same trial.
        default_log_loss: Of the setting before the search, which is the first trial.
        trials: Finished ones, in the order in which they finished.
        importance: The share of the differences in log loss that each parameter explains (fANOVA), largest first;
            empty where fewer than 4 trials were completed.
        wanted: Trials asked for; more than ``trials`` holds where the search was stopped.
    """

    setting: dict[str, Any]
    log_loss: float
    accuracy: float
    default_log_loss: float | None
    trials: list[Trial]
    importance: dict[str, float]
    wanted: int

    @property
    def complete(self) -> bool:
        """Whether every trial asked for is finished."""
        return len(self.trials) >= self.wanted

    def best_so_far(self) -> list[float | None]:
        """The least log loss after each trial."""
        best: float | None = None
        curve = []
        for trial in self.trials:
            if trial.log_loss is not None:
                best = trial.log_loss if best is None else min(best, trial.log_loss)
            curve.append(best)
        return curve

    def to_json(self) -> dict[str, Any]:
        """Plain values, for metrics.json and the report."""
        return {
            "setting": self.setting,
            "log_loss": self.log_loss,
            "accuracy": self.accuracy,
            "default_log_loss": self.default_log_loss,
            "wanted": self.wanted,
            "pruned": sum(trial.log_loss is None for trial in self.trials),
            "importance": self.importance,
            "best_so_far": self.best_so_far(),
            "trials": [
                {
                    "number": trial.number,
                    "log_loss": trial.log_loss,
                    "accuracy": trial.accuracy,
                    "seconds": round(trial.seconds, 3),
                    "setting": trial.setting,
                }
                for trial in self.trials
            ],
        }


def tune(
    X: Any,
    y: Any,
    trials: int = 100,
    *,
    sampler: Sampler = "tpe",
    storage: str | Path | None = None,
    seed: int = 0,
    graph: Any = None,
    base: SobolevClassifier | None = None,
    space: Space = SPACE,
    members: int = 4,
    progress: Hook | None = None,
    pulse: Pulse | None = None,
) -> TuningResult:
    """Search the estimator's settings on held-out labels; fit nothing that is kept.

    Every trial trains all members of a setting as one batch on the same folds and seeds. Features are mapped and
    neighbours found once, for the largest k. A trial that is behind the median of the others at the same epoch is
    pruned. The first trial is ``base`` as it stands.

    Args:
        X: Points [N, F]: array, DataFrame or scipy sparse matrix.
        y: Labels [N]; -1, None or NaN where unknown. Labels hidden from y are never seen.
        trials: How many to finish, pruned ones among them.
        sampler: "tpe", or "random" as in the paper.
        storage: Where trials are kept. A path: a journal file, from which the search goes on after it was ended in
            any way. A URL (``postgresql://…``): a database, through which any number of processes on any machines
            share the search of the same data, base, space and seed. ``None``: memory.
        seed: Of the folds, of the members, and of the sampler.
        graph: As in :meth:`SobolevClassifier.fit`; then what makes graphs is not searched.
        base: Gives the parameters that are not searched; default: ``SobolevClassifier()``.
        space: What is searched; ``{**SPACE, "k": OneOf((10,))}`` narrows it.
        members: Networks of each family in a trial, trained as one batch; with 4, each label is held out by one. The
            estimator that is fitted in the end may have more.
        progress: Called as training goes on; returning True ends the search, with the best so far.
        pulse: How a process shows that it lives, with a database.
    """
    check_request(trials, sampler, members)
    base = SobolevClassifier() if base is None else base
    problem = _Problem(X, y, graph, clone(base).set_params(n_members=members), space, seed)
    watch = _Watch(progress, trials)
    with open_storage(storage, pulse) as opened:
        beat = (pulse or Pulse()) if is_url(storage) else None
        import optuna

        watch.study = lambda: optuna.load_study(study_name=problem.name, storage=opened)
        study = run_search(
            opened,
            problem.name,
            trials,
            lambda trial: _objective(trial, problem, watch),
            sampler=sampler,
            seed=seed,
            first=problem.first,
            pruner=optuna.pruners.MedianPruner(STARTUP_TRIALS, WARM_UP_EPOCHS),
            pulse=beat,
            waiting=watch.between,
        )
        watch.between()
        return _result(study, trials, problem, seed)


def study_name(X: Any, y: Any, *, graph: Any, base: SobolevClassifier, space: Space = SPACE, seed: int = 0) -> str:
    """The name under which :func:`tune` keeps its trials: a hash of everything their outcome depends on."""
    space = {name: values for name, values in space.items() if graph is None or name not in _GRAPH_SETTINGS}
    digest = hashlib.sha256()
    X, (classes, codes) = _points(X), encode_labels(y, X.shape[0])
    settings = {
        name: value for name, value in base.get_params().items() if name not in ("device", "verbose", "random_state")
    }
    facts = [X.shape, classes.tolist(), repr(sorted(settings.items())), repr(sorted(space.items())), seed]
    digest.update(json.dumps(facts, default=str).encode())
    parts = [codes, *((X.data, X.indices, X.indptr) if sp.issparse(X) else (X,))]
    if graph is not None:
        from sobgnn.classifier import _as_graph

        made = _as_graph(graph, X.shape[0])
        parts += [made.indptr.numpy(), made.indices.numpy(), made.weight.numpy()]
    for part in parts:
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return "sobgnn-" + digest.hexdigest()[:20]


def check_request(trials: int, sampler: str, members: int = 4) -> None:
    """Raise where a search cannot be what was asked for."""
    if members < 2:
        raise ValueError(f"`members` must be at least 2, so that every label is held out, but got {members}.")
    if isinstance(trials, bool) or not isinstance(trials, (int, np.integer)) or trials < 1:
        raise ValueError(f"`trials` must be a whole number of at least 1, but got {trials!r}. Try 100.")
    if sampler not in get_args(Sampler):
        raise ValueError(f"`sampler` must be 'tpe' or 'random', but got {sampler!r}.")


def _points(X: Any) -> Any:
    from sklearn.utils import check_array

    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)


class _Problem:
    """What all trials share, made once."""

    def __init__(self, X: Any, y: Any, graph: Any, base: SobolevClassifier, space: Space, seed: int) -> None:
        known = base.get_params()
        for name in space:
            if name not in known or name in _SHARED:
                can = ", ".join(sorted(set(known) - set(_SHARED)))
                raise ValueError(f"`space` must name parameters that trials can differ in, but got {name!r}: {can}.")
        points = _points(X)
        self.y, self.given, self.base = y, graph, base
        _check_holdable(*encode_labels(y, points.shape[0]), base)
        self.space = {name: v for name, v in space.items() if graph is None or name not in _GRAPH_SETTINGS}
        self.name = study_name(points, y, graph=graph, base=base, space=self.space, seed=seed)
        self.first = {name: known[name] for name, values in self.space.items() if values.holds(known[name])}
        self.seed = seed
        # The first draw of the estimator's own generator, so that a refit on X sees the same features.
        drawn = int(np.random.default_rng(seed).integers(2**31))
        self.points = FeatureMap.fit(points, scale=base.scale, n_components=base.n_components, seed=drawn)(points)
        self.found = self._neighbours(space.get("k")) if graph is None else None

    def _neighbours(self, searched: Between | OneOf | None) -> Neighbors:
        largest = self.base.k
        if isinstance(searched, Between):
            largest = max(largest, int(searched.high))
        elif isinstance(searched, OneOf):
            largest = max(largest, *searched.choices)
        device = torch.device(self.base.device or "cpu")
        z: Any = torch.from_numpy(self.points).to(device) if device.type == "cuda" else self.points
        k = min(largest, len(self.points) - 1)
        return nearest(z, k, metric=self.base.metric, method=self.base.method)

    def graph(self, classifier: SobolevClassifier) -> Any:
        """The graph of a setting: the given one, or the nearest of the neighbours already found."""
        if self.found is None:
            return self.given
        k = min(classifier.k, self.found.indices.shape[1])
        indices, distances = self.found.indices[:, :k], self.found.distances[:, :k]
        made: Graph = graph_from_neighbors(
            indices, distances, classifier.bandwidth, classifier.symmetrize, neighbor_recall=self.found.recall
        )
        return made

    def fitted(self, setting: dict[str, Any], hook: Callable[[FitProgress], bool | None]) -> SobolevClassifier:
        """A setting's estimator, trained on the points as they were mapped once."""
        parameters = self.base.get_params() | setting | {"random_state": self.seed, "scale": None, "n_components": None}
        classifier = SobolevClassifier(**parameters)
        if "tune" in parameters:
            classifier.set_params(tune=None)
        return classifier.fit(self.points, self.y, graph=self.graph(classifier), progress=hook)


def _check_holdable(classes: npt.NDArray[Any], codes: npt.NDArray[np.int64], base: SobolevClassifier) -> None:
    if base.early_stopping is False:
        raise ValueError("Tuning needs labels to hold out, but `early_stopping` is False. Leave it at 'auto'.")
    counts = np.bincount(codes[codes >= 0], minlength=len(classes))
    if base.early_stopping == "auto" and counts.min() < 3:
        rarest = classes[counts.argmin()]
        raise ValueError(
            f"Tuning needs labels to hold out, at least 3 in each class, but class {str(rarest)!r} has "
            f"{counts.min()}. Label more points of it, or fit without tuning."
        )


class _Watch:
    """Tells the caller where the search stands, and stops it on request."""

    def __init__(self, hook: Hook | None, total: int) -> None:
        self.hook, self.total = hook, total
        self.study: Callable[[], optuna.Study] | None = None
        self._seen: tuple[int, float | None, float | None] = (0, None, None)

    def between(self) -> bool:
        """Look at all trials; True where the search is to end."""
        from optuna.trial import TrialState

        if self.hook is None or self.study is None:
            return False
        done = [t for t in slots(self.study().get_trials(deepcopy=False), self.total) if t.state.is_finished()]
        complete = [t for t in done if t.state == TrialState.COMPLETE]
        best = min(complete, key=lambda t: float(t.value or 0.0), default=None)
        count = sum(t.state != TrialState.FAIL for t in done)
        self._seen = (count, None, None) if best is None else (count, best.value, best.user_attrs.get("accuracy"))
        return self._tell(None)

    def training(self, fit: FitProgress) -> bool:
        """Pass on where the trial at hand stands."""
        return self._tell(fit)

    def _tell(self, fit: FitProgress | None) -> bool:
        done, loss, accuracy = self._seen
        return self.hook is not None and bool(self.hook(TuningProgress(done, self.total, loss, accuracy, fit)))


def _objective(trial: optuna.Trial, problem: _Problem, watch: _Watch) -> float:
    import optuna

    if watch.between():
        raise StopSearch
    setting = {name: values.suggest(trial, name) for name, values in problem.space.items()}
    reported: set[int] = set()

    def hook(fit: FitProgress) -> bool:
        if watch.training(fit):
            raise StopSearch
        # Graph members take most of the time; features alone are quick, and what is mixed from both cannot be told
        # from theirs.
        score = fit.validation_accuracy if fit.stage == "graph members" and fit.done % 10 == 0 else None
        if score is not None and fit.done not in reported:
            reported.add(fit.done)
            trial.report(1 - score, fit.done)
            if trial.should_prune():
                raise optuna.TrialPruned
        return False

    try:
        classifier = problem.fitted(setting, hook)
    except (MemoryError, torch.OutOfMemoryError) as error:
        trial.set_user_attr("reason", "out of memory")
        raise optuna.TrialPruned from error
    loss = float(classifier.out_of_fold_log_loss_)
    if not math.isfinite(loss):
        trial.set_user_attr("reason", "diverged")
        raise optuna.TrialPruned
    trial.set_user_attr("accuracy", float(classifier.out_of_fold_accuracy_))
    return loss


def _result(study: optuna.Study, wanted: int, problem: _Problem, seed: int) -> TuningResult:
    from optuna.trial import TrialState

    standing = slots(study.get_trials(deepcopy=False), wanted)
    finished = [t for t in standing if t.state in (TrialState.COMPLETE, TrialState.PRUNED)]
    complete = [t for t in finished if t.state == TrialState.COMPLETE]
    if not complete:
        raise ValueError(
            "No trial was completed: training diverged or ran out of memory, or the search was stopped at once."
        )
    best = min(complete, key=lambda t: (float(t.value or 0.0), t.number))
    trials = [
        Trial(
            t.number,
            dict(t.params),
            None if t.state == TrialState.PRUNED else t.value,
            t.user_attrs.get("accuracy") if t.state == TrialState.COMPLETE else None,
            (t.datetime_complete - t.datetime_start).total_seconds()
            if t.datetime_complete and t.datetime_start
            else math.nan,
        )
        for t in sorted(finished, key=lambda t: (str(t.datetime_complete), t.number))
    ]
    first = standing[0]
    return TuningResult(
        setting={name: best.params[name] for name in problem.space},
        log_loss=float(best.value or 0.0),
        accuracy=float(best.user_attrs["accuracy"]),
        default_log_loss=first.value if first.state == TrialState.COMPLETE else None,
        trials=trials,
        importance=_importance(study, len(complete), seed),
        wanted=wanted,
    )


def _importance(study: optuna.Study, complete: int, seed: int) -> dict[str, float]:
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    if complete < 4:
        return {}
    with contextlib.suppress(RuntimeError, ValueError):  # e.g. all losses equal
        found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed))
        return {name: float(share) for name, share in found.items()}
    return {}
