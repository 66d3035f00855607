"""Training of many members of a model at once: one loop, its state, its checkpoint."""

from sobgnn.training.loop import Checkpoint, Members, Progress, initial_parameters, predict_members, train_members
from sobgnn.training.tasks import Schedule, Task

__all__ = [
    "Checkpoint",
    "Members",
    "Progress",
    "Schedule",
    "Task",
    "initial_parameters",
    "predict_members",
    "train_members",
]
