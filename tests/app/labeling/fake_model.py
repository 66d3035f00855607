"""A trainer without a model: suggests rows in order and guesses the row's number modulo the classes."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from sobgnn.app.labeling.launch import open_page
from sobgnn.app.labeling.progress import Predictions


class Fake:
    """Lives in the model's process, as the real one does.

    The table's notes may ask for harm: "ends", "ends at 100" labels, or "slow".
    """

    def __init__(self, name, table, settings):
        self.rows = table.X.shape[0]
        self.harm = settings.get("harm", "")
        if self.harm == "slow":
            time.sleep(600)

    def fit(self, codes, skipped):
        labeled = np.flatnonzero(codes >= 0)
        if self.harm == "ends" or (self.harm == "ends at 100" and len(labeled) >= 100):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.harm == "fails":
            raise ValueError("it does not\nwant to.")
        taken = {*labeled.tolist(), *skipped}
        suggested = [row for row in range(self.rows) if row not in taken][:40]
        used = np.unique(codes[labeled])
        if len(used) < 2:
            return Predictions.none(self.rows, suggested)
        place = np.arange(self.rows) % len(used)
        return Predictions(
            suggested,
            np.stack([used[place], np.roll(used, 1)[place]], 1).astype(np.int32),
            np.tile(np.array([0.75, 0.25], dtype=np.float32), (self.rows, 1)),
            suspects=labeled[:2].tolist(),
            held_out={int(row): int(used[row % len(used)]) for row in labeled} if self.harm == "judges" else {},
            accuracy=0.75,
        )

    def layout(self, learned, before):
        angle = 2 * np.pi * np.arange(self.rows) / self.rows
        place = np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)
        return 2 * place[::-1] if learned else place

    def finish(self, codes, classes, folder):
        raise ValueError("there is no model here.")


def serve(pipe, data, folder, harm):
    """A page in a process of its own, to be killed."""
    page = open_page(str(data), "team", folder=folder, trainer=Fake, settings={"harm": harm})
    pipe.send(page.url)
    page.serve()
