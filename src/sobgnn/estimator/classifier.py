"""scikit-learn's skin: validation and translation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from sobgnn.estimator import saving
from sobgnn.estimator.artifact import Arrays, ArtifactError, read_folder, write_folder
from sobgnn.estimator.ensemble import Labels, Network, embedding, mean_filter_weights
from sobgnn.estimator.features import FeatureMap, Scale
from sobgnn.estimator.fitting import Fit, FitProgress, Hook, Wishes, fit_families
from sobgnn.estimator.labels import class_weights, encode_labels
from sobgnn.estimator.placing import Points, given_graph, neighbor_graph, scaled_points, shared_labels
from sobgnn.estimator.predictor import Attaching, Predictor
from sobgnn.estimator.scaling import Scales, Wish, decide_scales
from sobgnn.estimator.smoothing import strongest
from sobgnn.estimator.suggestion import suggest_points
from sobgnn.estimator.temperature import sharpen
from sobgnn.graphs.given import as_edges
from sobgnn.graphs.graph import Graph, Symmetrize
from sobgnn.graphs.knn import Bandwidth
from sobgnn.nn.conv import Combine
from sobgnn.operators import SobolevOperators
from sobgnn.runtime.ranks import Ranks, check_same, taking_part
from sobgnn.training import Schedule

Auto = Literal["auto"]


class SobolevClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels for many points from a few, by what five families say over a k-nearest-neighbour graph.

    ``n_members`` S-SobGNNs and as many perceptrons are trained, each family as one batch; the labels are also diffused
    over the graph; a linear classifier teaches itself; and as many students, perceptrons again, learn from what the
    four say. Four members of a family hold out a quarter of the labels each, in turn; the others learn from all. The
    labels, while held out, say when to stop, how much each family counts (``mixing_``, ``diffusion_``,
    ``self_training_``, ``weak_labels_``), how far networks are smoothed over the graph (``smoothing_``) and how sure
    the result may be (``temperature_``). With fewer than 3 labels in some class nothing is held out: a fixed schedule
    and fixed values take their place, without self-training and students.

    Args:
        k: Neighbours of each point; at most one less than there are points.
        alpha: Filters per layer: Hadamard powers of the graph.
        epsilon: Weight of self-loops.
        hidden_channels: Size of hidden rows; the perceptrons' are twice as wide.
        num_layers: Layers.
        dropout: Share of hidden entries dropped in training.
        combine: ``"linear"`` or ``"concat"``, see :class:`~sobgnn.SobolevConv`.
        self_branch: Add the graph-free filter to every layer.
        n_members: Networks per family.
        mixing: Share of the S-SobGNNs in what the networks say, from 0 (perceptrons alone) to 1; ``"auto"`` decides.
        diffusion: Share of the diffused labels beside those networks, from 0 (networks alone) to 1; ``"auto"`` decides.
        smoothing: Strength in [0, 1) of smoothing the networks' probabilities over the graph; ``"auto"`` decides.
        weak_labels: Share in the result of further perceptrons that also learn from weak labels, the surer half of
            what the others predict; 0 trains none, and no self-trained classifier either. ``"auto"`` decides; none
            where no labels are held out.
        early_stopping: Hold out labels; ``"auto"``: where every class has at least 3.
        calibrate: Fit a temperature where at least 50 labels were held out in turn.
        class_weight: ``None``, ``"balanced"`` (inversely to the number of labels) or weights by class.
        scale: How dense X is scaled: ``"range"``, ``"standard"``, ``"range-unit"``, ``"unit"`` or ``None``, see
            :class:`~sobgnn.estimator.features.FeatureMap`; a pair: for the neighbour search, and for the networks.
            ``"auto"`` takes of ``"range"``, ``"range-unit"`` and ``"unit"`` the one over whose neighbours labels spread
            best, ``neighbor_scale_``, and the one from which perceptrons learn best, ``scale_``.
        n_components: Columns the networks and the neighbour search see at the most: principal components of dense X,
            singular vectors of sparse X. ``None``: all, and sparse X is made dense.
        metric: Distance of neighbours, ``"euclidean"`` or ``"cosine"``.
        bandwidth: Of the Gaussian kernel, see :func:`~sobgnn.knn_graph`.
        symmetrize: ``"union"`` or ``"mutual"``, see :func:`~sobgnn.knn_graph`.
        method: Neighbour search: ``"exact"``, ``"hnsw"`` or ``"auto"``.
        epochs: Full-batch steps at the most.
        lr: Adam's learning rate.
        weight_decay: L2 penalty.
        device: Where to compute; ``None``: the CPU.
        verbose: 1 says what was decided.
        random_state: Same number, same predictions.

    Attributes:
        classes_: [C], sorted.
        transduction_: [N], the label of every training point: as given, or predicted.
        label_distributions_: [N, C], probabilities; 1 for given labels.
        component_labelled_: bool [N]. Points in a component of the graph without any label are judged by their
            features alone.
        graph_: The :class:`~sobgnn.Graph`.
        scale_, neighbor_scale_, mixing_, diffusion_, smoothing_, self_training_, weak_labels_, temperature_: What was
            decided.
        out_of_fold_accuracy_, out_of_fold_log_loss_: Of labels while held out; NaN where none were.
        history_: Training curves by family, ``"graph"``, ``"features"`` and ``"students"``: arrays [T] or [T, members].
        filter_weights_: [layers, branches], how much each filter counts, mean over members; rows sum to 1.
        embedding_: [N, at most 32], principal components of the members' hidden rows.
        n_iter_: Steps made.
        labelled_: Rows of X that have a label.
    """

    def __init__(
        self,
        k: int = 10,
        alpha: int = 3,
        epsilon: float = 1.0,
        *,
        hidden_channels: int = 64,
        num_layers: int = 2,
        dropout: float = 0.5,
        combine: Combine = "linear",
        self_branch: bool = True,
        n_members: int = 8,
        mixing: float | Auto = "auto",
        diffusion: float | Auto = "auto",
        smoothing: float | Auto = "auto",
        weak_labels: float | Auto = "auto",
        early_stopping: bool | Auto = "auto",
        calibrate: bool = True,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        scale: Wish = "auto",
        n_components: int | None = 256,
        metric: Literal["euclidean", "cosine"] = "euclidean",
        bandwidth: Bandwidth = "mean",
        symmetrize: Symmetrize = "union",
        method: Literal["auto", "exact", "hnsw"] = "auto",
        epochs: int = 300,
        lr: float = 0.01,
        weight_decay: float = 5e-4,
        device: str | torch.device | None = None,
        verbose: int = 0,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.k = k
        self.alpha = alpha
        self.epsilon = epsilon
        self.hidden_channels = hidden_channels
        self.num_layers = num_layers
        self.dropout = dropout
        self.combine = combine
        self.self_branch = self_branch
        self.n_members = n_members
        self.mixing = mixing
        self.diffusion = diffusion
        self.smoothing = smoothing
        self.weak_labels = weak_labels
        self.early_stopping = early_stopping
        self.calibrate = calibrate
        self.class_weight = class_weight
        self.scale = scale
        self.n_components = n_components
        self.metric = metric
        self.bandwidth = bandwidth
        self.symmetrize = symmetrize
        self.method = method
        self.epochs = epochs
        self.lr = lr
        self.weight_decay = weight_decay
        self.device = device
        self.verbose = verbose
        self.random_state = random_state

    @classmethod
    def paper(cls, **parameters: Any) -> SobolevClassifier:
        """The paper's form: one S-SobGNN, linear combination, no self branch, no smoothing, k = 30."""
        form: dict[str, Any] = {
            "k": 30,
            "self_branch": False,
            "combine": "linear",
            "n_members": 1,
            "mixing": 1.0,
            "diffusion": 0.0,
            "smoothing": 0.0,
            "weak_labels": 0.0,
            "calibrate": False,
        }
        return cls(**{**form, **parameters})

    def fit(self, X: Any, y: Any, *, graph: Any = None, progress: Hook | None = None) -> SobolevClassifier:
        """Learn from the labelled points, and label the others.

        Under torchrun all ranks call it with the same points and labels, share the work, and end with the same
        attributes; rank 0 alone prints, warns and calls ``progress``.

        Args:
            X: Points [N, F]: array, DataFrame or scipy sparse matrix.
            y: Labels [N]; -1, None or NaN where unknown.
            graph: Instead of a k-NN graph of X: a :class:`~sobgnn.Graph`, a scipy sparse adjacency [N, N], PyG's
                ``edge_index`` [2, E], or the pair ``(edge_index, edge_weight)``.
            progress: Called with :class:`~sobgnn.estimator.fitting.FitProgress`; returning True ends training there,
                and the fit goes on with what has been learnt.
        """
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None.")
        self._check_settings()
        with taking_part(self.device or "cpu") as ranks:
            self._fit(X, y, graph, ranks.decide(progress), ranks)
        return self

    def _fit(self, X: Any, y: Any, graph: Any, progress: Hook | None, ranks: Ranks) -> None:
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_min_samples=2)
        self.classes_, codes = encode_labels(y, X.shape[0])
        if len(self.classes_) < 2:
            raise ValueError(
                f"y must hold at least 2 classes, but the only class is {self.classes_[0]!r}. Label points of another."
            )
        check_same(X, codes, ranks)
        # The seed sequence draws a seed where there is none.
        seed = np.random.SeedSequence(_seed(self.random_state)).entropy
        generator = np.random.default_rng(ranks.first(seed))
        device = ranks.device
        prepared, built, attaching = self._prepare(X, codes, graph, generator, ranks)
        if graph is None and progress is not None:
            progress(FitProgress("neighbours", 1, 1))
        operators = SobolevOperators(built.to(device), self.alpha, self.epsilon)
        labels = self._labels(codes, generator, ranks)
        # Strong and weak components of a symmetric graph are the same; the strong ones need no transposed copy.
        _, component = connected_components(built.to_scipy(), connection="strong")
        component_labelled = np.isin(component, component[labels.index])
        network = Network(
            prepared.z.shape[1], self.hidden_channels, len(self.classes_), self.num_layers, self.alpha, self.epsilon,
            self.dropout, self.combine, self.self_branch,
        )  # fmt: skip
        schedule = Schedule(self.epochs, self.lr, self.weight_decay, patience=60, evaluate_every=5, together=True)
        points = torch.from_numpy(prepared.z).to(device)
        reached = torch.from_numpy(component_labelled).to(device)
        fit = fit_families(
            network, points, operators, strongest(built, (self.k + 1) // 2).to(device), labels, schedule, reached,
            Wishes(self.mixing, self.diffusion, self.smoothing, self.weak_labels, self.calibrate), generator, progress,
            ranks,
        )  # fmt: skip
        self._keep(network, prepared.features, points, operators, fit, reached, attaching, labels)
        if self.verbose and ranks.speaks:
            held = f"held-out accuracy {self.out_of_fold_accuracy_:.1%}, " if labels.folds else ""
            print(
                f"{len(labels.index)} labels of {len(points)} points, {self.n_iter_} steps, scale {self.scale_}, "
                f"neighbours by {self.neighbor_scale_}: "
                f"{held}students count {self.weak_labels_:.0%}, self-training {self.self_training_:.0%} of the rest, "
                f"diffused labels {self.diffusion_:.0%} of what then is left, "
                f"graph members {self.mixing_:.0%} of the networks, smoothing {self.smoothing_:g}, "
                f"temperature {self.temperature_:.2f}."
            )
            if not component_labelled.all():
                print(f"{(~component_labelled).sum()} points reach no label through the graph; judged by features.")

    def _check_settings(self) -> None:
        for name in ("k", "hidden_channels", "num_layers", "n_members", "epochs"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"`{name}` must be an integer of at least 1, but got {value!r}.")
        for name, top in (("mixing", 1.0), ("diffusion", 1.0), ("smoothing", 0.999), ("weak_labels", 1.0)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value != "auto" and not (number and 0 <= value <= top):
                raise ValueError(f'`{name}` must be "auto" or a number from 0 to {top:g}, but got {value!r}.')
        pair = self.scale if isinstance(self.scale, tuple) else (self.scale, self.scale)
        known = (None, *get_args(Scale))
        if self.scale != "auto" and not (len(pair) == 2 and all(scale in known for scale in pair)):
            raise ValueError(f"`scale` must be 'auto', one of {known} or a pair of them, but got {self.scale!r}.")
        if self.n_components is not None and not (
            isinstance(self.n_components, (int, np.integer)) and self.n_components >= 1
        ):
            raise ValueError(f"`n_components` must be None or an integer of at least 1, but got {self.n_components!r}.")

    def _prepare(
        self, X: Any, codes: npt.NDArray[np.int64], graph: Any, generator: np.random.Generator, ranks: Ranks
    ) -> tuple[Points, Graph, Attaching]:
        """Points and their graph, as the settings say."""
        scales = decide_scales(self.scale, X, codes, self.k, self.n_components, generator)
        self.scale_: Scale | None = scales.networks
        self.neighbor_scale_: Scale | None = scales.neighbors if graph is None else None
        seed = int(generator.integers(2**31))
        if graph is not None:
            points = scaled_points(X, Scales(scales.networks, scales.networks), self.n_components, seed)
            return points, *given_graph(graph, len(points.z), self.alpha)
        points = scaled_points(X, scales, self.n_components, seed)
        built, attaching = neighbor_graph(
            points.places, self.k, self.metric, self.method, self.bandwidth, self.symmetrize, ranks
        )
        return points, built, points.attached(attaching, ranks.device)

    def _labels(self, codes: npt.NDArray[np.int64], generator: np.random.Generator, ranks: Ranks) -> Labels:
        given = codes[codes >= 0]
        few = np.bincount(given, minlength=len(self.classes_)).min() < 3
        hold = not few if self.early_stopping == "auto" else bool(self.early_stopping)
        if few and self.early_stopping == "auto" and self.verbose and ranks.speaks:
            print("Fewer than 3 labels in some class: training by a fixed schedule, without held-out labels.")
        weight = class_weights(self.class_weight, self.classes_, given)
        return shared_labels(codes, weight, hold, self.n_members, generator)

    def _keep(
        self,
        network: Network,
        feature_map: FeatureMap,
        points: Tensor,
        operators: SobolevOperators,
        fit: Fit,
        reached: Tensor,
        attaching: Attaching,
        labels: Labels,
    ) -> None:
        graph, features, students = (
            fit.members[name].parameters if name in fit.members else {} for name in ("graph", "features", "students")
        )
        self.predictor_ = Predictor(
            network, feature_map, points, operators, graph, features, students, fit.linear,
            fit.states, fit.parts, fit.distributions, reached, fit.choice.blend, fit.choice.temperature, attaching,
        )  # fmt: skip
        self.mixing_ = fit.choice.blend.mixing
        self.diffusion_ = fit.choice.blend.diffusion
        self.smoothing_ = fit.choice.blend.smoothing
        self.weak_labels_ = fit.choice.blend.students
        self.self_training_ = fit.choice.blend.linear
        self.temperature_ = fit.choice.temperature
        self.out_of_fold_accuracy_ = fit.choice.accuracy
        self.out_of_fold_log_loss_ = fit.choice.log_loss
        self.labelled_, self.labelled_codes_ = labels.index, labels.codes
        self.history_ = {
            family: {name: curve.numpy() for name, curve in members.history.items()}
            for family, members in fit.members.items()
        }
        self.n_iter_ = max(members.epochs for members in fit.members.values())
        self.filter_weights_ = mean_filter_weights(network, graph)
        self.embedding_ = embedding(fit.states, points)
        self._label()

    def _label(self) -> None:
        """Everything that follows from the predictor and the given labels."""
        self.graph_ = self.predictor_.graph.to("cpu")
        self.component_labelled_ = self.predictor_.component_labelled.cpu().numpy()
        distributions = sharpen(self.predictor_.distributions.cpu().numpy(), self.predictor_.temperature)
        distributions[self.labelled_] = np.eye(len(self.classes_), dtype=distributions.dtype)[self.labelled_codes_]
        self.label_distributions_ = distributions
        self.transduction_ = self.classes_[distributions.argmax(axis=1)]

    def predict_proba(self, X: Any, *, graph: Any = None) -> npt.NDArray[np.float32]:
        """Class probabilities [M, C] of new points X [M, F], columns in the order of ``classes_``.

        New points are joined to their k nearest training points, which stay as they are; O(k) each. Where the
        training graph was given, ``graph``, scipy sparse [M, N], gives the new points' edges to the training
        points; without it they are judged by their features alone.
        """
        check_is_fitted(self, "predictor_")
        X = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        edges = None if graph is None else as_edges(graph, X.shape[0], self.graph_.num_nodes)
        return self.predictor_(X, edges)

    def predict(self, X: Any, *, graph: Any = None) -> npt.NDArray[Any]:
        """The most probable class of new points X [M, F]; see :meth:`predict_proba`."""
        check_is_fitted(self, "predictor_")
        chosen: npt.NDArray[Any] = self.classes_[self.predict_proba(X, graph=graph).argmax(axis=1)]
        return chosen

    def suggest(self, n: int = 10) -> npt.NDArray[np.int64]:
        """The n unlabelled training points whose labels would help most, best first, as row numbers of X.

        They are uncertain, in dense places, and spread over the graph; see
        :func:`sobgnn.estimator.suggestion.suggest_points`.
        """
        check_is_fitted(self, "predictor_")
        if n < 1:
            raise ValueError(f"`n` must be at least 1, but got {n}.")
        return suggest_points(self.graph_, self.label_distributions_, self.labelled_, self.component_labelled_, n)

    def save(self, folder: str | Path) -> None:
        """Write the fitted classifier to a folder: safetensors and JSON, whole or not at all.

        A model already there is replaced; a folder that holds anything else is refused.
        """
        check_is_fitted(self, "predictor_")
        write_folder(folder, *saving.take_apart(self))

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> SobolevClassifier:
        """Read a classifier that :meth:`save` wrote, on any device. Nothing is unpickled.

        Raises:
            ArtifactError: The folder is damaged, was changed, or is of another kind or a newer format.
        """
        config, arrays = read_folder(folder)
        try:
            return cls._restored(config, arrays, device)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ArtifactError(f"{folder} is not a complete saved model: {reason}") from error

    @classmethod
    def _restored(cls, config: dict[str, Any], arrays: Arrays, device: str | torch.device) -> SobolevClassifier:
        self = cls(**saving.settings(config["settings"]))
        saving.put_together(self, config, arrays, device)
        self._label()
        # Parts that contradict each other show when they are used: better here than at the first prediction.
        if self.predictor_(np.zeros((1, self.n_features_in_))).shape != (1, len(self.classes_)):
            raise ValueError("its classes and its networks do not fit")
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _seed(random_state: Any) -> int | None:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    return None if random_state is None else int(random_state)
