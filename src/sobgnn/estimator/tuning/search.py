"""Search for the estimator's setting with the lowest out-of-fold log loss."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from sklearn.utils import check_array

from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.fit import FitProgress, fingerprint
from sobgnn.estimator.labels import LEAST_PER_CLASS, encode_labels
from sobgnn.estimator.scaling import decide_scales
from sobgnn.estimator.tuning.study import Pulse, Sampler, StopSearch, finished, open_storage, retries_of, run_search
from sobgnn.estimator.validation import check_whole
from sobgnn.graphs.convert import as_graph

if TYPE_CHECKING:
    import optuna

# Number of networks per family in a trial.
MEMBERS = 4
# Searched only if the graph is built from the points.
_GRAPH_SETTINGS = ("k", "bandwidth", "symmetrize")
# Parameters that all trials share, so that folds are the same for all.
_SHARED = ("scale", "n_components", "metric", "method", "device", "verbose", "random_state", "n_members")
# Number of trials that run to completion before any is pruned, and epochs before a trial may be pruned.
_STARTUP_TRIALS, _WARM_UP_EPOCHS = 10, 40


@dataclass(frozen=True)
class Between:
    """Numbers from ``low`` to ``high``, both included; integers if ``low`` is an integer."""

    low: float
    high: float
    log: bool = False

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return isinstance(value, (int, float)) and not isinstance(value, bool) and self.low <= value <= self.high

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw a value in a trial."""
        if isinstance(self.low, int):
            return trial.suggest_int(name, self.low, int(self.high), log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)


