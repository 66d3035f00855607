"""The interval of a share that was counted. It imports nothing heavy, for the labeling page."""

from __future__ import annotations

import math


def wilson_interval(right: float, total: float) -> tuple[float, float]:
    """The 95 % score interval of a share, which stays within [0, 1]."""
    z = 1.959964
    share = right / total
    center = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return center - half, center + half
