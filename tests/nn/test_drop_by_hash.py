from __future__ import annotations

import pytest
import torch
from torch.func import vmap

from sobgnn.nn.dropout import drop_by_hash, mix


def hashes(*shape: int) -> torch.Tensor:
    count = int(torch.tensor(shape).prod())
    return mix(torch.arange(1, count + 1, dtype=torch.int32)).view(shape)


@pytest.mark.parametrize("backend", ["native", "portable"])
@pytest.mark.parametrize("dims", [(0, 0), (1, 0), (0, 1), (None, 0), (0, None)])
def test_mapping_over_members_is_dropping_in_each_by_itself(monkeypatch, backend, dims):
    if backend == "portable":
        monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    members, nodes, channels = 3, 5, 4
    h, rows = torch.rand(members, nodes, channels), hashes(members, nodes)
    expected = torch.stack(
        [drop_by_hash(h[0 if dims[0] is None else m], rows[0 if dims[1] is None else m], 0.5) for m in range(members)]
    )
    given = (
        h[0] if dims[0] is None else h.movedim(0, dims[0]),
        rows[0] if dims[1] is None else rows.movedim(0, dims[1]),
    )
    mapped = vmap(lambda one, at: drop_by_hash(one, at, 0.5), in_dims=dims)(*given)
    assert torch.equal(mapped, expected)
    assert (expected == 0).any()  # else nothing was compared


def test_the_hash_has_no_two_equal_values_and_bits_that_are_set_half_of_the_time():
    mixed = mix(torch.arange(100_000, dtype=torch.int32))
    assert len(mixed.unique()) == 100_000
    for bit in range(32):
        assert abs(float(((mixed >> bit) & 1).float().mean()) - 0.5) < 0.01
