"""The places of all points on the map, and when they are made anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

# The map is made from a fit, once, as soon as one has this many labels. With fewer, what a fit has learned separates
# classes less than the features do.
ENOUGH = 50


class Places:
    """Places of the points on the map: first made from the features, later, once or on request, from a fit.

    Attributes:
        now: float32 [N, 2]; ``None`` before the first map.
        number: Number of maps so far.
        wanted: Whether a map of the newest fit was requested.
    """

    def __init__(self) -> None:
        self.now: npt.NDArray[np.float32] | None = None
        self.number = 0
        self.wanted = False
        # Versions of the fits that the map was made from, that one on its way is made from, and that the process has
        # last made with guesses; 0 for none.
        self._made_from = 0
        self._coming = 0
        self._newest = 0

    @property
    def due(self) -> bool:
        """Whether to request a map from the process now."""
        return self.wanted and self._newest > 0

    @property
    def outdated(self) -> bool:
        """Whether there is a fit with guesses that no map was made from or requested."""
        return self._newest > max(self._made_from, self._coming) and not self.wanted

    def requested(self) -> None:
        """Note that the process makes a map of its newest fit."""
        self.wanted, self._coming = False, self._newest

    def fitted(self, version: int, labels: int) -> None:
        """Note a fit and its number of labels; version 0 if it has no guesses."""
        self._newest = version
        if version and labels >= ENOUGH and not self._made_from and not self._coming:
            self.wanted = True

    def take(self, learned: bool, place: npt.NDArray[Any] | None) -> None:
        """Take a map of the process, of a fit if ``learned``, or ``None`` if it failed."""
        if place is not None and (learned or self.now is None):  # that of the features comes again after a restart
            self.now = place
            self.number += 1
            self._made_from = self._coming if learned else 0
        if learned:
            self._coming = 0

    def restarted(self) -> None:
        """Note that a process without a fit was started."""
        self._coming = self._newest = 0
