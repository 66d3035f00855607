"""Search for the estimator's setting with the lowest out-of-fold log loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch

from sobgnn.estimator.classifier import SobolevClassifier
from sobgnn.estimator.fit import FitProgress
from sobgnn.estimator.tuning.problem import MEMBERS, Problem
from sobgnn.estimator.tuning.result import TuningResult, read_result
from sobgnn.estimator.tuning.space import SPACE, Space
from sobgnn.estimator.tuning.storage import Pulse, open_storage
from sobgnn.estimator.tuning.study import Sampler, StopSearch, finished, run_search

if TYPE_CHECKING:
    import optuna

# Number of trials that run to completion before any is pruned, and epochs before a trial may be pruned.
STARTUP_TRIALS = 10
WARM_UP_EPOCHS = 40


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
    check_request(trials, sampler, members)
    base = SobolevClassifier() if base is None else base
    problem = Problem(X, y, graph, base, space, seed, members)
    watch = _Watch(progress, trials)
    with open_storage(storage, pulse) as opened:
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
        )
        watch.between()
        return read_result(study, trials, problem.space, problem.decided, seed)


def check_request(trials: int, sampler: str, members: int = MEMBERS) -> None:
    """Raise if a search is invalid."""
    if members < 2:
        raise ValueError(f"`members` must be at least 2, so that every label is held out, but got {members}.")
    if isinstance(trials, bool) or not isinstance(trials, (int, np.integer)) or trials < 1:
        raise ValueError(f"`trials` must be an integer of at least 1, but got {trials!r}. Try 100.")
    if sampler not in get_args(Sampler):
        raise ValueError(f"`sampler` must be 'tpe' or 'random', but got {sampler!r}.")


class _Watch:
    """Reports progress to the caller, and stops the search on request."""

    def __init__(self, hook: Hook | None, total: int) -> None:
        self.hook, self.total = hook, total
        self.study: Callable[[], optuna.Study] | None = None
        self._seen: tuple[int, float | None, float | None] = (0, None, None)

    def between(self) -> bool:
        """Read all trials and report progress; True if the search must end."""
        from optuna.trial import TrialState

        if self.hook is None or self.study is None:
            return False
        done = finished(self.study())
        complete = [t for t in done if t.state == TrialState.COMPLETE]
        best = min(complete, key=lambda t: float(t.value or 0.0), default=None)
        count = min(len(done), self.total)
        self._seen = (count, None, None) if best is None else (count, best.value, best.user_attrs.get("accuracy"))
        return self.tell(None)

    def tell(self, fit: FitProgress | None) -> bool:
        """Report the progress of the running trial, ``None`` between trials; True if the search must end."""
        done, loss, accuracy = self._seen
        return self.hook is not None and bool(self.hook(TuningProgress(done, self.total, loss, accuracy, fit)))


def _objective(trial: optuna.Trial, problem: Problem, watch: _Watch) -> float:
    import optuna

    if watch.between():
        raise StopSearch
    setting = {name: values.suggest(trial, name) for name, values in problem.space.items()}
    reported: set[int] = set()

    def hook(fit: FitProgress) -> bool:
        if watch.tell(fit):
            raise StopSearch
        # The Sobolev networks come first; the loss of the blend of all families is not yet known.
        loss = fit.validation_loss if fit.stage == "sobolev" and fit.done % 10 == 0 else None
        if loss is not None and fit.done not in reported:
            reported.add(fit.done)
            trial.report(loss, fit.done)
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
