"""Members of a batch train as if each were alone."""

from __future__ import annotations

import pytest
import torch

from sobgnn import SobolevOperators, SSobGNN
from sobgnn.paper.protocol.data import Prepared
from sobgnn.paper.protocol.splits import development_and_test, ten_percent
from sobgnn.training import Schedule, Task, train_members


@pytest.mark.trains
def test_a_batch_of_seeds_is_the_seeds_one_by_one_to_the_last_bits_of_float64(toy: Prepared) -> None:
    # In float32 the two agree to rounding only, which Adam enlarges: its first steps are g / |g|, whatever the size
    # of g. In float64 nothing but a mistake could be larger than 1e-10.
    X, y = torch.from_numpy(toy.X).double(), torch.from_numpy(toy.y)
    operators = SobolevOperators(toy.graph, alpha=3)
    model = SSobGNN(X.shape[1], 8, 3, dropout=0.0).double()
    development, _ = development_and_test(len(y))
    weight = torch.zeros(3, len(y), dtype=torch.float64)
    for seed in range(3):
        train = ten_percent(development, len(y), seed).train
        weight[seed, torch.from_numpy(train)] = 1 / len(train)
    schedule = Schedule(epochs=40, patience=None)
    together = train_members(model, (X, operators), Task(y, weight), [0, 1, 2], schedule)
    for seed in range(3):
        alone = train_members(model, (X, operators), Task(y, weight[seed : seed + 1]), [seed], schedule)
        for name, value in alone.parameters.items():
            torch.testing.assert_close(together.parameters[name][seed], value[0], rtol=0, atol=1e-10)
