from __future__ import annotations

import numpy as np
import pytest
import torch

from sobgnn.estimator.families import blocks
from sobgnn.estimator.families.blocks import train_blocks


def problem(count, width=5, rows=30, members=3):
    """Blocks X [B, L, D], three classes, and members of which all but the last hold out rows."""
    draw = torch.Generator().manual_seed(3)
    X = torch.randn(count, rows, width, dtype=torch.float64, generator=draw)
    target = (X.sum(dim=0) @ torch.randn(width, 3, dtype=torch.float64, generator=draw)).argmax(dim=1)
    held = torch.zeros(members, rows, dtype=torch.float64)
    for member in range(members - 1):
        held[member, member :: members - 1] = 1
    weight = 1 - held
    return X, target, weight / weight.sum(dim=1, keepdim=True), held


def definition(X, parameters, mask=1.0):
    weight1, bias1, weight2, bias2 = parameters
    hidden = (torch.einsum("bld,bsdh->bslh", X, weight1) + bias1).relu() * mask
    return torch.einsum("bslh,bshc->slc", hidden, weight2) + bias2


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("batches", [1, 4])
def test_steps_are_those_of_autograd_and_torchs_adam(count, batches):
    X, target, weight, _ = problem(count)
    generator = np.random.default_rng(0)
    training = blocks._Training(X, 3, 7, 3, batch_size=-(-30 // batches))
    training.draw_weights([1, 2, 3])
    data = list(blocks._batches(X, target, weight, 3, batches, generator))
    training.draw_dropout(generator, 0.4)
    parameters = [part.clone().requires_grad_() for part in training.networks.parts]
    optimizer = torch.optim.Adam(parameters, weight_decay=1e-2)
    for number in range(20):
        rows, one_hot, share = data[number % batches]
        mask = training.pool[:, :, number : number + rows.shape[1]] / 0.6
        loss = -(definition(rows, parameters, mask).log_softmax(2) * one_hot * share).sum()
        optimizer.param_groups[0]["lr"] = 0.02 * (1 - number / 20)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        training.gradients_of(rows, one_hot, share, number)
        training.adam(number, 0.02 * (1 - number / 20), 1e-2)
        assert training.loss(one_hot, share) == pytest.approx(loss.item() / 3)
    for own, expected in zip(training.networks.parts, parameters, strict=True):
        torch.testing.assert_close(own, expected.detach(), rtol=1e-9, atol=1e-11)


def test_progress_reports_the_scores_of_the_held_out_rows_by_the_definition_and_may_end_training():
    X, target, weight, held = problem(2, rows=40)
    seen = []

    def stop(*at):
        seen.append(at)
        return at[0] >= 12

    found = train_blocks(X, target, weight, [1, 2, 3], 8, 3, steps=99, passes=1, held_out=held, progress=stop)
    assert [at[:2] for at in seen] == [(5, 99), (10, 99), (15, 99)]
    logits = definition(X, found.parts)
    torch.testing.assert_close(found.logits(X), logits)
    losses = -logits.log_softmax(2)[:, torch.arange(40), target]
    right = (logits.argmax(2) == target).double()
    expected = [float((values * held).sum() / held.sum()) for values in (losses, right)]
    np.testing.assert_allclose(seen[-1][3:], expected)


def test_a_call_neither_reads_nor_changes_torchs_random_state_and_many_rows_take_more_steps():
    X, target, weight, _ = problem(2)
    runs, steps = [], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        found = train_blocks(
            X, target, weight, [1, 2, 3], 4, 3, steps=10, batch=10, progress=lambda step, *_: steps.append(step)
        )
        runs.append(found.logits(X))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(*runs)
    assert max(steps) == 30  # ten passes of three batches


def test_training_starts_from_the_weights_of_given_networks():
    X, target, weight, _ = problem(2)
    first = train_blocks(X, target, weight, [1, 2, 3], 4, 3, steps=10, passes=1)
    again = train_blocks(X, target, weight, [4, 5, 6], 4, 3, steps=5, passes=1, lr=0.0, start=first)
    torch.testing.assert_close(again.logits(X), first.logits(X))
    better = train_blocks(X, target, weight, [4, 5, 6], 4, 3, steps=50, passes=1, start=first)
    losses = [torch.nn.functional.cross_entropy(made.logits(X)[-1], target) for made in (first, better)]
    assert losses[1] < losses[0]
