"""Exact full-graph training over many processes: each holds some rows, and fetches the few others it reads."""

from sobgnn.distributed.exchange import Exchange
from sobgnn.distributed.fit import RankFit, fit_over_ranks, gather_by_node
from sobgnn.distributed.operators import RankOperators
from sobgnn.distributed.partition import Partition
from sobgnn.graphs.locality import locality_order
from sobgnn.runtime.ranks import LostRankError, alone, joined, num_ranks

__all__ = [
    "Exchange",
    "LostRankError",
    "Partition",
    "RankFit",
    "RankOperators",
    "alone",
    "fit_over_ranks",
    "gather_by_node",
    "joined",
    "locality_order",
    "num_ranks",
]
