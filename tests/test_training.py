"""Trainings are compared in float64: Adam turns a rounding of float32 into a step, and processors round differently."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from sobgnn import SobolevOperators, SSobGNN
from sobgnn.training import Progress, Schedule, Task, initial_parameters, predict_members, train_members

pytestmark = pytest.mark.trains


class Linear(nn.Module):
    """Logits x W; no dropout, so that nothing but the seed is random."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 3, dtype=torch.float64))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def problem(members: int, validation: bool = True) -> tuple[Tensor, Task]:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(40, 4, generator=draw, dtype=torch.float64)
    target = (x @ torch.randn(4, 3, generator=draw, dtype=torch.float64)).argmax(dim=1)
    held = torch.zeros(members, 40, dtype=torch.bool)
    for member in range(members):
        held[member, member::4] = True
    weight = (~held).double()
    return x, Task(target, weight / weight.sum(dim=1, keepdim=True), held if validation else None)


def assert_same(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-10)


def test_steps_are_those_of_torchs_adam_on_the_weighted_cross_entropy_with_each_members_rates():
    x, task = problem(2, validation=False)
    rates, decays = [0.1, 0.003], [0.01, 0.0]
    got = train_members(Linear(), (x,), task, [7, 8], Schedule(7, rates, decays))
    for member, (lr, decay) in enumerate(zip(rates, decays, strict=True)):
        weight = initial_parameters(Linear(), [7 + member], torch.device("cpu"))["weight"][0].requires_grad_()
        optimizer = torch.optim.Adam([weight], lr=lr, weight_decay=decay)
        for _ in range(7):
            optimizer.zero_grad()
            losses = torch.nn.functional.cross_entropy(x @ weight, task.target, reduction="none")
            (losses * task.train_weight[member]).sum().backward()
            optimizer.step()
        # The loop keeps its learning rate and decay in float32.
        torch.testing.assert_close(got.parameters["weight"][member], weight.detach(), rtol=0, atol=1e-6)


def test_predictions_leave_the_mode_of_every_part_of_the_model():
    x, task = problem(1)
    got = train_members(Linear(), (x,), task, [7], Schedule(epochs=1))
    model = Linear()
    model.part = torch.nn.Dropout().eval()
    predict_members(model.train(False), got.parameters, (x,))
    assert not model.training
    model.training = True
    predict_members(model, got.parameters, (x,))
    assert model.training
    assert not model.part.training


def test_the_weights_kept_are_the_best_on_held_out_rows():
    x, task = problem(4)
    got = train_members(Linear(), (x,), task, [1, 2, 3, 4], Schedule(60, lr=0.3, weight_decay=0.0, patience=None))
    logits = predict_members(Linear(), got.parameters, (x,))
    for member in range(4):
        held = task.validation[member]
        accuracy = (logits[member, held].argmax(dim=1) == task.target[held]).float().mean()
        curve = got.history["validation_accuracy"][:, member]
        assert curve[int(got.best_epoch[member]) - 1] == curve.max()
        assert accuracy == pytest.approx(float(got.validation_accuracy[member]))


def test_patience_ends_training_that_many_steps_after_the_last_member_s_best_one():
    x, task = problem(2)
    short = train_members(Linear(), (x,), task, [1, 2], Schedule(epochs=5000, lr=0.5, patience=10))
    assert short.epochs == int(short.best_epoch.max()) + 10 < 5000


def test_a_member_whose_patience_ended_keeps_its_weights_while_others_train_on():
    x, task = problem(2)
    rates, alone_task = [0.5, 0.01], Task(task.target, task.train_weight[:1], task.validation[:1])
    both = train_members(Linear(), (x,), task, [1, 2], Schedule(300, rates, 0.0, patience=1))
    alone = train_members(Linear(), (x,), alone_task, [1], Schedule(300, rates[:1], 0.0, patience=1))
    assert alone.epochs < both.epochs
    assert int(both.best_epoch[0]) == int(alone.best_epoch[0])
    assert_same(both.parameters["weight"][:1], alone.parameters["weight"])


def test_a_hook_ends_training_at_once():
    x, task = problem(2)
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
    start, second = (initial_parameters(model, seeds, x.device)["convs.0.weight"] for seeds in ([1, 2], [2]))
    assert torch.equal(start[1], second[0])  # by its seed alone
    assert not torch.equal(start[0], start[1])


