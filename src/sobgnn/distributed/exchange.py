"""The rows a rank needs from others, fetched by a plan made once; gradients are sent back the same way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor


class Exchange:
    """Gathers halo rows: [n, ...] on every rank to [n + halo, ...], its own rows first.

    It is built by all ranks together, is differentiable, and can be mapped over members (vmap).

    Args:
        halo: int64 [halo], sorted positions of other ranks' rows that this rank reads.
        bounds: int64 [ranks+1], the positions each rank holds.
        device: Device of the rows.
        group: Process group; the default one if left out.
    """

    def __init__(
        self,
        halo: npt.NDArray[np.int64],
        bounds: npt.NDArray[np.int64],
        device: torch.device | str = "cpu",
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.group = group
        ranks, rank = dist.get_world_size(group), dist.get_rank(group)
        owner = np.searchsorted(bounds, halo, side="right") - 1
        wanted = np.bincount(owner, minlength=ranks)
        counts = torch.empty(ranks, dtype=torch.int64, device=device)
        dist.all_to_all_single(counts, torch.from_numpy(wanted).to(device), group=group)
        self.receive_counts: list[int] = wanted.tolist()
        self.send_counts: list[int] = counts.tolist()
        asked = torch.empty(sum(self.send_counts), dtype=torch.int64, device=device)
        request = torch.from_numpy(halo - bounds[owner]).to(device)
        dist.all_to_all_single(asked, request, self.send_counts, self.receive_counts, group=group)
        self.send_index = asked
        self.num_own = int(bounds[rank + 1] - bounds[rank])
        self.num_halo = len(halo)
        self.bytes_sent = 0

    def __call__(self, x: Tensor) -> Tensor:
        """Own rows x [n, ...] to own and halo rows [n + halo, ...]."""
        gathered: Tensor = _Gather.apply(x, self)  # type: ignore[no-untyped-call]
        return gathered

    def fetch(self, x: Tensor) -> Tensor:
        """Halo rows [halo, ...] of all ranks' x."""
        send = x[self.send_index]
        received = x.new_empty((self.num_halo, *x.shape[1:]))
        self._all_to_all(received, send, self.receive_counts, self.send_counts)
        return received

    def add_back(self, own: Tensor, halo: Tensor) -> Tensor:
        """The adjoint of gathering: what others hold for this rank's rows is added to ``own`` [n, ...]."""
        received = own.new_empty((len(self.send_index), *own.shape[1:]))
        self._all_to_all(received, halo.contiguous(), self.send_counts, self.receive_counts)
        # index_put_ sorts before it adds, so the order of summation is fixed on CUDA too.
        return own.clone().index_put_((self.send_index,), received, accumulate=True)

    def _all_to_all(self, out: Tensor, send: Tensor, out_counts: list[int], send_counts: list[int]) -> None:
        self.bytes_sent += send.numel() * send.element_size()
        dist.all_to_all_single(out, send, out_counts, send_counts, group=self.group)


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, exchange: Exchange) -> Tensor:
        return torch.cat([x, exchange.fetch(x.contiguous())])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Exchange], output: Tensor) -> None:
        ctx.exchange = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        exchange: Exchange = ctx.exchange
        return exchange.add_back(grad[: exchange.num_own], grad[exchange.num_own :]), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None], x: Tensor, exchange: Exchange) -> tuple[Tensor, int]:
        # Members are sent side by side in one message.
        return exchange(x.movedim(in_dims[0], 1)), 1
