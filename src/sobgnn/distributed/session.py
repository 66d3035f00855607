"""The processes that train together: joining them, adding up over them, and losing one of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

# How long a rank waits for a silent one. A rank that dies is noticed at once; this is for one that hangs.
TIMEOUT = timedelta(minutes=10)


class LostRankError(RuntimeError):
    """Another rank is gone, so this one cannot go on."""


def num_ranks() -> int:
    """Processes that take part: those of the process group, or of torchrun where none is set up yet; else 1."""
    if not dist.is_available():
        return 1
    if dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


@contextmanager
def joined(device: torch.device | None = None) -> Iterator[torch.device]:
    """Within, this process is one of torchrun's ranks; gives the device it computes on.

    gloo on CPUs, NCCL on GPUs, one GPU per local rank. A process group that is there already is used and left.

    Raises:
        LostRankError: A collective failed because another rank ended.
    """
    if device is None:
        local = int(os.environ.get("LOCAL_RANK", "0"))
        device = torch.device("cuda", local) if torch.cuda.is_available() else torch.device("cpu")
    own = not dist.is_initialized()
    if own:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        yield device
    except RuntimeError as error:
        # gloo and NCCL tell a closed connection from other errors in words only.
        words = ("Connection closed", "Connection reset", "Broken pipe", "NCCL", "Timed out", "gloo")
        if any(word in str(error) for word in words) and not isinstance(error, LostRankError):
            first = str(error).splitlines()[0][:160]
            raise LostRankError(
                f"Rank {os.environ.get('RANK', '?')} lost another rank ({first}). Start the same command again: "
                "training goes on from its last checkpoint."
            ) from None
        raise
    finally:
        if own and dist.is_initialized():
            dist.destroy_process_group()


def sum_over_ranks(tensors: Sequence[Tensor]) -> None:
    """Add up tensors over all ranks, in place, in one message."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    dist.all_reduce(flat)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def gather_rows(own: Tensor, counts: Sequence[int]) -> Tensor:
    """Every rank's rows [n_r, ...], one rank after another, on all of them: [sum of counts, ...]."""
    parts = [own.new_empty((count, *own.shape[1:])) for count in counts]
    longest = max(counts)
    padded = own.new_zeros((longest, *own.shape[1:]))
    padded[: len(own)] = own
    filled = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(filled, padded)
    for part, rows in zip(parts, filled, strict=True):
        part.copy_(rows[: len(part)])
    return torch.cat(parts)
