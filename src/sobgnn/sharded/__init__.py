"""Data past one machine's memory: points and their graph in shards, in files, on one machine or many.

>>> from sobgnn import sharded  # doctest: +SKIP
>>> sharded.fit("shards/*.parquet", "labels.csv", out="run", engine="local")  # doctest: +SKIP
"""

from sobgnn.sharded.fitting import Result, fit
from sobgnn.sharded.predicting import predict

__all__ = ["Result", "fit", "predict"]
