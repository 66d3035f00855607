"""Families left out of a fitted estimator, one at a time: the blend is made again from what the others predict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sobgnn import SobolevClassifier
from sobgnn.estimator.blend import Blend, fit_temperature
from sobgnn.estimator.families import make_family
from sobgnn.estimator.fit import blend_rule
from sobgnn.estimator.frequencies import chosen_by_class
from sobgnn.estimator.labels import Labels, class_weights


def labels_of(fitted: SobolevClassifier) -> Labels:
    """The labels as the estimator has weighed and folded them."""
    codes, classes = fitted.labelled_codes_, len(fitted.classes_)
    chosen = chosen_by_class(codes, classes)
    weight = class_weights("balanced" if chosen else None, fitted.classes_, codes)[codes]
    return Labels(fitted.labelled_, codes, weight / weight.mean(), fitted.folds_, classes, chosen)


class LeftOut:
    """Labels of all points by a fitted estimator's families without some of them.

    Class frequencies and the temperature stay those of the whole blend; a family without a share is not there to be
    left out. A family that learns on several graphs is left out on all of them.
    """

    def __init__(self, fitted: SobolevClassifier) -> None:
        self.fitted, self.labels, self.predictor = fitted, labels_of(fitted), fitted.predictor_
        points = self.predictor.points
        self.learned = [family.fit(points, self.labels) for member in self.predictor.members
                        for family in [make_family(member.name, member.view)]]  # fmt: skip
        self.names = list(dict.fromkeys(member.name for member in self.predictor.members))

    def predicted(self, names: Sequence[str]) -> np.ndarray:
        """Labels [N] by the families of these names."""
        places = [place for place, member in enumerate(self.predictor.members) if member.name in names]
        members = [self.predictor.members[place] for place in places]
        learned, labels = [self.learned[place] for place in places], self.labels
        decide = blend_rule(self.predictor.points, labels, members, learned)
        blend, _ = decide([part.out_of_fold for part in learned], labels)
        if len(members) == 1 and labels.folds:
            # As sure as it is in a blend: the class frequencies below were found for that.
            judged, own = labels.judged, learned[0].out_of_fold
            blend = Blend((1.0,), (fit_temperature(own, labels.codes[judged], labels.weight[judged]),))
        finished = self.predictor.finished(blend([part.whole for part in learned]))
        found: np.ndarray = self.fitted.classes_[finished.argmax(axis=1)]
        return found

    def scores(self, score: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        """What a score of labels [N] says of all families, and without each: ``{"all": s, "without": {name: s}}``."""
        others = {name: [other for other in self.names if other != name] for name in self.names}
        return {
            "all": score(self.predicted(self.names)),
            "without": {name: score(self.predicted(rest)) for name, rest in others.items() if rest},
        }


def table(columns: dict[str, list[tuple[str, float, dict[str, float]]]]) -> str:
    """Mean scores in %, without each family in turn; empty where a family never takes part.

    Args:
        columns: By heading, one entry for each fit: its data set, the score of all families, and the score without
            each. Fits count by data set, each set the same.
    """
    names = list(dict.fromkeys(name for fits in columns.values() for _, _, without in fits for name in without))
    text = ["| left out | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name in ["nothing", *names]:
        cells = []
        for fits in columns.values():
            by_set = defaultdict(list)
            for data_set, whole, without in fits:
                by_set[data_set].append(without.get(name, whole))
            there = name == "nothing" or any(name in without for _, _, without in fits)
            cells.append(f"{100 * np.mean([np.mean(values) for values in by_set.values()]):.2f}" if there else "")
        text.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(text)
