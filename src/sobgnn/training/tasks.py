"""Tasks and schedules: targets and weights of each member, number of steps, learning rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Monitor = Literal["accuracy", "loss"]


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train.

    Args:
        epochs: Maximum number of full-batch steps.
        lr: Adam's learning rate; a sequence gives each member its own.
        weight_decay: L2 penalty, as in torch's Adam; a sequence gives each member its own.
        patience: Steps without a better validation score after which a member is done: its best weights are final, and
            training ends when all members are done. ``None``: all epochs.
        evaluate_every: Steps between two validations.
        monitor: What "better" means: higher validation accuracy (ties by lower loss), or lower loss.
        shared_early_stopping: Whether all members keep the weights of one step, the best over all their validation
            rows. A member without validation rows can then train on every label and still stop in time.
    """

    epochs: int = 500
    lr: float | Sequence[float] = 0.01
    weight_decay: float | Sequence[float] = 5e-4
    patience: int | None = 100
    evaluate_every: int = 1
    monitor: Monitor = "accuracy"
    shared_early_stopping: bool = False


@dataclass(frozen=True)
class Task:
    """What S members learn on R rows of logits; all tensors on one device.

    Args:
        target: int64 [R] or [S, R], classes; any valid class for unused rows.
        train_weight: float32 [S, R]. Row r's share in member s's loss, or 0. Rows sum to 1.
        validation: bool [S, R], or ``None``. Rows that choose a member's best weights; numbers are used as weights.
    """

    target: Tensor
    train_weight: Tensor
    validation: Tensor | None = None
