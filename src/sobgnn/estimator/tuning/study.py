"""Trials that any number of processes share through an optuna storage; those that were cut off are run again.

A search resumes however it ended: trials that failed, were interrupted or whose process was killed are enqueued again
with their settings. Processes that finish at once may each run one trial more than was asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sobgnn.estimator.tuning.storage import quiet, retries_of, retry

if TYPE_CHECKING:
    import optuna

Sampler = Literal["tpe", "random"]


class StopSearch(Exception):  # noqa: N818 - a request, like StopIteration
    """Raised by an objective to end the search here; its trial is run again when the search resumes."""


def finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Completed and pruned trials, by number."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def run_search(
    storage: optuna.storages.BaseStorage,
    name: str,
    trials: int,
    objective: Callable[[optuna.Trial], float],
    *,
    sampler: Sampler = "tpe",
    seed: int = 0,
    first: dict[str, Any] | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
) -> optuna.Study:
    """Run trials of a search until enough are finished, by this process or others.

    Args:
        storage: From :func:`open_storage`.
        name: Name of the study; processes that use the same name share its trials.
        trials: Number of trials to finish, including pruned ones.
        objective: Called with a trial; returns a value to minimize. It may also raise ``optuna.TrialPruned`` or
            :class:`StopSearch`; after any other exception, which is raised, the trial will be run again.
        sampler: "tpe" learns from finished trials, "random" does not.
        seed: Seeds the sampler together with the trial's number, so that random settings do not depend on the number
            of processes.
        first: Parameters of the first trial.
        pruner: Pruner, used by the objective; default: optuna's median pruner.
    """
    import optuna
    from optuna.study import MaxTrialsCallback
    from optuna.trial import TrialState

    def seeded(trial: optuna.Trial) -> float:
        every = study.get_trials(deepcopy=False)
        # A trial that is run again has the seed of its first attempt.
        originals = [other.number for other in every if not retries_of(other)]
        place = int(np.searchsorted(originals, (retries_of(every[trial.number]) or [trial.number])[0]))
        own = int(np.random.SeedSequence([seed, place]).generate_state(1)[0])
        # Parameters are drawn one by one when the objective asks for them, by the sampler that the study then has.
        samplers = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        study.sampler = samplers[sampler](seed=own)
        try:
            return objective(trial)
        except optuna.TrialPruned:
            raise
        except BaseException:
            retry(study, study.get_trials()[trial.number])
            raise

    with quiet():
        study = optuna.create_study(storage=storage, study_name=name, pruner=pruner, load_if_exists=True)
        if first and not study.get_trials(deepcopy=False):
            study.enqueue_trial(first)
        if len(finished(study)) < trials:
            enough = MaxTrialsCallback(trials, states=(TrialState.COMPLETE, TrialState.PRUNED))
            with contextlib.suppress(StopSearch):
                study.optimize(seeded, callbacks=[enough])
    return study
