"""The facts of a run, measured once: metrics.json, the terminal and the report are made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.metrics import confusion_matrix

from sobgnn.app.runs.run import USUAL, Fitted, find_threshold
from sobgnn.estimator.fitted import shown_out_of_fold
from sobgnn.estimator.labels import stratified_folds
from sobgnn.estimator.trust import Acceptance, Outcome, compare_with_chance, hard_labels, wilson_interval
from sobgnn.graphs.summary import GraphReport
from sobgnn.tables import Table
from sobgnn.tables.labels import unsaid_classes, unsaid_note

# Classes are imbalanced if the largest is at least this many times as frequent as the mean.
_UNEVEN = 1.5
# Number of suggested rows named on the terminal; the report lists more.
_NAMED = 5
# Number of columns from which tables are skipped, and number of labels below which differences are chance.
MOST_COLUMNS, LEAST_LABELS = 100, 20
_FOLDS, _SHUFFLES, _TREES = 2, 5, 100
_MOST_LABELS = 1000
# Number of shuffled rows that are predicted in all, and number of their entries that are held in memory at once.
_MOST_PREDICTED, _MOST_ENTRIES = 20_000, 4_000_000


@dataclass(frozen=True)
class HeldOut:
    """How good out-of-fold predictions of the given labels are. Without such labels all but ``verdict`` is empty."""

    labels: int  # held out
    verdict: Outcome  # whether predictions are better than guessing
    copies: int = 0  # further labels, of copies or near copies, which were held out with these and not counted
    accuracy: float = float("nan")  # probable accuracy on rows without a label
    interval: tuple[float, float] = (0.0, 1.0)  # of 95 %
    unknown: int = 0  # labels of classes that are never held out, whose accuracy is unknown
    majority_share: float = float("nan")  # of the largest class
    largest_class: Any = None
    balanced_accuracy: float = float("nan")  # mean recall of the classes
    uneven: bool = False  # whether balanced accuracy is more informative than accuracy
    p_value: float = 1.0  # chance of such predictions if labels were unrelated to them
    confusion: Sequence[Sequence[int]] = ()  # counts [given, predicted], by the table's classes
    never_predicted: Sequence[Any] = ()  # classes that have labels and are never predicted
    not_held_out: Sequence[Any] = ()  # classes of which no label was held out
    hard: int = 0  # labels that another class is 5 times as probable as, and that are not suspect


@dataclass(frozen=True)
class Hidden:
    """How good predictions are of labels that ``--labels`` hid from training."""

    accuracy: float
    accuracy_interval: tuple[float, float]  # of 95 %
    majority_share: float  # of the largest class
    confusion: Sequence[Sequence[int]]  # counts [true, predicted], by the table's classes


@dataclass(frozen=True)
class Accepted(Acceptance):
    """The threshold of ``--accept``, the labels it is based on, and how many rows without a given label it accepts."""

    rows: int  # without a given label
    rows_accepted: int  # of these
    rows_doubtful: int  # that reach the threshold, but have a blank cell where no labeled row has one
    hidden_accepted: int | None = None  # hidden labels of accepted rows, if there are any
    hidden_error: float | None = None  # share of these that is predicted wrong


@dataclass(frozen=True)
class Result:
    """What is known of a run."""

    data: str  # name of the data
    rows: int
    features: int
    classes: Sequence[Any]  # of the table
    labels_given: int  # that training saw
    labels_hidden: int  # known labels that it did not see
    complete: bool  # False if training was stopped by the user
    held_out: HeldOut  # on given labels, out of fold
    hidden: Hidden | None  # on hidden labels, if there are any
    notes: Sequence[str]  # sentences about how the data was read
    unsaid: Sequence[str]  # sentences about large classes whose name may mean unlabeled
    suspects: int  # given labels that look wrong
    suggested: Sequence[str]  # names of a few rows whose labels would help most, best first
    rows_numbered: bool  # whether these are numbers, counted from 0, and not ids
    accept: Accepted | None  # what --accept accepts, if it was requested
    acceptable: int | None  # rows that --accept 0.95 would accept, if nothing was requested
    graph: GraphReport
    families: Mapping[str, float]  # share of each in the blend
    filter_importance: Mapping[str, float]  # rise of the Sobolev networks' log loss without each part of their input
    columns: Mapping[str, float] | None  # importance of each, largest first; None if it was not measured
    settings: Mapping[str, Any]  # parameters of the estimator
    seconds: Mapping[str, float]  # of each stage
    versions: Mapping[str, str]  # of the packages
    search: Mapping[str, Any] | None  # what TuningResult.to_json returns, if the setting was searched
    advice: str | None = None  # what to type for texts to be compared by meaning, if they were not

    @property
    def guessing(self) -> bool:
        """Whether out-of-fold labels fail to show that predictions are better than guessing."""
        return self.held_out.verdict == "guessing"

    def to_json(self) -> dict[str, Any]:
        """Plain values for metrics.json, of 6 digits and without what is not known; those of hidden labels on top."""
        facts = asdict(self)
        facts |= facts.pop("hidden") or {}
        if not self.held_out.labels:
            facts["held_out"] = {"labels": 0, "verdict": self.held_out.verdict}
        return {name: _rounded(value) for name, value in facts.items() if value is not None}


def _rounded(value: Any) -> Any:
    """The same value, with its floats rounded to 6 significant digits."""
    if isinstance(value, Mapping):
        return {name: _rounded(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(held) for held in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def measure(fitted: Fitted, acceptance: Acceptance | None = None) -> Result:
    """The facts of a run, but for the importance of columns.

    Args:
        fitted: The run.
        acceptance: Which predictions are accepted, if requested.
    """
    import sobgnn

    table, classifier = fitted.table, fitted.classifier
    suggested = fitted.suggested(_NAMED).tolist()
    rows, features = table.X.shape
    graph = classifier.graph_.describe(table.codes)
    usual = acceptance is None and fitted.accept is None
    empty = int(fitted.empty.sum())
    marked = [f"Rows that hold nothing to predict from, marked far in the predictions: {empty:,}."] if empty else []
    return Result(
        data=fitted.name,
        rows=int(rows),
        features=int(features),
        classes=list(table.classes),
        labels_given=int((fitted.given != -1).sum()),
        labels_hidden=int(fitted.hidden.sum()),
        complete=fitted.complete,
        held_out=_held_out(fitted),
        hidden=_hidden(fitted),
        notes=[*table.notes, *marked],
        unsaid=_large_unsaid(table),
        advice=table.encoding.advice or None,
        suspects=len(fitted.suspects),
        suggested=[table.row_name(row) for row in suggested],
        rows_numbered=table.ids is None or not all(table.ids[row] for row in suggested),
        accept=None if acceptance is None else _accepted(fitted, acceptance),
        acceptable=_accepted(fitted, find_threshold(fitted, USUAL)).rows_accepted if usual else None,
        graph=replace(graph, agreement=tuple(share for share in graph.agreement or () if np.isfinite(share))),
        families=dict(classifier.family_shares_),
        filter_importance=dict(classifier.filter_importance_),
        columns=None,
        settings={
            name: value if isinstance(value, str | int | float | bool | tuple | None) else repr(value)
            for name, value in sorted(classifier.get_params().items())
            if not callable(value)
        },
        seconds=dict(fitted.seconds),
        versions={"sobgnn": sobgnn.__version__, "numpy": np.__version__},
        search=fitted.search,
    )


def _held_out(fitted: Fitted) -> HeldOut:
    classifier, own, classes = fitted.classifier, fitted.own_codes, fitted.table.classes
    shown = shown_out_of_fold(classifier)
    judged = np.isfinite(shown).all(axis=1)
    probability = shown[judged]
    verdict = compare_with_chance(classifier.labelled_codes_[judged], probability)
    if not len(probability):
        return HeldOut(0, verdict.outcome)
    given = own[classifier.labelled_codes_]
    counts = confusion_matrix(given[judged], own[probability.argmax(axis=1)], labels=range(len(classes)))
    have, held = counts.sum(axis=1), classifier.folds_ >= 0
    low, high = classifier.out_of_fold_interval_
    hard = hard_labels(classifier.labelled_codes_[judged], shown_out_of_fold(classifier, weighted=False)[judged])
    return HeldOut(
        labels=len(probability),
        verdict=verdict.outcome,
        copies=int((~held & (have[given] > 0)).sum()) if held.any() else 0,
        accuracy=float(classifier.out_of_fold_accuracy_),
        interval=(float(low), float(high)),
        unknown=int((have[given] == 0).sum()),
        majority_share=verdict.majority,
        largest_class=classes[int(have.argmax())],
        balanced_accuracy=verdict.balanced,
        uneven=bool(verdict.majority * np.count_nonzero(have) >= _UNEVEN),
        p_value=verdict.p_value,
        confusion=counts.tolist(),
        never_predicted=[classes[code] for code in np.flatnonzero((have > 0) & (counts.sum(axis=0) == 0)).tolist()],
        not_held_out=[classes[code] for code in np.unique(given).tolist() if not have[code]],
        hard=len(set(classifier.labelled_[judged][hard].tolist()) - {each.row for each in fitted.suspects}),
    )


def _hidden(fitted: Fitted) -> Hidden | None:
    hidden = fitted.hidden
    if not hidden.any():
        return None
    true, predicted = fitted.table.codes[hidden], fitted.predicted[hidden]
    right = int((true == predicted).sum())
    return Hidden(
        accuracy=right / len(true),
        accuracy_interval=wilson_interval(right, len(true)),
        majority_share=float(np.bincount(true).max() / len(true)),
        confusion=confusion_matrix(true, predicted, labels=range(len(fitted.table.classes))).tolist(),
    )


def _accepted(fitted: Fitted, acceptance: Acceptance) -> Accepted:
    free = fitted.given == -1
    sure = acceptance.accepts(fitted.confidence) & free
    taken = sure & ~fitted.doubtful
    measured = taken & fitted.hidden
    wrong = fitted.predicted[measured] != fitted.table.codes[measured]
    return Accepted(
        **asdict(acceptance),
        rows=int(free.sum()),
        rows_accepted=int(taken.sum()),
        rows_doubtful=int((sure & ~taken).sum()),
        hidden_accepted=len(wrong) or None,
        hidden_error=float(wrong.mean()) if len(wrong) else None,
    )


def _large_unsaid(table: Table) -> list[str]:
    """Sentences about classes of at least half of all rows whose name may mean unlabeled."""
    counts = np.bincount(table.codes[table.codes >= 0], minlength=len(table.classes)).tolist()
    large = {name: count for name, count in zip(table.classes, counts, strict=True) if 2 * count >= len(table.codes)}
    return [unsaid_note(name, large[name]) for name in unsaid_classes(table.classes) if name in large]


def column_importance(fitted: Fitted, seed: int = 0) -> dict[str, float]:
    """Drop in the mean probability of the correct class without each column, largest first.

    Permutation importance on held-out labels, for forests (extremely randomized trees): one is fitted on each half of
    the labels and predicts the other half, unchanged and with one column shuffled. A forest takes a moment, where the
    families of the fit would take as long as they did before; and labels that a model was fitted on would make every
    column look important. Columns with values near 0, or below, do not help. Empty for arrays, for tables of at least
    100 columns, and if labels are too few.
    """
    from sklearn.ensemble import ExtraTreesClassifier

    encoding, codes = fitted.table.encoding, fitted.given
    slices = encoding.slices if encoding.named else {}  # which features came from each column
    if not 1 < len(slices) < MOST_COLUMNS or (codes != -1).sum() < LEAST_LABELS:
        return {}
    generator = np.random.default_rng(seed)
    labeled = generator.permutation(np.flatnonzero(codes != -1))[:_MOST_LABELS]
    X, codes = fitted.table.X[labeled], codes[labeled]
    X = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float32)
    fold = stratified_folds(codes, _FOLDS, generator)
    lost, judged = np.zeros(len(slices)), 0
    for held in range(_FOLDS):
        train, test = fold != held, (fold == held) & np.isin(codes, codes[fold != held])
        if len(np.unique(codes[train])) < 2 or not test.any():
            continue
        forest = ExtraTreesClassifier(_TREES, min_samples_leaf=2, random_state=seed).fit(X[train], codes[train])
        lost += _drops(forest, X[test], codes[test], list(slices.values()), generator) * test.sum()
        judged += int(test.sum())
    if not judged:
        return {}
    return dict(sorted(zip(slices, (lost / judged).tolist(), strict=True), key=lambda item: -item[1]))


def _drops(
    forest: Any,
    X: npt.NDArray[np.float32],
    codes: npt.NDArray[np.int64],
    columns: list[slice],
    generator: np.random.Generator,
) -> npt.NDArray[np.float64]:
    """The mean drop in the correct class's probability without each column."""
    right = np.searchsorted(forest.classes_, codes)
    shuffles = int(np.clip(_MOST_PREDICTED // (len(X) * len(columns)), 1, _SHUFFLES))
    at_once = max(1, _MOST_ENTRIES // X.size)

    def score(parts: list[npt.NDArray[np.float32]]) -> list[float]:
        probability = forest.predict_proba(np.concatenate(parts)).reshape(len(parts), len(X), -1)
        return list(probability[:, np.arange(len(X)), right].mean(axis=1))

    orders = [(column, generator.permutation(len(X))) for column in columns for _ in range(shuffles)]
    scores: list[float] = []
    for start in range(0, len(orders), at_once):
        parts = [X.copy() for _ in orders[start : start + at_once]]
        for part, (column, order) in zip(parts, orders[start:], strict=False):
            part[:, column] = X[order, column]
        scores += score(parts)
    return np.asarray(score([X])[0] - np.array(scores).reshape(len(columns), shuffles).mean(axis=1))
