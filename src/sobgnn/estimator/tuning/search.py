"""Search for the estimator's setting with the lowest out-of-fold log loss."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import scipy.sparse as sp
import torch
from sklearn.utils import check_array

from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.fit import FitProgress
from sobgnn.estimator.labels import LEAST_PER_CLASS, encode_labels
from sobgnn.estimator.scaling import decide_scales
from sobgnn.estimator.tuning.result import TuningResult, read_result
from sobgnn.estimator.tuning.space import SPACE, Between, OneOf, Space
from sobgnn.estimator.tuning.storage import Pulse, open_storage
from sobgnn.estimator.tuning.study import Sampler, StopSearch, finished, run_search
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

    def objective(trial: optuna.Trial) -> float:
        seen = _seen(trial.study, trials)
        _tell(progress, seen)
        setting = {name: values.suggest(trial, name) for name, values in space.items()}
        classifier = SobolevClassifier(**{**shared, **setting})
        return _loss_of(trial, lambda hook: classifier.fit(X, y, graph=graph, progress=hook), progress, seen)

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
            progress(_seen(study, trials))
        return read_result(study, trials, space, decided, seed)


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
    space = _searched(space, X.shape[0], graph)
    without = ("device", "verbose", "random_state", "n_members")
    settings = {name: value for name, value in base.get_params().items() if name not in without}
    facts = [X.shape, classes.tolist(), repr(sorted(settings.items())), repr(sorted(space.items())), seed, members]
    digest = hashlib.sha256(json.dumps(facts, default=str).encode())
    parts = [codes, *((X.data, X.indices, X.indptr) if sp.issparse(X) else (X,))]
    if graph is not None:
        made = as_graph(graph, X.shape[0])
        parts += [made.indptr.numpy(), made.indices.numpy(), made.weight.numpy()]
    for part in parts:
        digest.update(np.ascontiguousarray(part).view(np.uint8).data)
    return "sobgnn-" + digest.hexdigest()[:20]


def _points(X: Any) -> Any:
    return check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)


def _searched(space: Space, num_points: int, graph: Any) -> dict[str, Between | OneOf]:
    """What is searched in these points: nothing of a given graph, and no more neighbors than there are."""
    searched = {name: values for name, values in space.items() if graph is None or name not in _GRAPH_SETTINGS}
    neighbors, most = searched.get("k"), num_points - 1
    if isinstance(neighbors, Between) and neighbors.high > most:  # more would all be the same graph
        searched["k"] = replace(neighbors, low=min(neighbors.low, most), high=most)
    return searched


def _seen(study: optuna.Study, total: int) -> TuningProgress:
    """The progress between trials."""
    done = finished(study)
    best = min((t for t in done if t.state.name == "COMPLETE"), key=lambda t: float(t.value or 0.0), default=None)
    scores = (None, None) if best is None else (best.value, best.user_attrs.get("accuracy"))
    return TuningProgress(min(len(done), total), total, *scores, fit=None)


def _tell(progress: Hook | None, seen: TuningProgress) -> None:
    """Report progress; raise if the search must end."""
    if progress is not None and progress(seen):
        raise StopSearch


def _loss_of(
    trial: optuna.Trial,
    fit: Callable[[Callable[[FitProgress], None]], SobolevClassifier],
    progress: Hook | None,
    seen: TuningProgress,
) -> float:
    """The out-of-fold log loss of a fit, which is pruned as soon as it is behind other trials."""
    import optuna

    reported: set[int] = set()

    def hook(at: FitProgress) -> None:
        _tell(progress, replace(seen, fit=at))
        # The Sobolev networks come first; the loss of the blend of all families is not yet known.
        loss = at.validation_loss if at.stage == "sobolev" and at.done % 10 == 0 else None
        if loss is not None and at.done not in reported:
            reported.add(at.done)
            trial.report(loss, at.done)
            if trial.should_prune():
                raise optuna.TrialPruned

    try:
        classifier = fit(hook)
    except (MemoryError, torch.OutOfMemoryError) as error:
        trial.set_user_attr("reason", "out of memory")
        raise optuna.TrialPruned from error
    loss = float(classifier.out_of_fold_log_loss_)
    if not math.isfinite(loss):
        trial.set_user_attr("reason", "diverged")
        raise optuna.TrialPruned
    trial.set_user_attr("accuracy", float(classifier.out_of_fold_accuracy_))
    return loss
