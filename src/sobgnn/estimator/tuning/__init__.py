"""Search for settings on held-out labels, in one process or many."""

from sobgnn.estimator.tuning.search import SPACE, Between, OneOf, Space, Trial, TuningProgress, TuningResult, tune
from sobgnn.estimator.tuning.study import Pulse

__all__ = ["SPACE", "Between", "OneOf", "Pulse", "Space", "Trial", "TuningProgress", "TuningResult", "tune"]
