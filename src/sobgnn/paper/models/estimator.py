"""The library's own estimator, with its default arguments: nothing is searched."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sobgnn.paper.models.contract import Predictor, features_of
from sobgnn.paper.models.source import Source
from sobgnn.paper.models.space import Setting


def _estimate(source: Source, y: npt.NDArray[Any], setting: Setting, seed: int) -> npt.NDArray[Any]:
    """Predictions from the features and some labels; it builds its own graph."""
    from sobgnn.estimator.classifier import SobolevClassifier

    fitted = SobolevClassifier(random_state=seed, device=source.X.device).fit(features_of(source), y)
    return np.asarray(fitted.transduction_)


ESTIMATOR = Predictor(_estimate, width=5000)