@dataclass(frozen=True)
class OneOf:
    """One of the given values: numbers, strings, booleans or ``None``."""

    choices: tuple[Any, ...]

    def holds(self, value: object) -> bool:
        """Whether a value can be drawn."""
        return value in self.choices

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Draw a value in a trial."""
        return trial.suggest_categorical(name, self.choices)


Space = Mapping[str, Between | OneOf]

# Around the ranges of the paper's authors (hidden 16-64, dropout 0.3-0.7, lr 0.005-0.02, weight decay 1e-4-1e-3,
# α 1-6, ε 0.5-2), and the graph itself.
SPACE: Space = {
    "k": Between(5, 30, log=True),
    "bandwidth": OneOf(("mean", "local")),
    "alpha": Between(1, 6),
    "epsilon": Between(0.25, 4.0, log=True),
    "hidden_channels": OneOf((16, 32, 64)),
    "dropout": Between(0.1, 0.8),
    "lr": Between(0.005, 0.05, log=True),
    "weight_decay": Between(1e-5, 1e-2, log=True),
}


@dataclass(frozen=True)
class Trial:
    """One finished trial; ``log_loss`` and ``accuracy`` are None if it was pruned."""

    number: int
    log_loss: float | None
    accuracy: float | None
    seconds: float
    setting: dict[str, Any]


@dataclass(frozen=True)
class TuningResult:
    """What a search found.

    Attributes:
        setting: The parameters with the least out-of-fold log loss, among those searched; and ``scale``, if the base
            has ``"auto"``.
        log_loss: Its log loss, a mean over held-out labels.
        accuracy: Out-of-fold accuracy of the same trial.
        default_log_loss: Log loss of the setting before the search, which is the first trial.
        wanted: Requested number of trials: more than in ``trials`` if the search was stopped, or fewer if several
            processes ended at once.
        importance: The share of the differences in log loss that each parameter explains (fANOVA), largest first;
            empty if fewer than 4 trials were completed.
        trials: Finished trials, in the order in which they finished.
    """

    setting: dict[str, Any]
    log_loss: float
    accuracy: float
    default_log_loss: float | None
    wanted: int
    importance: dict[str, float]
    trials: list[Trial]

    @property
    def complete(self) -> bool:
        """Whether every requested trial is finished."""
        return len(self.trials) >= self.wanted

    def best_so_far(self) -> list[float | None]:
        """The least log loss after each trial."""
        curve: list[float | None] = []
        for trial in self.trials:
            losses = [loss for loss in (*curve[-1:], trial.log_loss) if loss is not None]
            curve.append(min(losses, default=None))
        return curve

    def to_json(self) -> dict[str, Any]:
        """Plain values, for metrics.json and the report."""
        pruned = sum(trial.log_loss is None for trial in self.trials)
        return {**asdict(self), "pruned": pruned, "best_so_far": self.best_so_far()}


@dataclass(frozen=True)
class TuningProgress:
    """Progress of a search.

    Args:
        done: Number of finished trials, over all processes.
        total: Requested number of trials.
        log_loss: The least log loss so far; None before the first.
        accuracy: Out-of-fold accuracy of that trial.
        fit: Progress of the running trial; None between trials.
    """

    done: int
    total: int
    log_loss: float | None
    accuracy: float | None
    fit: FitProgress | None


Hook = Callable[[TuningProgress], "bool | None"]


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
    members: int = MEMBERS,
    progress: Hook | None = None,
    pulse: Pulse | None = None,
) -> TuningResult:
    """Search the estimator's settings on held-out labels; no fitted model is kept.

    Every trial fits an estimator on the same folds and seeds; how columns are scaled is decided once for all of them. A
    trial that is behind the median of the others at the same epoch is pruned. The first trial is ``base`` itself.

    Args:
        X: Points [N, F]: array, DataFrame or scipy sparse matrix.
        y: Labels [N]; -1, None or NaN: unlabeled. Labels hidden from y are never seen.
        trials: Number of trials to finish, including pruned ones.
        sampler: "tpe", or "random" as in the paper.
        storage: Where trials are stored. A path: a journal file, from which the search resumes however it was stopped.
            A URL (``postgresql://…``): a database, through which any number of processes on any machines share the
            search of the same data, base, space and seed. ``None``: memory.
        seed: Seed of the folds, the members and the sampler.
        graph: As in :meth:`SobolevClassifier.fit`; then the parameters of the neighbor graph are not searched.
        base: Sets the parameters that are not searched; default: ``SobolevClassifier()``.
        space: What is searched; ``{**SPACE, "k": OneOf((10,))}`` narrows it.
        members: Number of networks per family in a trial, trained as one batch; with 4, each label is held out by one.
            The final estimator may have more.
        progress: Called during training; returning True ends the search with the best result so far.
        pulse: Heartbeat of a process, with a database.

    Examples:
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from sobgnn import SobolevClassifier
        >>> from sobgnn.estimator.tuning import tune
        >>> X, truth = load_iris(return_X_y=True)
        >>> y = np.where(np.arange(150) % 5 == 0, truth, -1)
        >>> quick = SobolevClassifier(families=["sobolev"], epochs=20)
        >>> found = tune(X, y, trials=2, base=quick, seed=0)
        >>> model = SobolevClassifier(**found.setting).fit(X, y)
    """
    import optuna

    check_request(trials, sampler, members)
    base = SobolevClassifier() if base is None else base
    known = base.get_params()
    for name in space:
        if name not in known or name in _SHARED:
            can = ", ".join(sorted(set(known) - set(_SHARED)))
            raise ValueError(f"`space` must name parameters that trials can differ in, but got {name!r}: {can}.")
    X = _points(X)
    classes, codes = encode_labels(y, X.shape[0])
    most = int(np.bincount(codes[codes >= 0], minlength=len(classes)).max())
    if most < LEAST_PER_CLASS:
        raise ValueError(
            f"Tuning needs labels to hold out, at least {LEAST_PER_CLASS} in some class, but no class has more than "
            f"{most}. Label more points, or fit without tuning."
        )
    space = _searched(space, X.shape[0], graph)
    scales = decide_scales(base.scale, X, codes, base.k, base.n_components, np.random.default_rng(seed))
    # What the estimator would otherwise choose again in every trial.
    decided = {"scale": (scales.neighbors, scales.networks)} if base.scale == "auto" else {}
    shared = {**known, "n_members": members, **decided, "random_state": seed}

    def seen(study: optuna.Study) -> TuningProgress:
        done = finished(study)
        best = min((t for t in done if t.state.name == "COMPLETE"), key=_loss, default=None)
        loss, accuracy = (None, None) if best is None else (best.value, best.user_attrs["accuracy"])
        return TuningProgress(min(len(done), trials), trials, loss, accuracy, fit=None)

    def tell(at: TuningProgress) -> None:
        if progress is not None and progress(at):
            raise StopSearch

    def objective(trial: optuna.Trial) -> float:
        before = seen(trial.study)
        tell(before)
        setting = {name: values.suggest(trial, name) for name, values in space.items()}
        reported: set[int] = set()

        def hook(at: FitProgress) -> None:
            tell(replace(before, fit=at))
            # The Sobolev networks come first; the loss of the blend of all families is not yet known.
            loss = at.validation_loss if at.stage == "sobolev" and at.done % 10 == 0 else None
            if loss is not None and at.done not in reported:
                reported.add(at.done)
                trial.report(loss, at.done)
                if trial.should_prune():
                    raise optuna.TrialPruned

        try:
            classifier = SobolevClassifier(**{**shared, **setting}).fit(X, y, graph=graph, progress=hook)
        except (MemoryError, torch.OutOfMemoryError) as error:
            trial.set_user_attr("reason", "out of memory")
            raise optuna.TrialPruned from error
        loss = float(classifier.out_of_fold_log_loss_)
        if not math.isfinite(loss):
            trial.set_user_attr("reason", "diverged")
            raise optuna.TrialPruned
        trial.set_user_attr("accuracy", float(classifier.out_of_fold_accuracy_))
        return loss

    with open_storage(storage, pulse) as opened:
        study = run_search(
            opened,
            study_name(X, y, graph=graph, base=base, space=space, seed=seed, members=members),
            trials,
            objective,
            sampler=sampler,
            seed=seed,
            first={name: known[name] for name, values in space.items() if values.holds(known[name])},
            pruner=optuna.pruners.MedianPruner(_STARTUP_TRIALS, _WARM_UP_EPOCHS),
        )
        if progress is not None:
            progress(seen(study))
        return _result(study, trials, space, decided, seed)


def check_request(trials: int, sampler: str, members: int = MEMBERS) -> None:
    """Raise if a search is invalid."""
    if members < 2:
        raise ValueError(f"`members` must be at least 2, so that every label is held out, but got {members}.")
    check_whole("trials", trials)
    if sampler not in get_args(Sampler):
        raise ValueError(f"`sampler` must be 'tpe' or 'random', but got {sampler!r}.")


def study_name(
    X: Any,
    y: Any,
    *,
    graph: Any,
    base: SobolevClassifier,
    space: Space = SPACE,
    seed: int = 0,
    members: int = MEMBERS,
) -> str:
    """The name under which :func:`tune` keeps its trials: a hash of everything that their results depend on."""
    X, (classes, codes) = _points(X), encode_labels(y, X.shape[0])
    without = ("device", "verbose", "random_state", "n_members")
    facts = {name: value for name, value in base.get_params().items() if name not in without}
    searched = sorted(_searched(space, X.shape[0], graph).items())
    facts |= {"classes": classes.tolist(), "space": searched, "seed": seed, "members": members}
    return "sobgnn-" + fingerprint(X, None if graph is None else as_graph(graph, X.shape[0]), facts, codes)[:20]


def _points(X: Any) -> Any:
    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)


def _searched(space: Space, num_points: int, graph: Any) -> dict[str, Between | OneOf]:
    """What is searched in these points: nothing of a given graph, and no more neighbors than there are."""
    searched = {name: values for name, values in space.items() if graph is None or name not in _GRAPH_SETTINGS}
    neighbors, most = searched.get("k"), num_points - 1
    if isinstance(neighbors, Between) and neighbors.high > most:  # more would all be the same graph
        searched["k"] = replace(neighbors, low=min(neighbors.low, most), high=most)
    return searched


def _loss(trial: optuna.trial.FrozenTrial) -> tuple[float, int]:
    """What trials are ordered by."""
    return float(trial.value or 0.0), trial.number


def _result(study: optuna.Study, wanted: int, space: Space, decided: dict[str, Any], seed: int) -> TuningResult:
    """The result of all finished trials of a study; the parameters in ``decided`` were decided once for all of them."""
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    ended = finished(study)
    complete = [trial for trial in ended if trial.state.name == "COMPLETE"]
    if not complete:
        raise ValueError(
            "No trial was completed: training diverged or ran out of memory, or the search was stopped at once."
        )
    trials = []
    for trial in sorted(ended, key=lambda t: (str(t.datetime_complete), t.number)):
        scores = (trial.value, trial.user_attrs.get("accuracy")) if trial in complete else (None, None)
        duration = trial.duration.total_seconds() if trial.duration else math.nan
        trials.append(Trial(trial.number, *scores, round(duration, 3), dict(trial.params)))
    importance: dict[str, float] = {}
    with contextlib.suppress(RuntimeError, ValueError):  # e.g. all losses equal
        if len(complete) >= 4:
            found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed))
            importance = {name: float(share) for name, share in found.items()}
    best = min(complete, key=_loss)
    return TuningResult(
        setting={name: best.params[name] for name in space} | decided,
        log_loss=_loss(best)[0],
        accuracy=float(best.user_attrs["accuracy"]),
        default_log_loss=next((t.value for t in complete if t.number == 0 or 0 in retries_of(t)), None),
        wanted=wanted,
        importance=importance,
        trials=trials,
    )
