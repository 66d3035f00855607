"""SobolevClassifier: the scikit-learn interface, which validates, delegates and keeps what was learned."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from sobgnn._system.process import check_device, limit_threads, own_precision
from sobgnn.estimator import artifact
from sobgnn.estimator.describing import described
from sobgnn.estimator.families import FAMILIES
from sobgnn.estimator.fit import Hook, Kept, Report, chosen_families, fingerprint, fit_families, refit_families
from sobgnn.estimator.fitted import outcome_of, set_attributes, shown_out_of_fold
from sobgnn.estimator.frequencies import check_class_priors, chosen_by_class
from sobgnn.estimator.labels import (
    class_weights,
    copies_together,
    encode_labels,
    known_accuracy,
    with_folds,
    without_labels,
)
from sobgnn.estimator.placed import make_points
from sobgnn.estimator.points import GIVEN
from sobgnn.estimator.scaling import ScaleOption
from sobgnn.estimator.state import Arrays
from sobgnn.estimator.suggestion import Strategy, suggest_first, suggest_points
from sobgnn.estimator.trust import Suspect, suspect_labels
from sobgnn.estimator.validation import (
    Filling,
    check_range,
    check_settings,
    check_whole,
    checked,
    checked_names,
    is_frame,
)
from sobgnn.graphs.convert import as_edges, as_graph
from sobgnn.graphs.graph import Symmetrize
from sobgnn.graphs.knn import Bandwidth

Auto = Literal["auto"]
# Number of entries of X up to which one thread is as fast as many; it leaves cores to other work, and makes results
# bitwise reproducible.
_ONE_THREAD_ENTRIES = 10_000_000
# The default of k; only another k that exceeds the number of points is warned about.
_USUAL_NEIGHBORS = 10


class SobolevClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""Predicts labels for many points from a few, by families that learn on the points and on a graph of them.

    .. math:: P = \sum_f w_f \, P_f^{1/T_f}

    Each family f predicts every point: decoupled Sobolev networks and diffused labels on the graph, a self-trained
    linear classifier, kernel regressions and forests on the features, and Poisson learning if labels are few and points
    form clusters. Four folds of the labels are held out in turn; out-of-fold labels decide the shares w, and how
    confident each family and the result are. See :mod:`sobgnn.estimator.families` for the contract, and
    :func:`~sobgnn.estimator.blend.fit_blend` for the rule. A class with fewer than 3 labels is never held out.

    Args:
        k: Number of neighbors per point; at most one less than the number of points is used.
        alpha: Number of orders, that is, Hadamard powers of the graph.
        epsilon: Weight of self-loops.
        families: ``"auto"``, or a list of it, of names among ``"sobolev"``, ``"diffusion"``, ``"poisson"``,
            ``"linear"``, ``"logistic"``, ``"gaussian"``, ``"kernel"``, ``"forests"``, ``"pagerank"``, ``"links"`` and
            ``"s-sobgnn"`` (the paper's network), and of pairs of another name and any classifier that follows
            scikit-learn's contract, such as ``["auto", ("boosting", HistGradientBoostingClassifier())]``: it learns by
            the same folds, from X as it is passed (or as a frame is encoded), and gets its share.
        hidden_channels: Size of hidden rows.
        num_layers: Layers of the paper's network.
        dropout: Share of hidden entries dropped in training.
        n_members: Number of networks of a family that are averaged. At least five are trained: four that hold out a
            fold each, and one that learns from all labels and is always averaged.
        class_weight: Factors of the class probabilities: ``None``, ``"balanced"`` (inverse to the number of labels of a
            class) or numbers by class.
        class_priors: How common classes are among all points: ``None`` uses each class's share of the labels, a dict
            gives shares or counts by class, which are divided by their sum, and ``"auto"`` estimates them if labels
            were chosen class by class; for labels drawn at random, it uses equal frequencies to the degree that labels
            support them, else shares of the labels
            (:func:`~sobgnn.estimator.frequencies.class_frequencies`).
        scale: How dense X is scaled: ``"range"``, ``"standard"``, ``"range-unit"``, ``"unit"``, ``"rank"`` or ``None``,
            see :class:`~sobgnn.estimator.features.FeatureMap`; a pair sets the neighbor search and the networks
            separately. ``"auto"`` decides on one for both.
        n_components: Maximum number of columns for networks and the neighbor search: principal components of dense X,
            singular vectors of sparse X. ``None``: all, and sparse X is made dense.
        metric: Distance of the neighbor search, ``"euclidean"`` or ``"cosine"``.
        bandwidth: Bandwidth of the Gaussian kernel, see :func:`~sobgnn.knn_graph`.
        symmetrize: ``"union"`` or ``"mutual"``, see :func:`~sobgnn.knn_graph`.
        method: Neighbor search: ``"exact"``, ``"cells"`` or ``"auto"``.
        epochs: Maximum number of training steps.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
        warm_start: Keep what does not depend on the labels for the next fit of the same X and, if only a few labels
            have changed, what was decided: networks continue training and some trees are regrown. Once more than a
            fifth of the labels have changed, everything is decided and learned again.
        device: Device to compute on: ``"auto"`` (a GPU, if there is one and X is large enough) or a torch device.
        verbose: 1 prints what was decided.
        random_state: Seed of everything random: the same seed gives the same predictions.

    Attributes:
        classes_: [C], sorted.
        transduction_: [N], the label of every training point: as given, or predicted.
        label_distributions_: [N, C], probabilities; 1 for given labels.
        labelled_: Rows of X that have a label, [L].
        out_of_fold_probabilities_: [L, C], out-of-fold probabilities of the labeled rows as learned, without the
            factors of class frequencies and class weights that predictions have; NaN for rows never held out, and for
            all but one of copies that are held out together.
        out_of_fold_accuracy_: The probable accuracy on unlabeled points, from these, see
            :func:`~sobgnn.estimator.trust.estimate_accuracy`; NaN if nothing was held out. A warm refit holds
            nothing out and keeps the earlier value.
        out_of_fold_interval_: Its 95 % interval, [2].
        out_of_fold_log_loss_: Log loss, likewise.
        class_prior_: [C], the assumed frequency of each class among all points.
        family_shares_: Each family's share in the result, by name.
        family_accuracy_: Each family's own out-of-fold accuracy, by name, with equal weights of labels.
        filter_importance_: Increase of the Sobolev networks' out-of-fold log loss without each order.
        encoder_: The :class:`~sobgnn.TableEncoder` of a DataFrame; ``None`` for arrays.
        graph_: The :class:`~sobgnn.Graph`.
        component_labelled_: bool [N], whether a point's component of the graph holds a label.
        scale_: How columns are scaled for networks.
        neighbor_scale_: How columns are scaled for the neighbor search.
        temperature_: What the logits of the result are divided by.
        history_: Training curves by family.
        embedding_: [N, at most 32], principal components of hidden rows.
        n_iter_: Training steps made.

    Examples:
        >>> import numpy as np
        >>> from sklearn.datasets import load_iris
        >>> from sobgnn import SobolevClassifier
        >>> X, truth = load_iris(return_X_y=True)
        >>> y = np.where(np.arange(150) % 10 == 0, truth, -1)  # every tenth label
        >>> model = SobolevClassifier(families=["sobolev", "diffusion"], random_state=0).fit(X, y)
        >>> bool((model.transduction_ == truth).mean() > 0.8)
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)
    """

    def __init__(
        self,
        k: int = _USUAL_NEIGHBORS,
        alpha: int = 2,
        epsilon: float = 0.3,
        *,
        families: Sequence[str | tuple[str, Any]] | Auto = "auto",
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        n_members: int = 5,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        class_priors: Auto | Mapping[Any, float] | None = "auto",
        scale: ScaleOption = "auto",
        n_components: int | None = 256,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        bandwidth: Bandwidth = "mean",
        symmetrize: Symmetrize = "union",
        method: Literal["auto", "exact", "cells"] = "auto",
        epochs: int = 200,
        lr: float = 0.03,
        weight_decay: float = 5e-3,
        warm_start: bool = False,
        device: str | torch.device | None = "auto",
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.k = k
        self.alpha = alpha
        self.epsilon = epsilon
        self.families = families
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.n_members = n_members
        self.class_weight = class_weight
        self.class_priors = class_priors
        self.scale = scale
        self.n_components = n_components
        self.metric = metric
        self.bandwidth = bandwidth
        self.symmetrize = symmetrize
        self.method = method
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.warm_start = warm_start
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def paper(cls, **parameters: Any) -> SobolevClassifier:
        """Make the paper's form: one S-SobGNN, linear combination, no self branch, k = 30."""
        form: dict[str, Any] = {
            "k": 30, "alpha": 3, "epsilon": 1.0, "families": ["s-sobgnn"], "n_members": 1,
            "class_priors": None, "epochs": 300, "lr": 0.01, "weight_decay": 5e-4,
        }  # fmt: skip
        return cls(**{**form, **parameters})

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, graph: Any = None, progress: Hook | None = None
    ) -> SobolevClassifier:
        """Learn from the labeled points, and label the others.

        Args:
            X: Points [N, F]: a pandas or polars DataFrame with columns of any kind, an array, or a scipy sparse matrix.
                A frame is encoded by a :class:`~sobgnn.TableEncoder`. In an array, NaN is a blank cell: it is filled
                with the column's median, and marked by a further column.
            y: Labels [N]; -1, None or NaN: unlabeled.
            sample_weight: Weight of each row's label, [N]; a label of weight 0 counts as none.
            graph: A graph of the points, used in addition to their neighbors: a :class:`~sobgnn.Graph`, a scipy sparse
                adjacency [N, N], PyG's ``edge_index`` [2, E], or the pair ``(edge_index, edge_weight)``.
            progress: Called with :class:`~sobgnn.estimator.fit.FitProgress`; returning True stops training, and the fit
                finishes with what has been learned so far.
        """
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        check_settings(self.get_params(deep=False), list(FAMILIES))
        check_device(self.device)
        as_it_was = dict(self.__dict__)
        try:
            with own_precision():
                self._fit(self._learned_features(X), y, sample_weight, graph, Report(progress))
        except BaseException:  # an interruption also restores the earlier model
            self.__dict__.clear()
            self.__dict__.update(as_it_was)
            raise
        return self

    def _fit(self, X: Any, y: Any, sample_weight: Any, graph: Any, report: Report) -> None:
        self.classes_, codes = encode_labels(y, X.shape[0])
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            self.classes_, codes = without_labels(self.classes_, codes, sample_weight == 0)
        given = codes[codes >= 0]
        class_weights(self.class_weight, self.classes_, given)
        check_class_priors(self.class_priors, self.classes_)
        if len(self.classes_) < 2:
            # -1 is a common name for a class; here it means unlabeled.
            hint = "Label points of another." if len(given) == len(codes) else (
                "-1, None and NaN mean unlabeled; if -1 is a class, give it another name, such as y = (y == 1) * 1."
            )  # fmt: skip
            raise ValueError(f"y must hold at least 2 classes, but got 1 class, {str(self.classes_[0])!r}. {hint}")
        # Before anything slow: errors in a graph should be reported at once.
        graph = None if graph is None else as_graph(graph, X.shape[0])
        if self.k >= X.shape[0] and self.k != _USUAL_NEIGHBORS:
            warnings.warn(
                f"`k` is {self.k}, but there are {X.shape[0]} points: each is connected to all others.", stacklevel=3
            )
        settings, seed, threads = self.get_params(deep=False), self.random_state, torch.get_num_threads()
        seed = int(seed.randint(2**31 - 1)) if isinstance(seed, np.random.RandomState) else seed
        # The seed sequence draws a seed if none is given.
        generator = np.random.default_rng(np.random.SeedSequence(seed).entropy)
        mark, warm, before = "", None, None
        if self.warm_start:
            own = {name: settings[name] for name in settings.keys() - {"verbose"}}
            mark, kept = fingerprint(X, graph, own, sample_weight), getattr(self, "_kept", None)
            warm = kept if kept is not None and kept.fingerprint == mark else None
            before = warm if warm is not None and warm.holds(codes, self.classes_) else None
        with limit_threads(1 if X.shape[0] * X.shape[1] <= _ONE_THREAD_ENTRIES else threads):
            if before is None:
                known = None if warm is None else warm.placed
                placed = make_points(settings, X, codes, graph, generator, report, threads, known)
            else:
                placed = replace(before.placed, points=replace(before.placed.points, report=report))
            chosen = chosen_by_class(given, len(self.classes_)) if before is None else before.labels.chosen
            # If labels were chosen class by class, their numbers are not informative: all classes have equal weight in
            # training.
            weight = class_weights("balanced" if chosen else None, self.classes_, given)[given]
            weight = weight if sample_weight is None else weight * sample_weight[codes >= 0]
            # Equal rows are not copies in a given graph: their edges differ.
            together = copies_together(X, codes) if graph is None else None
            folds = np.random.default_rng([placed.points.seed, 1])
            labels = with_folds(codes, weight, len(self.classes_), folds, chosen, together)
            families = chosen_families(self.families, placed.points, labels)
            if before is None:
                fit = fit_families(placed.points, labels, families)
            else:
                fit = refit_families(placed.points, labels, families, before.fit)
            predictor, outcome, frequencies = outcome_of(self, fit, placed, labels, before)
        set_attributes(self, predictor, outcome)
        self._kept = None
        if self.warm_start and not report.stopped:
            decided = labels if before is None else before.labels
            self._kept = Kept(mark, placed, fit, decided, self.classes_, frequencies, labels)
        if self.verbose:
            print(self.describe())

    def _learned_features(self, X: Any) -> Any:
        """Validate X, learn how its cells become numbers, and convert it: [N, F'], dense or CSR."""
        self.encoder_, self.filling_ = None, None
        if is_frame(X):
            from sobgnn.tables import TableEncoder

            checked_names(self, X, reset=True)
            self.encoder_ = TableEncoder()
            found = self.encoder_.fit_transform(X)
            if min(found.shape) < 1 or found.shape[0] < 2:
                raise ValueError(
                    f"X must have at least 2 rows and a column to learn from, but got {X.shape[0]} rows and columns "
                    f"that are {', '.join(sorted(set(self.encoder_.outcomes_.values())))}."
                )
            return found
        X = checked(self, X, ensure_min_samples=2)
        self.filling_ = None if sp.issparse(X) else Filling.of(X)
        X = X if self.filling_ is None else self.filling_(X)
        check_range(X)
        return X

    def _features(self, X: Any) -> Any:
        """Validate new rows, and convert them as those of the fit."""
        if self.encoder_ is not None:
            checked_names(self, X, reset=False)
            return self.encoder_.transform(X if is_frame(X) else np.asarray(X))
        X = checked(self, X, reset=False)
        if self.filling_ is not None or (not sp.issparse(X) and np.isnan(X).any()):
            if self.filling_ is None:
                raise ValueError(
                    "X contains NaN, but there was none when the model was fitted: it cannot say what a blank cell "
                    "means. Impute it, or fit with rows that have blank cells too."
                )
            return self.filling_(X.toarray() if sp.issparse(X) else X)
        return X

    def predict_proba(self, X: Any, *, graph: Any = None) -> npt.NDArray[np.float32]:
        """Predict class probabilities [M, C] of new points X [M, F], columns in the order of ``classes_``.

        New points are connected to their k nearest training points, which are unchanged; O(k) each. If a graph was
        given to :meth:`fit`, ``graph``, scipy sparse [M, N], gives the new points' edges to the training points in it;
        without it they are predicted from their features and neighbors.
        """
        check_is_fitted(self, "predictor_")
        X = self._features(X)
        if graph is not None and GIVEN not in self.predictor_.points.graphs:
            raise ValueError("`graph` needs a model that was fitted with one: pass graph= to fit too.")
        edges = None if graph is None else as_edges(graph, X.shape[0], self.graph_.num_nodes)
        with own_precision():
            found: npt.NDArray[np.float32] = self.predictor_(X, edges)
        return found

    def predict(self, X: Any, *, graph: Any = None) -> npt.NDArray[Any]:
        """Predict the most probable class of new points X [M, F]; see :meth:`predict_proba`."""
        check_is_fitted(self, "predictor_")
        chosen: npt.NDArray[Any] = self.classes_[self.predict_proba(X, graph=graph).argmax(axis=1)]
        return chosen

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, graph: Any = None) -> float:
        """Accuracy on the rows of X [M, F] whose label in y [M] is known, that is, not -1, None or NaN.

        ``graph`` as in :meth:`predict_proba`.
        """
        check_is_fitted(self, "predictor_")
        return known_accuracy(self.predict(X, graph=graph), self.classes_, y, sample_weight)

    def suggest(self, n: int = 10, strategy: Strategy = "auto", *, X: Any = None) -> npt.NDArray[np.int64]:
        """The n unlabeled training points whose labels would help most, best first, as row numbers of X.

        They are uncertain, in dense regions, and spread over the graph; see
        :func:`sobgnn.estimator.suggestion.suggest_points`. Before the first labels, pass the points as ``X``: the
        suggestions are typical points that differ from each other, and any earlier fit is ignored.
        """
        check_whole("n", n)
        if X is not None:
            X = clone(self)._learned_features(X)
            with own_precision():
                return suggest_first(
                    X, n, k=self.k, n_components=self.n_components, metric=self.metric, strategy=strategy
                )
        check_is_fitted(self, "predictor_")
        return suggest_points(
            self.graph_,
            self.label_distributions_,
            self.labelled_,
            n,
            reached=self.component_labelled_,
            strategy=strategy,
        )

    def suspects(self, n: int | None = None) -> list[Suspect]:
        """List given labels that look wrong, most suspicious first: out-of-fold predictions contradict them.

        Args:
            n: Maximum number; ``None``: all.
        """
        check_is_fitted(self, "predictor_")
        if n is not None:
            check_whole("n", n, 0, otherwise="None or ")
        shown = shown_out_of_fold(self, weighted=False)
        found = suspect_labels(self.labelled_, self.labelled_codes_, shown, self.classes_)
        return found if n is None else found[:n]

    def describe(self) -> str:
        """Summarize in a few lines what was learned, what was decided, and how accurate it probably is."""
        check_is_fitted(self, "predictor_")
        return described(self)

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier to a folder: safetensors and JSON, whole or not at all.

        An existing model is replaced; a folder that holds anything else is refused.
        """
        check_is_fitted(self, "predictor_")
        artifact.write_folder(folder, *artifact.take_apart(self))

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> SobolevClassifier:
        """Read a classifier that :meth:`save` wrote, on any device. Nothing is unpickled.

        A model of texts that the frame was encoded by is looked for among those at hand;
        ``encoder_ = encoder_.with_models(FOLDER)`` gives one from elsewhere.

        Raises:
            ArtifactError: The folder is damaged, was changed, or is of another kind or another format.
        """
        check_device(device)
        config, arrays = artifact.read_folder(folder)
        try:
            return cls._restored(config, arrays, device)
        except Exception as error:  # a forged folder can raise nearly anything
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise artifact.ArtifactError(f"{folder} is not a complete saved model: {reason}") from error

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: Arrays, device: str | torch.device) -> SobolevClassifier:
        self = cls(**artifact.settings(config["settings"]))
        check_settings(self.get_params(deep=False), list(FAMILIES))
        artifact.put_together(self, config, arrays, device)
        class_weights(self.class_weight, self.classes_, self.labelled_codes_)
        check_class_priors(self.class_priors, self.classes_)
        # Parts that contradict each other fail when they are used: better here than at the first prediction.
        found = self.predictor_(np.zeros((1, self.predictor_.placed.sizes["features"])))
        if found.shape != (1, len(self.classes_)) or not np.isfinite(found).all():
            raise ValueError("its classes and its families do not match")
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        # What a warm start keeps can be recomputed by a fit.
        return {name: value for name, value in super().__getstate__().items() if name != "_kept"}
