"""Trials that any number of processes share through a storage of optuna's, each finished once whatever is killed.

A search of n trials has n slots. The trials that were made first, in the order of their numbers, are the slots; a
trial that failed is replaced by the first trial that is marked as its retry, and so on. Numbers are given by the
storage, one at a time, and what a trial retries is written with it, so every process reads the same slots from the
same trials, and a trial too many, made by two processes at once, is one that nobody runs.
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

RETRIES = "retries"  # on a trial: the number of the trial it stands in for
# A setting that ends its process this often (out of memory, perhaps) is given up, and another drawn in its place.
ATTEMPTS_PER_SETTING = 3
_POLL_SECONDS = 0.5


class StopSearch(Exception):  # noqa: N818 - a request, like StopIteration
    """Raised by an objective to end the search here; its trial is run again when the search resumes."""


def slots(trials: Sequence[optuna.trial.FrozenTrial], wanted: int) -> list[optuna.trial.FrozenTrial]:
    """The trial that stands for each slot, at most ``wanted``; from all trials of a study."""
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
    """Take part in a search until every one of its trials is finished, by this process or others.

    Args:
        storage: From :func:`open_storage`.
        name: Of the study: processes that give the same name share its trials.
        trials: How many are to finish, pruned ones among them.
        objective: Called with a trial; the less the better. Ends by ``optuna.TrialPruned`` or :class:`StopSearch`,
            too; any other exception leaves the trial to be run again, and is raised.
        sampler: "tpe" learns from finished trials, "random" does not.
        seed: With the slot it seeds the sampler, so that random settings are the same however many processes draw.
        first: Parameters of the first slot.
        pruner: Median pruner by default; asked by the objective.
        pulse: Signs of life; must be what ``open_storage`` was given.
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
                    continue  # others were quicker
                elif len(standing) < trials:
                    study.enqueue_trial({})
                elif TrialState.RUNNING not in states:
                    return study
                else:
                    if waiting is not None and waiting():
                        return study
                    time.sleep(_POLL_SECONDS)


def _claim(storage: optuna.storages.BaseStorage, trial_id: int, pulse: Pulse | None) -> bool:
    """Whether this process, and no other, is to run a waiting trial."""
    import optuna
    from optuna.trial import TrialState

    try:
        if pulse is not None:
            # Before it is ours: a process that dies right after must leave a sign that can grow old.
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
    """Run a trial that is ours and store what came out; False where it asked for the search to end."""
    import optuna
    from optuna.trial import TrialState

    trial = optuna.Trial(study, trial_id)
    lost = optuna.exceptions.UpdateFinishedTrialError  # taken from us while we gave no sign of life
    try:
        with _beating(storage, trial_id, pulse), contextlib.suppress(lost):
            try:
                study.tell(trial, objective(trial), skip_if_finished=True)
            except optuna.TrialPruned:
                study.tell(trial, state=TrialState.PRUNED, skip_if_finished=True)
    except BaseException as error:
        # So that others need not wait for the signs of life to grow old; where this fails, they do.
        with contextlib.suppress(Exception):
            study.tell(trial, state=TrialState.FAIL, skip_if_finished=True)
        if isinstance(error, StopSearch):
            return False
        raise
    return True


def _attempt(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> int:
    """How many trials this one stands in for."""
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
    """Signs of life from a thread of their own."""
    if pulse is None:
        yield
        return
    done = threading.Event()

    def beat() -> None:
        while not done.wait(pulse.every):
            with contextlib.suppress(Exception):  # a server that is away for a moment; the next one may arrive
                storage.record_heartbeat(trial_id)

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
