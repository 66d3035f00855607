"""Storage of trials: a journal file for one process at a time, or a database shared by many."""

from __future__ import annotations

import contextlib
import logging
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sobgnn._system.files import lock_file
from sobgnn._system.packages import installed

if TYPE_CHECKING:
    import optuna

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


def retry(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    """Enqueue a trial's setting again, unless that was done, or the setting has ended its process too often."""
    from optuna.storages import RetryHeartbeatStaleTrialCallback

    if not any(trial.number in retries_of(other) for other in study.get_trials(deepcopy=False)):
        RetryHeartbeatStaleTrialCallback(max_retry=ATTEMPTS_PER_SETTING - 1)(study, trial)


def retries_of(trial: optuna.trial.FrozenTrial) -> list[int]:
    """The numbers of the trials that this one replaces, the first attempt first."""
    return list(trial.system_attrs.get("retry_history", ()))


@contextlib.contextmanager
def open_storage(place: str | Path | None, pulse: Pulse | None = None) -> Iterator[optuna.storages.BaseStorage]:
    """Open the storage of trials: a database's URL, the path of a journal file, or ``None`` for memory.

    A journal belongs to one process at a time; trials found running in it were left by a process that died.
    """
    import optuna

    if place is None:
        yield optuna.storages.InMemoryStorage()
    elif is_url(place):
        with quiet():
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
    from sqlalchemy.exc import IntegrityError, ProgrammingError, SQLAlchemyError

    try:
        parsed = make_url(url)
        options: dict[str, Any] = {"pool_pre_ping": True}
        if parsed.drivername in ("postgres", "postgresql"):
            # Which driver a bare postgresql:// means depends on SQLAlchemy's version; use the installed one.
            driver = "psycopg2" if installed("psycopg2") else "psycopg"
            parsed = parsed.set(drivername=f"postgresql+{driver}")
        if parsed.drivername.startswith("postgresql"):
            options["connect_args"] = {"connect_timeout": 10}
        for _ in range(_TABLE_ATTEMPTS - 1):
            with contextlib.suppress(IntegrityError, ProgrammingError):  # another process makes the tables meanwhile
                return _opened(parsed, options, pulse)
            time.sleep(1)
        return _opened(parsed, options, pulse)
    except ImportError as error:
        raise ValueError(
            f"The storage {_shown(url)} needs a driver that is not installed: {_line(error)} For PostgreSQL, "
            "pip install 'sobgnn[postgres]'."
        ) from error
    except (SQLAlchemyError, optuna.exceptions.OptunaError) as error:
        raise ValueError(
            f"The storage {_shown(url)} cannot be used: {_line(error)} Check the URL and whether the server is running."
        ) from error


def _opened(url: Any, options: dict[str, Any], pulse: Pulse) -> optuna.storages.RDBStorage:
    import optuna

    return optuna.storages.RDBStorage(
        url.render_as_string(hide_password=False),
        engine_kwargs=options,
        heartbeat_interval=pulse.every,
        grace_period=pulse.grace,
        heartbeat_stale_trial_callback=retry,
    )


def _shown(url: str) -> str:
    """The URL without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url.split("://")[0] + "://…"


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
        with quiet():
            for name in optuna.get_all_study_names(storage):
                study = optuna.load_study(study_name=name, storage=storage)
                for trial in study.get_trials(states=(TrialState.RUNNING,)):
                    retry(study, trial)
                    study.tell(trial.number, state=TrialState.FAIL)
        yield storage


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
