"""Ranks, the processes that share work: joining them, dividing work, and detecting one that exits."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor

# How long a rank waits for a silent one. A rank that dies is detected at once; this is for one that hangs.
TIMEOUT = timedelta(minutes=10)
# Rows travel in messages of at most this many bytes.
_MESSAGE = 2**27

_left_out: ContextVar[bool] = ContextVar("left_out", default=False)
_joined: ContextVar[Ranks | None] = ContextVar("joined", default=None)
# Every join uses its own names in torchrun's store: names of an earlier join point to closed connections.
_joinings = itertools.count()


class LostRankError(RuntimeError):
    """Another rank has exited, so this one cannot continue."""


def num_ranks() -> int:
    """Number of participating processes: of the process group, or of torchrun if none is set up yet; otherwise 1."""
    if not dist.is_available() or _left_out.get():
        return 1
    if dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


@contextmanager
def alone() -> Iterator[None]:
    """Let this process work alone in the block, for a script under torchrun that fits on only one of its ranks."""
    token = _left_out.set(True)
    try:
        yield
    finally:
        _left_out.reset(token)


class Ranks:
    """Processes that all hold the same input and divide the work on it; a single process is the case ``size`` = 1.

    Every method is called by all ranks together; with one rank none of them does anything.

    Attributes:
        rank: Number of this rank, from 0.
        size: Number of ranks.
        device: Device of this rank.
        bytes_sent: Bytes sent by this rank so far.
    """

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.rank, self.size, self.device, self.group = rank, size, torch.device(device), group
        self.bytes_sent = 0

    def __repr__(self) -> str:
        return f"Ranks({self.rank} of {self.size}, {self.device})"

    @property
    def speaks(self) -> bool:
        """Whether this rank prints and warns: rank 0 does, for all."""
        return self.rank == 0

    def bounds(self, count: int) -> list[int]:
        """Where each rank's part of ``count`` rows starts, and where the last one ends, [size + 1]."""
        return [count * rank // self.size for rank in range(self.size + 1)]

    def part(self, count: int) -> slice:
        """This rank's part of ``count`` rows."""
        bounds = self.bounds(count)
        return slice(bounds[self.rank], bounds[self.rank + 1])

    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Sum tensors of one dtype over all ranks, in place, in one message."""
        if self.size == 1:
            return
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        self.bytes_sent += flat.numel() * flat.element_size()
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view_as(tensor))

    def complete(self, rows: Tensor, bounds: Sequence[int] | None = None) -> Tensor:
        """Complete rows [n, ...], of which each rank has computed its part, with all parts, in place.

        Args:
            rows: Contiguous.
            bounds: Where the parts start; default: those of :meth:`bounds`.
        """
        if self.size == 1:
            return rows
        bounds = self.bounds(len(rows)) if bounds is None else bounds
        step = max(1, _MESSAGE // max(1, rows[:1].numel() * rows.element_size()))
        for source in range(self.size):
            for start in range(bounds[source], bounds[source + 1], step):
                message = rows[start : min(start + step, bounds[source + 1])]
                dist.broadcast(message, group_src=source, group=self.group)
                self.bytes_sent += (source == self.rank) * message.numel() * message.element_size()
        return rows

    def versions(self, rows: Tensor) -> Tensor:
        """Every rank's version of the rows that are this rank's part: from [n, ...] to [size, part, ...]."""
        if self.size == 1:
            return rows.unsqueeze(0)
        bounds = self.bounds(len(rows))
        counts = [stop - start for start, stop in itertools.pairwise(bounds)]
        own = counts[self.rank]
        out = rows.new_empty((self.size * own, *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), [own] * self.size, counts, group=self.group)
        self.bytes_sent += (len(rows) - own) * rows[:1].numel() * rows.element_size()
        return out.view(self.size, own, *rows.shape[1:])

    def wait(self) -> None:
        """Wait for all ranks."""
        if self.size > 1:
            dist.barrier(self.group)

    def decide(self, hook: Callable[[Any], bool | None] | None) -> Callable[[Any], bool | None] | None:
        """A hook for all ranks that calls rank 0's ``hook``, and returns its answer on all."""
        if self.size == 1:
            return hook
        if not self.first(hook is not None):
            return None
        return lambda seen: bool(self.first(bool(hook(seen)) if hook is not None and self.speaks else None))

    def all(self, value: Any) -> list[Any]:
        """Every rank's value, in order; for small JSON values: they are sent as JSON, never as a pickle."""
        if self.size == 1:
            return [value]
        text = json.dumps(value).encode()
        lengths = torch.zeros(self.size, dtype=torch.int64)
        lengths[self.rank] = len(text)
        dist.all_reduce(lengths, group=self.group)
        texts = torch.zeros((self.size, int(lengths.max())), dtype=torch.uint8)
        texts[self.rank, : len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        dist.all_reduce(texts, group=self.group)
        return [json.loads(bytes(row[:length].tolist())) for row, length in zip(texts, lengths.tolist(), strict=True)]

    def first(self, value: Any) -> Any:
        """Rank 0's value."""
        return self.all(value if self.rank == 0 else None)[0]


def check_same(X: Any, codes: npt.NDArray[np.int64], settings: str, ranks: Ranks) -> None:
    """Raise if points [N, F] (some rows are checked), labels [N] or settings differ from those of other ranks.

    Args:
        X: Points.
        codes: Labels.
        settings: A fingerprint of everything else that must be the same.
        ranks: The participating ranks.
    """
    some = X[np.linspace(0, X.shape[0] - 1, min(X.shape[0], 1000)).astype(np.int64)]
    digest = hashlib.sha256(codes.tobytes())
    for part in (some.data, some.indices) if hasattr(some, "indptr") else (some,):
        digest.update(np.ascontiguousarray(part).tobytes())
    seen = ranks.all([list(X.shape), digest.hexdigest(), settings])
    if any(other[2] != seen[0][2] for other in seen):
        raise ValueError(
            "Every rank must fit with the same parameters and graph, but they differ: ranks share the work of one fit."
        )
    if any(other != seen[0] for other in seen):
        shapes = ", ".join(str(tuple(shape)) for shape, *_ in seen)
        raise ValueError(
            f"Every rank must fit the same points and labels, but they differ (shapes {shapes}). Give all ranks the "
            "whole data; they divide the work themselves."
        )


def check_device(device: torch.device | str | None) -> None:
    """Raise if torch has no such device; ``None`` and ``"auto"`` are always valid."""
    if device is None or (isinstance(device, str) and device == "auto"):
        return
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise ValueError(f"There is no device {device!r:.60} here. Try 'cpu', or leave it out.") from None


@contextmanager
def taking_part(device: torch.device | str) -> Iterator[Ranks]:
    """Make this process one of torchrun's ranks in the block, if there are several; otherwise it works alone."""
    if num_ranks() == 1:
        yield Ranks(device=device)
        return
    with joined(device) as ranks:
        yield ranks


@contextmanager
def joined(device: torch.device | str | None = None) -> Iterator[Ranks]:
    """Provide a process group of torchrun's ranks in the block, or of only this process without torchrun.

    It uses gloo on CPUs, NCCL on GPUs, and one GPU per local rank. An existing process group is left unchanged.
    Warnings of ranks other than the first are suppressed.

    Args:
        device: Device to compute on; ``"cuda"`` is the local rank's GPU. ``None``: a GPU if there is one.

    Raises:
        LostRankError: A collective failed because another rank ended.
    """
    current = _joined.get()
    if current is not None:
        yield current
        return
    device = _place(device)
    ranks, own = _join(device)
    token = _joined.set(ranks)
    try:
        with ExitStack() as stack:
            if not ranks.speaks:
                stack.enter_context(warnings.catch_warnings())
                warnings.simplefilter("ignore")
            yield ranks
            # All together: gloo may end a rank whose peer has already closed its connection.
            ranks.wait()
    except RuntimeError as error:
        # gloo and NCCL distinguish a closed connection from other errors only by the message.
        words = ("Connection closed", "Connection reset", "Broken pipe", "NCCL", "Timed out", "gloo")
        if any(word in str(error) for word in words) and not isinstance(error, LostRankError):
            first = str(error).splitlines()[0][:160]
            raise LostRankError(f"Rank {ranks.rank} lost another rank ({first}). Run it again.") from None
        raise
    finally:
        _joined.reset(token)
        if dist.is_initialized():
            dist.destroy_process_group(None if own else ranks.group)


def _place(device: torch.device | str | None) -> torch.device:
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        if device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    return device


def _join(device: torch.device) -> tuple[Ranks, bool]:
    """The ranks, and whether their process group was created here."""
    # Indices and objects are sent by gloo even if the rows are on GPUs.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    group = None
    own = not dist.is_initialized()
    if not own:
        group = dist.new_group(backend=backend, timeout=TIMEOUT)
    elif dist.is_torchelastic_launched():
        store, rank, size = next(iter(dist.rendezvous("env://", timeout=TIMEOUT)))  # type: ignore[attr-defined]
        store = dist.PrefixStore(f"sobgnn/{next(_joinings)}", store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    else:
        store = dist.HashStore()  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    return Ranks(dist.get_rank(), dist.get_world_size(), device, group), own
