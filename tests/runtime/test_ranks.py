import numpy as np
import pytest
import torch

from sobgnn.distributed import alone, num_ranks
from sobgnn.runtime.ranks import Ranks, check_same, joined, taking_part


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_parts_cover_all_rows_once(size: int) -> None:
    parts = [Ranks(rank, size).part(10) for rank in range(size)]
    assert [row for part in parts for row in range(part.start, part.stop)] == list(range(10))


def test_one_rank_keeps_everything_as_it_is() -> None:
    ranks, rows = Ranks(), torch.arange(6.0).view(3, 2)
    ranks.sum((rows,))
    assert torch.equal(ranks.complete(rows), torch.arange(6.0).view(3, 2))
    assert torch.equal(ranks.versions(rows), rows.unsqueeze(0))
    assert ranks.all("a") == ["a"]
    assert ranks.first("a") == "a"
    check_same(np.zeros((3, 2)), np.zeros(3, np.int64), "", ranks)
    assert ranks.bytes_sent == 0

    def hook(seen: object) -> bool:
        return True

    assert ranks.decide(hook) is hook


def test_without_torchrun_there_is_one_rank_and_no_process_group() -> None:
    assert num_ranks() == 1
    with taking_part("cpu") as ranks:
        assert ranks.size == 1
        assert not torch.distributed.is_initialized()


def test_a_script_under_torchrun_can_work_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert num_ranks() == 4
    with alone():
        assert num_ranks() == 1
    assert num_ranks() == 4


def test_joining_leaves_nothing_behind_and_can_be_nested_and_repeated() -> None:
    for _ in range(2):
        with joined("cpu") as outer, joined("cpu") as inner:
            assert inner is outer
            assert torch.distributed.is_initialized()
        assert not torch.distributed.is_initialized()
