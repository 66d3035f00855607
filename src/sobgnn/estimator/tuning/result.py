"""The result of a search, read from the trials in its storage."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from sobgnn.estimator.tuning.storage import retries_of
from sobgnn.estimator.tuning.study import finished

if TYPE_CHECKING:
    import optuna


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


def read_result(
    study: optuna.Study, wanted: int, names: Iterable[str], decided: dict[str, Any], seed: int
) -> TuningResult:
    """The result of all finished trials of a study.

    Args:
        wanted: Requested number of trials.
        names: Parameters that were searched.
        decided: Parameters that were decided once for all trials.
        seed: Seed of the importances.
    """
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances
    from optuna.trial import FrozenTrial, TrialState

    ended = finished(study)
    complete = [trial for trial in ended if trial.state == TrialState.COMPLETE]
    if not complete:
        raise ValueError(
            "No trial was completed: training diverged or ran out of memory, or the search was stopped at once."
        )

    def read(trial: FrozenTrial) -> Trial:
        scores = (trial.value, trial.user_attrs.get("accuracy")) if trial in complete else (None, None)
        duration = trial.duration.total_seconds() if trial.duration else math.nan
        return Trial(trial.number, *scores, round(duration, 3), dict(trial.params))

    importance: dict[str, float] = {}
    with contextlib.suppress(RuntimeError, ValueError):  # e.g. all losses equal
        if len(complete) >= 4:
            found = get_param_importances(study, evaluator=FanovaImportanceEvaluator(seed=seed))
            importance = {name: float(share) for name, share in found.items()}
    best = min(complete, key=lambda trial: (float(trial.value or 0.0), trial.number))
    default = next((trial for trial in complete if trial.number == 0 or 0 in retries_of(trial)), None)
    return TuningResult(
        setting={name: best.params[name] for name in names} | decided,
        log_loss=float(best.value or 0.0),
        accuracy=float(best.user_attrs["accuracy"]),
        default_log_loss=None if default is None else default.value,
        wanted=wanted,
        importance=importance,
        trials=[read(trial) for trial in sorted(ended, key=lambda t: (str(t.datetime_complete), t.number))],
    )
