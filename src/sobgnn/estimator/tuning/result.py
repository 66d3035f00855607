"""The result of a search, read from the trials in its storage."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sobgnn.estimator.tuning.storage import retries_of
from sobgnn.estimator.tuning.study import finished

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Trial:
    """One finished trial; ``log_loss`` and ``accuracy`` are None if it was pruned."""

    number: int
    setting: dict[str, Any]
    log_loss: float | None
    accuracy: float | None
    seconds: float


@dataclass(frozen=True)
class TuningResult:
    """What a search found.

    Attributes:
        setting: The parameters with the least out-of-fold log loss, among those searched; and ``scale``, if the base
            has ``"auto"``.
        log_loss: Its log loss, a mean over held-out labels.
        accuracy: Out-of-fold accuracy of the same trial.
        default_log_loss: Log loss of the setting before the search, which is the first trial.
        trials: Finished trials, in the order in which they finished.
        importance: The share of the differences in log loss that each parameter explains (fANOVA), largest first;
            empty if fewer than 4 trials were completed.
        wanted: Requested number of trials: more than in ``trials`` if the search was stopped, or fewer if several
            processes ended at once.
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
        """Whether every requested trial is finished."""
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


def read_result(
    study: optuna.Study, wanted: int, names: Iterable[str], decided: dict[str, Any], seed: int
) -> TuningResult:
    """The result of all finished trials.

    Args:
        study: A study with at least one trial.
        wanted: Requested number of trials.
        names: Parameters that were searched.
        decided: Parameters that were decided once for all trials.
        seed: Seed of the importances.
    """
    from optuna.trial import TrialState

    ended = finished(study)
    default = [t for t in ended if t.number == 0 or 0 in retries_of(t)]
    complete = [t for t in ended if t.state == TrialState.COMPLETE]
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
        for t in sorted(ended, key=lambda t: (str(t.datetime_complete), t.number))
    ]
    return TuningResult(
        setting={name: best.params[name] for name in names} | decided,
        log_loss=float(best.value or 0.0),
        accuracy=float(best.user_attrs["accuracy"]),
        default_log_loss=default[0].value if default and default[0] in complete else None,
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
