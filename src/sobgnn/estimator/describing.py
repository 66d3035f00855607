"""Descriptions of a fitted estimator: readable text, importance of orders, an embedding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from sobgnn.estimator.families.foreign import FittedForeign
from sobgnn.estimator.families.networks import FittedNetworks
from sobgnn.estimator.families.ssobgnn import FittedSSobGNNs
from sobgnn.estimator.families.trees import KINDS, WHOLE, FittedTrees
from sobgnn.estimator.fit import Member
from sobgnn.estimator.frequencies import much_fewer
from sobgnn.estimator.labels import Labels
from sobgnn.estimator.points import GIVEN, Points

# Readable names of the families, and how each decides, for readers who know none of them.
TITLES = {
    "sobolev": "Sobolev networks",
    "diffusion": "diffused labels",
    "poisson": "Poisson learning",
    "linear": "self-trained linear classifier",
    "gaussian": "Gaussian kernel regression",
    "kernel": "kernel regression",
    "forests": "forests",
    "pagerank": "linear classifier on PageRank features",
    "links": "linear classifier on neighbors",
    "s-sobgnn": "S-SobGNN",
}
EXPLAINED = {
    "sobolev": "learn from each row together with its nearest neighbors",
    "diffusion": "labels pass from neighbor to neighbor",
    "poisson": "labels flow through whole clusters of similar rows",
    "linear": "weighs columns, and learns from its own confident predictions too",
    "gaussian": "similar labeled rows decide, and all columns count alike",
    "kernel": "similar labeled rows decide, and columns that separate the classes count more",
    "forests": "decision trees, which ask about one column after the other",
    "pagerank": "weighs columns averaged over the given graph",
    "links": "weighs a row's columns, and which rows it is linked to",
    "s-sobgnn": "the paper's network on the graph",
}


def described(estimator: Any) -> str:
    """A few lines: labels, accuracy, families and their shares, class frequencies."""
    predictor, points = estimator.predictor_, estimator.predictor_.points
    judged = int(np.isfinite(estimator.out_of_fold_probabilities_).all(axis=1).sum())
    lines = [
        f"{len(estimator.labelled_):,} labels of {points.count:,} points, {points.classes} classes, "
        f"on {points.device.type}."
    ]
    if judged:
        # A warm refit holds nothing out: its accuracy is that of an earlier fit, which had other labels.
        current = judged == int((estimator.folds_ >= 0).sum())
        where = f"on {judged:,} labels" if current else "when labels were last held out"
        largest = np.bincount(estimator.labelled_codes_).max() / len(estimator.labelled_codes_)
        held = np.bincount(estimator.labelled_codes_[estimator.folds_ >= 0], minlength=points.classes) > 0
        never = int((~held[estimator.labelled_codes_]).sum()) if current else 0
        unknown = f", {never:,} more of classes that are never held out counted as unknown" if never else ""
        low, high = estimator.out_of_fold_interval_
        lines.append(
            f"Estimated accuracy {estimator.out_of_fold_accuracy_:.1%} {where} (95% interval {low:.1%} to {high:.1%})"
            f"{unknown}; the largest class has {largest:.1%} of the labels."
        )
        copies = int(((estimator.folds_ < 0) & held[estimator.labelled_codes_]).sum())
        if current and copies:
            lines.append(f"{copies:,} further labels are of copies of these rows and count with them.")
        if current and not held.all():
            lines.append(f"Accuracy is not known for {_listed(estimator.classes_[~held])}: no such label was held out.")
    else:
        lines.append("Labels are too few to hold any out: accuracy is not known.")
    for member, share in zip(predictor.members, predictor.blend.shares, strict=True):
        name, how = TITLES.get(member.name, member.name), EXPLAINED.get(member.name, "")
        if isinstance(member.fitted, FittedForeign):
            how = f"{type(member.fitted.estimator).__name__}, learned by the same folds"
        if isinstance(member.fitted, FittedTrees) and len(member.fitted.trees.root) < len(KINDS) * WHOLE:
            how += f"; only {len(member.fitted.trees.root)} trees, as points or classes are many"
        where = f" on the {member.graph} graph" if member.graph and len(points.graphs) > 1 else ""
        alone = estimator.family_accuracy_.get(member.title, float("nan"))
        own = f"; alone {alone:.1%} right" if np.isfinite(alone) else ""
        lines.append(f"  {share:5.1%}  {name}{where}: {how}{own}")
    if estimator.encoder_ is not None:
        kinds = Counter(estimator.encoder_.outcomes_.values())
        lines.append(f"Columns: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}.")
    if estimator.filling_ is not None:
        marked = len(estimator.filling_.marked)
        have = "columns have" if marked > 1 else "column has"
        lines.append(
            f"{marked:,} {have} blank cells (NaN), which are filled with the median and marked by a further column."
        )
    lines += decisions(estimator)
    unreached = int((~estimator.component_labelled_).sum())
    if unreached:
        graph = "given graph" if GIVEN in points.graphs else "graph"
        lines.append(f"{unreached:,} points reach no label through the {graph}.")
    return "\n".join(lines)


def decisions(estimator: Any) -> list[str]:
    """How columns are scaled, how probable classes are, and the temperature, in sentences."""
    scales = f"Columns scaled by {estimator.scale_!r}"
    if estimator.neighbor_scale_ != estimator.scale_:
        scales += f", for the neighbor search by {estimator.neighbor_scale_!r}"
    lines = [f"{scales}; temperature {estimator.temperature_:.2f}."]
    ratio = estimator.predictor_.ratio
    if not np.allclose(ratio, 1):
        pairs = zip(estimator.classes_, estimator.class_prior_, strict=True)
        lines.append(f"Class frequencies assumed: {_listed([f'{name} {share:.1%}' for name, share in pairs])}.")
        few = much_fewer(estimator.labelled_codes_, len(estimator.classes_))
        times = ratio / np.median(ratio[~few])
        raised = [f"{estimator.classes_[c]} {times[c]:.1f} times" for c in np.flatnonzero(few & (times > 1.05))]
        if raised and estimator.class_priors == "auto":
            lines.append(f"Made more probable because of few labels: {', '.join(raised)}.")
    return lines


def _listed(names: Sequence[Any], most: int = 10) -> str:
    """Names separated by commas; of many, only the first."""
    more = [f"and {len(names) - most:,} more"] if len(names) > most else []
    return ", ".join([*(str(name) for name in names[:most]), *more])


@torch.no_grad()
def filter_importance(members: Sequence[Member], points: Points, labels: Labels) -> dict[str, float]:
    """Increase of the Sobolev networks' out-of-fold log loss without each part of their input.

    The parts are the point itself, ``"no graph"``, and each order over all hops, ``"ρ=1"`` …; empty if there are no
    such networks or nothing was held out.
    """
    own = next((member.fitted for member in members if isinstance(member.fitted, FittedNetworks)), None)
    if own is None or not labels.judged.any():
        return {}
    rows = torch.from_numpy(labels.index[labels.judged]).to(points.device)
    blocks = points.blocks(own.graph, own.hops, rows)
    fold = torch.from_numpy(labels.fold[labels.judged]).to(blocks.device)
    codes = torch.from_numpy(labels.codes[labels.judged]).to(blocks.device)
    alpha = points.networks.alpha
    group = np.array([0, *(1 + number % alpha for number in range(len(blocks) - 1))])

    def loss(without: int | None) -> float:
        kept = [place for place in range(len(blocks)) if group[place] != without]
        logits = own.networks.part(kept).logits(blocks[kept])
        held_out = logits[fold, torch.arange(len(codes), device=codes.device)]
        return float(torch.nn.functional.cross_entropy(held_out, codes))

    whole = loss(None)
    names = ["no graph", *(f"ρ={rho}" for rho in range(1, alpha + 1))]
    return {name: loss(number) - whole for number, name in enumerate(names)}


def embedding(members: Sequence[Member], points: Points, width: int = 32) -> npt.NDArray[np.float32]:
    """Principal components [N, at most 32] of a network's hidden rows, or of the points without a network."""
    kinds = (FittedNetworks, FittedSSobGNNs)
    network = next((member.fitted for member in members if isinstance(member.fitted, kinds)), None)
    hidden = points.points if network is None else network.hidden(points)
    mean = hidden.mean(dim=0)
    size = 1 << 14
    products = hidden.new_zeros((hidden.shape[1], hidden.shape[1]), dtype=torch.float64)
    for start in range(0, len(hidden), size):  # a centered copy of all rows would be the largest array of a fit
        centered = hidden[start : start + size] - mean
        products += (centered.T @ centered).double()
    _, vectors = torch.linalg.eigh(products)
    basis = vectors[:, -width:].flip(1).float()
    parts = [(hidden[start : start + size] - mean) @ basis for start in range(0, len(hidden), size)]
    kept: npt.NDArray[np.float32] = torch.cat(parts).cpu().numpy()
    return kept
