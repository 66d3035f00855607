import pytest
import torch
from torch.func import vmap

from sobgnn.nn.dropout import drop_by_hash, dropout, mix


def key(value: int) -> torch.Tensor:
    return torch.tensor(value)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.7])
def test_the_share_dropped_is_the_rate_and_the_mean_is_kept(rate: float) -> None:
    out = dropout(torch.ones(4000, 50), rate, True, key(7), None, 1)
    assert abs(float((out == 0).float().mean()) - rate) < 0.005
    assert abs(float(out.mean()) - 1) < 0.02


def test_columns_and_rows_and_keys_and_layers_are_dropped_independently() -> None:
    def centred(k: int, layer: int) -> torch.Tensor:
        kept = (dropout(torch.ones(4000, 40), 0.5, True, key(k), None, layer) > 0).double()
        return kept - 0.5

    first = centred(1, 1)
    correlation = first.T @ first / 1000  # variance is 1/4
    assert float((correlation - torch.eye(40)).abs().max()) < 0.1
    for other in (centred(2, 1), centred(1, 2)):
        assert abs(float((first * other).mean())) * 4 < 0.01


def test_an_entry_is_dropped_wherever_its_row_is_computed() -> None:
    h = torch.rand(100, 16)
    whole = dropout(h, 0.5, True, key(3), None, 1)
    some = torch.tensor([50, 3, 99])
    assert torch.equal(dropout(h[some], 0.5, True, key(3), some, 1), whole[some])


def test_the_gradient_passes_where_the_value_did() -> None:
    h = torch.rand(30, 8, dtype=torch.float64).requires_grad_()
    out = dropout(h, 0.5, True, key(3), None, 1)
    (gradient,) = torch.autograd.grad(out.sum(), h)
    assert torch.equal(gradient, (out != 0) * 2.0)


def test_signals_of_one_graph_draw_apart_and_the_first_as_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.ones(4, 500, 30)
    out = dropout(h, 0.5, True, key(3), None, 1)
    assert torch.equal(out[0], dropout(h[0], 0.5, True, key(3), None, 1))
    assert torch.equal(out[:, [9, 2]], dropout(h[:, :2], 0.5, True, key(3), torch.tensor([9, 2]), 1))
    kept = (out > 0).double().flatten(1) - 0.5
    assert float((kept @ kept.T / kept.shape[1] * 4 - torch.eye(4)).abs().max()) < 0.05
    monkeypatch.setenv("SOBGNN_BACKEND", "portable")
    assert torch.equal(out, dropout(h, 0.5, True, key(3), None, 1))


def test_the_operator_fits_torch() -> None:
    h = torch.rand(6, 4, requires_grad=True)
    torch.library.opcheck(torch.ops.sobgnn.drop_by_hash, (h, torch.arange(6, dtype=torch.int32), 0.5))


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
