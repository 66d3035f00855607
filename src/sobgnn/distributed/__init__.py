"""Exact full-graph training over many processes: each holds some rows, and asks others for the few it reads."""

from sobgnn.distributed.exchange import Exchange
from sobgnn.distributed.operators import RankOperators
from sobgnn.distributed.partition import Partition, locality_order

__all__ = ["Exchange", "Partition", "RankOperators", "locality_order"]
