"""Trials that any number of processes share through an optuna storage; those that were cut off are run again.

A search resumes however it ended: trials that failed, were interrupted or whose process was killed are enqueued again
with their settings. Processes that finish at once may each run one trial more than was asked for.
"""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sobgnn._system.files import lock_file
from sobgnn._system.packages import installed

if TYPE_CHECKING:
    import optuna

Sampler = Literal["tpe", "random"]
# A setting that ends its process this often (perhaps out of memory) is dropped, and another is drawn instead.
ATTEMPTS_PER_SETTING = 3
# Attempts to find or make the tables of a database.
_TABLE_ATTEMPTS = 5
_BEGINNING = b'{"op_code":'  # of every line of a journal


@dataclass(frozen=True)
class Pulse:
    """Heartbeat of a process that shares its trials with others.

    Args:
        every: Seconds between two heartbeats.
        grace: Seconds without a heartbeat after which a trial is taken from its process and run again.
    """

    every: int = 10
    grace: int = 60


class StopSearch(Exception):  # noqa: N818 - a request, like StopIteration
    """Raised by an objective to end the search here; its trial is run again when the search resumes."""


def finished(study: optuna.Study) -> list[optuna.trial.FrozenTrial]:
    """Completed and pruned trials, by number."""
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def retry(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Enqueue a trial's setting again, unless that was done, or the setting has ended its process too often."""
    from optuna.storages import RetryHeartbeatStaleTrialCallback

    if not any(trial.number in retries_of(other) for other in study.get_trials(deepcopy=False)):
        RetryHeartbeatStaleTrialCallback(max_retry=ATTEMPTS_PER_SETTING - 1)(study, trial)


def retries_of(trial: optuna.trial.FrozenTrial) -> list[int]:
    """The numbers of the trials that this one replaces, the first attempt first."""
    return list(trial.system_attrs.get("retry_history", ()))


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

    with _quiet():
        study = optuna.create_study(storage=storage, study_name=name, pruner=pruner, load_if_exists=True)
        if first and not study.get_trials(deepcopy=False):
            study.enqueue_trial(first)
        if len(finished(study)) < trials:
            enough = MaxTrialsCallback(trials, states=(TrialState.COMPLETE, TrialState.PRUNED))
            with contextlib.suppress(StopSearch):
                study.optimize(seeded, callbacks=[enough])
    return study


@contextlib.contextmanager
def open_storage(place: str | Path | None, pulse: Pulse | None = None) -> Iterator[optuna.storages.BaseStorage]:
    """Open the storage of trials: a database's URL, the path of a journal file, or ``None`` for memory.

    A journal belongs to one process at a time; trials found running in it were left by a process that died.
    """
    import optuna

    if place is None:
        yield optuna.storages.InMemoryStorage()
    elif is_url(place):
        with _quiet():
            storage = _database(str(place), pulse or Pulse())
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    else:
        with _journal(Path(place)) as journal:
            yield journal


def is_url(place: str | Path | None) -> bool:
    """Whether trials are stored in a database."""
    return isinstance(place, str) and "://" in place


def _database(url: str, pulse: Pulse) -> optuna.storages.RDBStorage:
    import optuna
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import SQLAlchemyError

    shown = url.split("://")[0] + "://…"
    try:
        parsed = make_url(url)
        shown = parsed.render_as_string(hide_password=True)
        if parsed.drivername in ("postgres", "postgresql"):
            # Which driver a bare postgresql:// means depends on SQLAlchemy's version; use the installed one.
            driver = "psycopg2" if installed("psycopg2") else "psycopg"
            parsed = parsed.set(drivername=f"postgresql+{driver}")
        return _opened(parsed, pulse, _TABLE_ATTEMPTS)
    except ImportError as error:
        raise ValueError(
            f"The storage {shown} needs a driver that is not installed: {_line(error)} For PostgreSQL, "
            "pip install 'sobgnn[postgres]'."
        ) from error
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise ValueError(
            f"The storage {shown} cannot be used: {_line(error)} Check the URL and whether the server is running."
        ) from error


def _opened(url: Any, pulse: Pulse, attempts: int) -> optuna.storages.RDBStorage:
    import optuna
    from sqlalchemy.exc import IntegrityError, ProgrammingError

    timeout = {"connect_args": {"connect_timeout": 10}} if url.drivername.startswith("postgresql") else {}
    try:
        return optuna.storages.RDBStorage(
            url.render_as_string(hide_password=False),
            engine_kwargs={"pool_pre_ping": True, **timeout},
            heartbeat_interval=pulse.every,
            grace_period=pulse.grace,
            heartbeat_stale_trial_callback=retry,
        )
    except (IntegrityError, ProgrammingError):  # another process makes the tables meanwhile
        if attempts == 1:
            raise
        time.sleep(1)
        return _opened(url, pulse, attempts - 1)


def _line(error: BaseException) -> str:
    """The first line of an error's message, as a sentence; database drivers write long messages."""
    cause = getattr(error, "orig", None) or error
    lines = str(cause).strip().splitlines()
    return (lines[0].strip() if lines else type(cause).__name__).rstrip(".") + "."


@contextlib.contextmanager
def _journal(path: Path) -> Iterator[optuna.storages.JournalStorage]:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
    from optuna.trial import TrialState

    class Held(JournalFileOpenLock):
        """The lock below is held all the time."""

        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    file = lock_file(path)  # released with the process, however it ends
    if file is None:
        raise ValueError(
            f"{path} is in use by another process. Wait for it, or share the search through a database (storage)."
        )
    with file:
        other = f"{path} is not a journal of trials. Name another file."
        # Before anything is cut off: a file named by mistake stays as it is.
        file.seek(0)
        if not _BEGINNING.startswith(file.read(len(_BEGINNING))):
            raise ValueError(other)
        # An incomplete last line is dropped: the next one would be joined to it.
        file.seek(0)
        file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
        try:
            storage = JournalStorage(JournalFileBackend(str(path), lock_obj=Held(str(path))))
        except (ValueError, KeyError, TypeError, AssertionError, RecursionError) as error:
            raise ValueError(other) from error
        with _quiet():
            for name in optuna.get_all_study_names(storage):
                study = optuna.load_study(study_name=name, storage=storage)
                for trial in study.get_trials(states=(TrialState.RUNNING,)):
                    retry(study, trial)
                    study.tell(trial.number, state=TrialState.FAIL)
        yield storage


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence optuna's own messages and its warnings about experimental features."""
    import optuna

    before = optuna.logging.get_verbosity()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(logging.ERROR)
        try:
            yield
        finally:
            optuna.logging.set_verbosity(before)
