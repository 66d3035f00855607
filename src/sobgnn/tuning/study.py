"""Trials that any number of processes share through an optuna storage, each finished once even if processes are killed.

A search of n trials has n slots. The first n trials that are not retries, by number, are the slots; a failed trial is
replaced by the first trial that is marked as its retry, and so on. The storage assigns numbers one at a time, and a
retry is stored with the number of the trial it replaces. So every process reads the same slots from the same trials,
and an extra trial, created by two processes at once, is never run.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sobgnn.tuning.storage import Pulse, quiet

if TYPE_CHECKING:
    import optuna

Sampler = Literal["tpe", "random"]
Objective = Callable[["optuna.Trial"], float]

RETRIES = "retries"  # on a trial: the number of the trial it replaces
# A setting that ends its process this often (perhaps out of memory) is dropped, and another is drawn instead.
ATTEMPTS_PER_SETTING = 3
_POLL_SECONDS = 0.5


class StopSearch(Exception):  # noqa: N818 - a request, like StopIteration
    """Raised by an objective to end the search here; its trial is run again when the search resumes."""


def slots(trials: Sequence[optuna.trial.FrozenTrial], wanted: int) -> list[optuna.trial.FrozenTrial]:
    """The current trial of each slot, at most ``wanted``, from all trials of a study."""
    from optuna.trial import TrialState

    by_number = sorted(trials, key=lambda trial: trial.number)
    successor: dict[int, optuna.trial.FrozenTrial] = {}
    for trial in by_number:
        if RETRIES in trial.user_attrs:
            successor.setdefault(trial.user_attrs[RETRIES], trial)
    standing = []
    for trial in [trial for trial in by_number if RETRIES not in trial.user_attrs][:wanted]:
        while trial.state == TrialState.FAIL and trial.number in successor:
            trial = successor[trial.number]
        standing.append(trial)
    return standing


def run_search(
    storage: optuna.storages.BaseStorage,
    name: str,
    trials: int,
    objective: Objective,
    *,
    sampler: Sampler = "tpe",
    seed: int = 0,
    first: dict[str, Any] | None = None,
    pruner: optuna.pruners.BasePruner | None = None,
    pulse: Pulse | None = None,
    waiting: Callable[[], bool | None] | None = None,
) -> optuna.Study:
    """Run trials of a search until all are finished, by this process or others.

    Args:
        storage: From :func:`open_storage`.
        name: Name of the study; processes that use the same name share its trials.
        trials: Number of trials to finish, including pruned ones.
        objective: Called with a trial; returns a value to minimize. It may also raise ``optuna.TrialPruned`` or
            :class:`StopSearch`; after any other exception, which is raised, the trial will be run again.
        sampler: "tpe" learns from finished trials, "random" does not.
        seed: Seeds the sampler together with the slot, so that random settings do not depend on the number of
            processes.
        first: Parameters of the first slot.
        pruner: Pruner, used by the objective; default: optuna's median pruner.
        pulse: Heartbeat; must be the one passed to ``open_storage``.
        waiting: Called while other processes finish; True ends the search here.
    """
    import optuna
    from optuna.trial import TrialState

    with quiet():
        study = optuna.create_study(storage=storage, study_name=name, pruner=pruner, load_if_exists=True)
        study_id = storage.get_study_id_from_name(name)
        while True:
            optuna.storages.fail_stale_trials(study)
            standing = slots(study.get_trials(deepcopy=False), trials)
            states = [trial.state for trial in standing]
            for slot, trial in enumerate(standing):
                if trial.state == TrialState.WAITING:
                    trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
                    if _claim(storage, trial_id, pulse):
                        study.sampler = _sampler(sampler, seed, slot, _attempt(study, trial), first)
                        if not _run(study, storage, trial_id, objective, pulse):
                            return study
                        break
            else:
                if TrialState.FAIL in states:
                    _retry(study, standing[states.index(TrialState.FAIL)])
                elif TrialState.WAITING in states:
                    continue  # others were faster
                elif len(standing) < trials:
                    study.enqueue_trial({})
                elif TrialState.RUNNING not in states:
                    return study
                else:
                    if waiting is not None and waiting():
                        return study
                    time.sleep(_POLL_SECONDS)


def _claim(storage: optuna.storages.BaseStorage, trial_id: int, pulse: Pulse | None) -> bool:
    """Claim a waiting trial; True if this process, and no other, must run it."""
    import optuna
    from optuna.trial import TrialState

    try:
        if pulse is not None:
            # Before the claim: a process that dies right after it must leave a heartbeat that can expire.
            storage.record_heartbeat(trial_id)  # type: ignore[attr-defined]
        return storage.set_trial_state_values(trial_id, TrialState.RUNNING)
    except optuna.exceptions.UpdateFinishedTrialError:
        return False


def _run(
    study: optuna.Study,
    storage: optuna.storages.BaseStorage,
    trial_id: int,
    objective: Objective,
    pulse: Pulse | None,
) -> bool:
    """Run a claimed trial and store its result; False if it requested the end of the search."""
    import optuna
    from optuna.trial import TrialState

    trial = optuna.Trial(study, trial_id)
    lost = optuna.exceptions.UpdateFinishedTrialError  # taken from us for lack of heartbeats
    try:
        with _beating(storage, trial_id, pulse), contextlib.suppress(lost):
            try:
                study.tell(trial, objective(trial), skip_if_finished=True)
            except optuna.TrialPruned:
                study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
    except BaseException as error:
        # So that others need not wait for the heartbeat to expire; if this fails, they wait.
        with contextlib.suppress(Exception):
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if isinstance(error, StopSearch):
            return False
        raise
    return True


def _attempt(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
    """How many trials this one replaces."""
    retried = {t.number: t.user_attrs.get(RETRIES) for t in study.get_trials(deepcopy=False)}
    count, number = 0, retried[trial.number]
    while number is not None:
        count, number = count + 1, retried[number]
    return count


def _retry(study: optuna.Study, failed: optuna.trial.FrozenTrial) -> None:
    again = (_attempt(study, failed) + 1) % ATTEMPTS_PER_SETTING != 0
    study.enqueue_trial(failed.params if again else {}, user_attrs={RETRIES: failed.number})


def _sampler(
    kind: Sampler, seed: int, slot: int, attempt: int, first: dict[str, Any] | None
) -> optuna.samplers.BaseSampler:
    import optuna

    own = int(np.random.SeedSequence([seed, slot, attempt // ATTEMPTS_PER_SETTING]).generate_state(1)[0])
    sampler: optuna.samplers.BaseSampler = (
        optuna.samplers.RandomSampler(seed=own) if kind == "random" else optuna.samplers.TPESampler(seed=own)
    )
    if slot == 0 and first and attempt < ATTEMPTS_PER_SETTING:
        return optuna.samplers.PartialFixedSampler(first, sampler)
    return sampler


@contextlib.contextmanager
def _beating(storage: Any, trial_id: int, pulse: Pulse | None) -> Iterator[None]:
    """Send heartbeats from a separate thread."""
    if pulse is None:
        yield
        return
    done = threading.Event()

    def beat() -> None:
        while not done.wait(pulse.every):
            with contextlib.suppress(Exception):  # the server may be briefly unavailable; the next heartbeat may arrive
                storage.record_heartbeat(trial_id)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
