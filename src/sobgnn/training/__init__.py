"""Training of many members of a model at once: one loop and its state."""

from sobgnn.training.loop import Members, Progress, initial_parameters, predict_members, train_members
from sobgnn.training.state import Schedule, Task

__all__ = [
    "Members",
    "Progress",
    "Schedule",
    "Task",
    "initial_parameters",
    "predict_members",
    "train_members",
]
