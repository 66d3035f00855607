"""The families of the estimator: each learns from the labels in its own way, all by one contract.

Adding one is adding a file with a class that follows :class:`~sobgnn.estimator.families.contract.Family`, and its
name here.
"""

from __future__ import annotations

from collections.abc import Sequence

from sobgnn.estimator.families.contract import Family, FittedFamily
from sobgnn.estimator.families.diffusion import DiffusedLabels
from sobgnn.estimator.families.linear import SelfTrainedLinear
from sobgnn.estimator.families.networks import MLPs, SobolevNetworks
from sobgnn.estimator.families.pagerank import PageRankLinear
from sobgnn.estimator.families.ssobgnn import SSobGNNs
from sobgnn.estimator.families.trees import BoostedTrees, Forests

__all__ = ["FAMILIES", "Family", "FittedFamily", "default_families", "make_family"]

# By the name that people type and that describe() prints.
FAMILIES: dict[str, type[Family]] = {
    family.name: family
    for family in (
        SobolevNetworks,
        MLPs,
        DiffusedLabels,
        SelfTrainedLinear,
        Forests,
        BoostedTrees,
        PageRankLinear,
        SSobGNNs,
    )
}


def make_family(name: str, view: str | None = None) -> Family:
    """The family of a name; ``view`` names the graph that it learns on, for those that learn on one."""
    return FAMILIES[name](view) if FAMILIES[name].on_graph else FAMILIES[name]()  # type: ignore[call-arg]


def default_families(labels_per_class: float, *, given: bool = False) -> Sequence[str]:
    """The families that take part, by the mean number of labels of a class, and whether a graph was given.

    Boosted trees join from 20 labels per class: with fewer they cost more than they gain, by out-of-fold labels that
    are too few to tell (see the estimator's page in the documentation).
    """
    names = ["sobolev", "mlp", "diffusion", "linear", "forests"]
    if given:
        names.append("pagerank")
    return [*names, "boosting"] if labels_per_class >= 20 else names
