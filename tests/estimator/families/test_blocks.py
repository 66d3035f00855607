from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sobgnn.estimator.families import blocks
from sobgnn.estimator.families.blocks import BlockProgress, BlockSchedule, train_blocks


def problem(count: int, width: int = 5, rows: int = 30, members: int = 3) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Blocks X [B, L, D], three classes, and members of which all but the last hold out rows."""
    draw = torch.Generator().manual_seed(3)
    X = torch.randn(count, rows, width, dtype=torch.float64, generator=draw)
    target = (X.sum(dim=0) @ torch.randn(width, 3, dtype=torch.float64, generator=draw)).argmax(dim=1)
    held = torch.zeros(members, rows, dtype=torch.float64)
    for member in range(members - 1):
        held[member, member :: members - 1] = 1
    weight = 1 - held
    return X, target, weight / weight.sum(dim=1, keepdim=True), held


def definition(X: Tensor, parameters: list[Tensor], mask: Tensor | float = 1.0) -> Tensor:
    weight1, bias1, weight2, bias2 = parameters
    hidden = (torch.einsum("bld,bsdh->bslh", X, weight1) + bias1).relu() * mask
    return torch.einsum("bslh,bshc->slc", hidden, weight2) + bias2


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("batch", [100, 8])
def test_steps_are_those_of_autograd_and_torchs_adam(count: int, batch: int):
    X, target, weight, _ = problem(count)
    schedule = BlockSchedule(steps=20, passes=1, batch=batch, lr=0.02, weight_decay=1e-2)
    state = blocks._State(X, target, weight, [1, 2, 3], 7, 3, schedule, dropout=0.4)
    parameters = [part.clone().requires_grad_() for part in state.parameters]
    optimizer = torch.optim.Adam(parameters, weight_decay=1e-2)
    for number in range(20):
        rows, one_hot, share = state.batches[number % len(state.batches)]
        offset = state.offsets[number]
        mask = state.pool[:, :, offset : offset + rows.shape[1]] / 0.6
        loss = -(definition(rows, parameters, mask).log_softmax(2) * one_hot * share).sum()
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - number / 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step(number)
        assert state.train_loss(number) == pytest.approx(loss.item() / 3)
    for own, expected in zip(state.parameters, parameters, strict=True):
        torch.testing.assert_close(own, expected.detach(), rtol=1e-9, atol=1e-11)


def test_every_row_is_in_some_batch_with_its_share():
    X, target, weight, _ = problem(2, rows=30)
    state = blocks._State(X, target, weight, [0, 1, 2], 4, 3, BlockSchedule(batch=10), dropout=0.0)
    assert len(state.batches) == 3
    together = torch.cat([rows for rows, _, _ in state.batches], dim=1)
    torch.testing.assert_close(together.sum(dim=1), X.sum(dim=1))
    torch.testing.assert_close(
        sum(share for _, _, share in state.batches).sum(dim=(1, 2)), torch.full((3,), 3.0).double()
    )


def test_logits_are_the_sum_over_blocks():
    X, target, weight, _ = problem(3)
    found = train_blocks(X, target, weight, [1, 2, 3], 6, 3, BlockSchedule(steps=5, passes=1))
    parameters = [found.weight1, found.bias1, found.weight2, found.bias2]
    torch.testing.assert_close(found.logits(X), definition(X, parameters))


def test_progress_reports_the_scores_of_the_held_out_rows():
    X, target, weight, held = problem(1, rows=40)
    seen: list[BlockProgress] = []
    schedule = BlockSchedule(steps=12, passes=1)
    found = train_blocks(X, target, weight, [1, 2, 3], 8, 3, schedule, held_out=held, progress=seen.append)
    assert [at.step for at in seen] == [5, 10, 12]
    logits = found.logits(X)
    losses = -logits.log_softmax(2)[:, torch.arange(40), target]
    assert seen[-1].validation_loss == pytest.approx(float((losses * held).sum() / held.sum()))
    right = (logits.argmax(2) == target).double()
    assert seen[-1].validation_accuracy == pytest.approx(float((right * held).sum() / held.sum()))


def test_held_out_rows_do_not_change_what_is_learnt():
    X, target, weight, held = problem(1)
    other = torch.where(held[0] > 0, (target + 1) % 3, target)
    schedule = BlockSchedule(steps=30)
    first, second = (train_blocks(X, y, weight, [1, 2, 3], 8, 3, schedule).logits(X) for y in (target, other))
    torch.testing.assert_close(first[0], second[0])
    assert not torch.allclose(first[2], second[2])


def test_a_call_neither_reads_nor_changes_torchs_random_state():
    X, target, weight, _ = problem(2)
    runs = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        runs.append(train_blocks(X, target, weight, [1, 2, 3], 4, 3, BlockSchedule(steps=10)).logits(X))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*runs)


def test_progress_can_end_training():
    X, target, weight, _ = problem(1)
    seen: list[int] = []

    def stop(at: BlockProgress) -> bool:
        seen.append(at.step)
        return at.step >= 15

    train_blocks(X, target, weight, [1, 2, 3], 4, 3, BlockSchedule(), progress=stop)
    assert seen == [5, 10, 15]


def test_more_rows_take_more_steps():
    assert BlockSchedule(steps=100, passes=10, batch=256).total(200) == 100
    assert BlockSchedule(steps=100, passes=10, batch=256).total(256 * 40) == 400


def test_training_starts_from_the_weights_of_given_networks():
    X, target, weight, _ = problem(2)
    first = train_blocks(X, target, weight, [1, 2, 3], 4, 3, BlockSchedule(steps=10, passes=1))
    rest = BlockSchedule(steps=5, passes=1, lr=0.0)
    again = train_blocks(X, target, weight, [4, 5, 6], 4, 3, rest, start=first)
    torch.testing.assert_close(again.logits(X), first.logits(X))
    better = train_blocks(X, target, weight, [4, 5, 6], 4, 3, BlockSchedule(steps=50, passes=1), start=first)
    losses = [torch.nn.functional.cross_entropy(made.logits(X)[-1], target) for made in (first, better)]
    assert losses[1] < losses[0]
