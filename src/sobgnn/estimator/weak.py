"""Weak labels: what a blend is surest of, for students to learn from beside the labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sobgnn.estimator.ensemble import Labels
from sobgnn.training import Task

# Unlabelled points that weak labels are drawn from; about half of them get one.
POOL = 1000


@dataclass(frozen=True)
class WeakLabels:
    """What S students learn from and stop on; labels come first, and stand for half of what is learnt.

    Args:
        labels: The labels, and which of them each student holds out.
        pool: int64 [P], points without a label.
        guessed: int64 [S, P], each student's weak labels; -1 for none.
    """

    labels: Labels
    pool: npt.NDArray[np.int64]
    guessed: npt.NDArray[np.int64]

    @property
    def index(self) -> npt.NDArray[np.int64]:
        """The labelled points and the pool, [L + P]."""
        return np.concatenate([self.labels.index, self.pool])

    @property
    def seeds(self) -> Sequence[int]:
        """One per student."""
        return self.labels.seeds

    def task(self, members: slice, device: torch.device) -> Task:
        """The training task of some students, whose logits have one row per entry of ``index``."""
        strong = self.labels.task(members, device)
        guessed = torch.from_numpy(self.guessed[members]).to(device)
        known = (guessed >= 0).float()
        share = known.sum(dim=1, keepdim=True)
        target = torch.cat([strong.target.expand(len(guessed), -1), guessed.clamp(min=0)], dim=1)
        weight = torch.cat([strong.train_weight, known / share.clamp(min=1)], dim=1)
        validation = strong.validation
        if validation is not None:
            validation = torch.cat([validation, torch.zeros_like(known)], dim=1)
        return Task(target, weight / weight.sum(dim=1, keepdim=True), validation)


def guess(teachers: Tensor, labels: Labels, generator: np.random.Generator) -> WeakLabels | None:
    """The surer half of each class as its teacher sees it, over a sample of the points; ``None`` without any.

    A student that holds out a fold learns from the teacher that does so too; the others from the last one.

    Args:
        teachers: Probabilities [folds + 1, N, C].
        labels: Of the points.
        generator: Draws the sample.
    """
    free = np.ones(teachers.shape[1], dtype=bool)
    free[labels.index] = False
    pool = np.sort(generator.permutation(np.flatnonzero(free))[:POOL])
    if not len(pool):
        return None
    seen = teachers[:, torch.from_numpy(pool).to(teachers.device)]
    first = seen.argmax(dim=2)
    # What the other classes have, and not how far the first is from 1: that has few digits, which rounding would order.
    doubt = seen.scatter(2, first.unsqueeze(2), 0.0).sum(dim=2).cpu().numpy()
    code = first.cpu().numpy()
    guessed = np.full(code.shape, -1)
    for teacher in range(len(code)):
        for own in np.unique(code[teacher]):
            rows = np.flatnonzero(code[teacher] == own)
            surest = rows[np.argsort(doubt[teacher, rows], kind="stable")][: (len(rows) + 1) // 2]
            guessed[teacher, surest] = own
    used = (guessed >= 0).any(axis=0)
    teacher_of = np.where(labels.member_fold() < 0, len(code) - 1, labels.member_fold())
    return WeakLabels(labels, pool[used], guessed[teacher_of][:, used])
