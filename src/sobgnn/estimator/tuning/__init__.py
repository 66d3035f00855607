"""Search for settings on held-out labels, in one process or many."""

from sobgnn.estimator.tuning.result import Trial, TuningResult
from sobgnn.estimator.tuning.search import TuningProgress, tune
from sobgnn.estimator.tuning.space import SPACE, Between, OneOf, Space
from sobgnn.estimator.tuning.storage import Pulse

__all__ = ["SPACE", "Between", "OneOf", "Pulse", "Space", "Trial", "TuningProgress", "TuningResult", "tune"]