def test_what_does_not_fit_the_members_is_one_line():
    x, task = problem(2)
    with pytest.raises(ValueError, match="one row per seed"):
        train_members(Linear(), (x,), task, [1], Schedule(epochs=1))
    with pytest.raises(ValueError, match="`lr` must be a number or have one entry per member, but got 3 for 2"):
        train_members(Linear(), (x,), task, [1, 2], Schedule(epochs=1, lr=[0.1, 0.2, 0.3]))


def test_members_that_stop_together_keep_the_step_that_is_best_on_average():
    x, task = problem(4)
    task.validation[2:] = False  # two members without held-out rows
    schedule = Schedule(epochs=60, lr=0.3, weight_decay=0.0, patience=None, shared_early_stopping=True)
    got = train_members(Linear(), (x,), task, [1, 2, 3, 4], schedule)
    loss, accuracy = (got.history[f"validation_{score}"][:, 0] for score in ("loss", "accuracy"))
    best = max(range(60), key=lambda step: (accuracy[step], -loss[step]))
    assert set(got.best_epoch.tolist()) == {best + 1}
    fixed = Task(task.target, task.train_weight)  # held-out rows choose the step and train nothing
    again = train_members(Linear(), (x,), fixed, [1, 2, 3, 4], Schedule(int(got.best_epoch[0]), 0.3, 0.0))
    assert_same(again.parameters["weight"], got.parameters["weight"])


def graph_problem(graph) -> tuple[SSobGNN, tuple[Tensor, SobolevOperators], Task]:
    """Two members in float64. Nodes 0-9 train and validate them: the longer they learn, the better they score."""
    draw = torch.Generator().manual_seed(2)
    target = torch.arange(30) % 3
    x = torch.randn(30, 4, generator=draw, dtype=torch.float64)
    x += 2 * torch.eye(3, 4, dtype=torch.float64)[target]
    held = torch.zeros(2, 30, dtype=torch.bool)
    held[:, :10] = True
    weight = torch.zeros(2, 30, dtype=torch.float64)
    weight[:, :10] = 1 / 10
    model = SSobGNN(4, 8, 3, num_layers=3, alpha=2, dropout=0.3, self_branch=True).double()
    return model, (x, SobolevOperators(graph, 2, 1.0)), Task(target, weight, held)


def moved(parameters: dict[str, Tensor], model: nn.Module, seeds: list[int]) -> float:
    """How far the furthest weight has come from where it started."""
    start = initial_parameters(model, seeds, torch.device("cpu"))
    return max(float((value - start[name]).abs().max()) for name, value in parameters.items())


def test_with_keyed_dropout_a_member_does_not_depend_on_its_company(graph30):
    model, inputs, task = graph_problem(graph30)
    schedule = Schedule(epochs=15)
    both = Task(task.target, task.train_weight)  # no validation: the weights are those of the last step
    together = train_members(model, inputs, both, [1, 2], schedule)
    alone = train_members(model, inputs, Task(task.target, task.train_weight[1:]), [2], schedule)
    assert moved(alone.parameters, model, [2]) > 0.05
    for name, value in alone.parameters.items():
        assert_same(value[0], together.parameters[name][1])
    other = train_members(model, inputs, Task(task.target, task.train_weight[1:]), [3], schedule)
    assert not torch.allclose(other.parameters["convs.0.weight"], alone.parameters["convs.0.weight"], atol=1e-3)


def test_training_on_the_receptive_field_is_training_on_the_whole_graph(graph30):
    model, (x, operators), task = graph_problem(graph30)
    schedule = Schedule(epochs=15)
    whole = train_members(model, (x, operators), Task(task.target, task.train_weight), [1, 2], schedule)
    index = torch.arange(10)
    field = operators.receptive_field(index, 3)
    part = Task(task.target[index], task.train_weight[:, index])
    partly = train_members(model, (x[field[0].columns], operators), part, [1, 2], schedule, keywords={"rows": field})
    assert moved(partly.parameters, model, [1, 2]) > 0.05
    for name, value in partly.parameters.items():
        assert_same(value, whole.parameters[name])
