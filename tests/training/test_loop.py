from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sobgnn import SobolevOperators, SSobGNN
from sobgnn.training import Progress, Schedule, Task, initial_parameters, predict_members, train_members
from sobgnn.training.checkpoint import FileCheckpoint


class Linear(nn.Module):
    """Logits x W; no dropout, so that nothing but the seed is random."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 3))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def problem(members: int, validation: bool = True) -> tuple[Tensor, Task]:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(40, 4, generator=draw)
    target = (x @ torch.randn(4, 3, generator=draw)).argmax(dim=1)
    held = torch.zeros(members, 40, dtype=torch.bool)
    for member in range(members):
        held[member, member::4] = True
    weight = (~held).float()
    return x, Task(target, weight / weight.sum(dim=1, keepdim=True), held if validation else None)


def test_members_trained_together_are_those_trained_one_by_one():
    x, task = problem(3)
    schedule = Schedule(epochs=40, lr=0.05, patience=None)
    together = train_members(Linear(), (x,), task, [1, 2, 3], schedule)
    for member, seed in enumerate([1, 2, 3]):
        pick = slice(member, member + 1)
        alone_task = Task(task.target, task.train_weight[pick], task.validation[pick])
        alone = train_members(Linear(), (x,), alone_task, [seed], schedule)
        torch.testing.assert_close(alone.parameters["weight"][0], together.parameters["weight"][member])
        assert alone.best_epoch[0] == together.best_epoch[member]


def test_one_step_is_adam_on_the_weighted_cross_entropy():
    x, task = problem(1, validation=False)
    start = initial_parameters(Linear(), [7], torch.device("cpu"))["weight"][0].detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([start], lr=0.1, weight_decay=0.01)
    losses = torch.nn.functional.cross_entropy(x @ start, task.target, reduction="none")
    (losses * task.train_weight[0]).sum().backward()
    optimizer.step()
    got = train_members(Linear(), (x,), task, [7], Schedule(epochs=1, lr=0.1, weight_decay=0.01))
    torch.testing.assert_close(got.parameters["weight"][0], start.detach())


@pytest.mark.parametrize("monitor", ["accuracy", "loss"])
def test_the_weights_kept_are_the_best_on_held_out_rows(monitor):
    x, task = problem(4)
    schedule = Schedule(epochs=60, lr=0.3, weight_decay=0.0, patience=None, monitor=monitor)
    got = train_members(Linear(), (x,), task, [1, 2, 3, 4], schedule)
    logits = predict_members(Linear(), got.parameters, (x,))
    for member in range(4):
        held = task.validation[member]
        accuracy = (logits[member, held].argmax(dim=1) == task.target[held]).float().mean()
        curve = got.history[f"validation_{monitor}"][:, member]
        best = curve.max() if monitor == "accuracy" else curve.min()
        assert curve[int(got.best_epoch[member]) - 1] == best
        assert accuracy == pytest.approx(float(got.validation_accuracy[member]))


def test_held_out_rows_do_not_train():
    x, task = problem(1)
    other = Task(torch.where(task.validation[0], (task.target + 1) % 3, task.target), task.train_weight, None)
    schedule = Schedule(epochs=20)
    plain = Task(task.target, task.train_weight, None)
    one = train_members(Linear(), (x,), plain, [1], schedule)
    two = train_members(Linear(), (x,), other, [1], schedule)
    torch.testing.assert_close(one.parameters["weight"], two.parameters["weight"], rtol=0, atol=0)


def test_patience_ends_training_early_and_a_hook_ends_it_at_once():
    x, task = problem(2)
    short = train_members(Linear(), (x,), task, [1, 2], Schedule(epochs=5000, lr=0.5, patience=10))
    assert short.epochs < 5000
    seen: list[Progress] = []

    def stop(progress: Progress) -> bool:
        seen.append(progress)
        return progress.epoch >= 6

    got = train_members(Linear(), (x,), task, [1, 2], Schedule(epochs=50, evaluate_every=3), progress=stop)
    assert got.epochs == 6
    assert [p.epoch for p in seen] == [3, 6]
    assert all(p.validation_accuracy is not None for p in seen)


def test_the_same_seeds_give_the_same_weights_and_the_callers_random_state_is_left_alone(graph30):
    operators, x = SobolevOperators(graph30), torch.randn(30, 4)
    target = torch.arange(30) % 3
    task = Task(target, torch.full((2, 30), 1 / 30))
    model = SSobGNN(4, 8, 3)
    before = torch.random.get_rng_state()
    runs = [train_members(model, (x, operators), task, [1, 2], Schedule(epochs=5)) for _ in range(2)]
    assert torch.equal(before, torch.random.get_rng_state())
    for name, value in runs[0].parameters.items():
        assert torch.equal(value, runs[1].parameters[name])
    assert not torch.equal(runs[0].parameters["convs.0.weight"][0], runs[0].parameters["convs.0.weight"][1])


def test_one_seed_per_member_is_demanded():
    x, task = problem(2)
    with pytest.raises(ValueError, match="one row per seed"):
        train_members(Linear(), (x,), task, [1], Schedule(epochs=1))


def test_members_that_stop_together_keep_the_step_that_is_best_on_average():
    x, task = problem(4)
    task.validation[2:] = False  # two members without held-out rows
    schedule = Schedule(epochs=60, lr=0.3, weight_decay=0.0, patience=None, monitor="loss", together=True)
    got = train_members(Linear(), (x,), task, [1, 2, 3, 4], schedule)
    curve = got.history["validation_loss"][:, 0]
    assert set(got.best_epoch.tolist()) == {int(curve.argmin()) + 1}
    fixed = Task(task.target, task.train_weight)
    again = train_members(Linear(), (x,), fixed, [1, 2, 3, 4], Schedule(int(got.best_epoch[0]), 0.3, 0.0))
    torch.testing.assert_close(again.parameters["weight"], got.parameters["weight"])


def graph_problem(graph) -> tuple[SSobGNN, tuple[Tensor, SobolevOperators], Task]:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(30, 4, generator=draw)
    target = torch.randint(3, (30,), generator=draw)
    held = torch.zeros(2, 30, dtype=torch.bool)
    held[:, 5:10] = True
    weight = torch.zeros(2, 30)
    weight[:, :5] = 1 / 5
    model = SSobGNN(4, 8, 3, num_layers=3, alpha=2, dropout=0.5, self_branch=True)
    return model, (x, SobolevOperators(graph, 2, 1.0)), Task(target, weight, held)


def test_with_keyed_dropout_a_member_does_not_depend_on_its_company(graph30):
    model, inputs, task = graph_problem(graph30)
    schedule = Schedule(epochs=15, patience=None)
    together = train_members(model, inputs, task, [1, 2], schedule)
    second = Task(task.target, task.train_weight[1:], task.validation[1:])
    alone = train_members(model, inputs, second, [2], schedule)
    for name, value in alone.parameters.items():
        torch.testing.assert_close(value[0], together.parameters[name][1], atol=1e-5, rtol=1e-4)


def test_training_on_the_receptive_field_is_training_on_the_whole_graph(graph30):
    model, (x, operators), task = graph_problem(graph30)
    schedule = Schedule(epochs=15, patience=None)
    whole = train_members(model, (x, operators), task, [1, 2], schedule)
    index = torch.arange(10)
    field = operators.receptive_field(index, 3)
    part = Task(task.target[index], task.train_weight[:, index], task.validation[:, index])
    partly = train_members(model, (x[field[0].columns], operators), part, [1, 2], schedule, keywords={"rows": field})
    for name, value in partly.parameters.items():
        torch.testing.assert_close(value, whole.parameters[name], atol=1e-5, rtol=1e-4)


def test_an_interrupted_training_goes_on_to_the_same_bits(graph30, tmp_path):
    model, inputs, task = graph_problem(graph30)
    schedule = Schedule(epochs=20, evaluate_every=2, patience=None)
    whole = train_members(model, inputs, task, [1, 2], schedule)
    keep = FileCheckpoint(tmp_path / "state.safetensors")
    train_members(model, inputs, task, [1, 2], schedule, checkpoint=keep, progress=lambda done: done.epoch >= 8)
    resumed = train_members(model, inputs, task, [1, 2], schedule, checkpoint=keep)
    for name, value in resumed.parameters.items():
        assert torch.equal(value, whole.parameters[name])
    for name, curve in resumed.history.items():
        assert torch.equal(curve, whole.history[name])


def test_a_checkpoint_of_another_training_is_refused(graph30, tmp_path):
    model, inputs, task = graph_problem(graph30)
    keep = FileCheckpoint(tmp_path / "state.safetensors")
    train_members(model, inputs, task, [1, 2], Schedule(epochs=2), checkpoint=keep)
    wider = SSobGNN(4, 9, 3, num_layers=3, alpha=2, self_branch=True)
    with pytest.raises(ValueError, match="The checkpoint is of another training"):
        train_members(wider, inputs, task, [1, 2], Schedule(epochs=2), checkpoint=keep)


def test_a_damaged_checkpoint_is_one_clear_error(tmp_path):
    path = tmp_path / "state.safetensors"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="is not a readable checkpoint"):
        FileCheckpoint(path).load()
