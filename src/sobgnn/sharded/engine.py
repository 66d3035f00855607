"""Where steps run: in this process, in a pool of processes, or as tasks of a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

# How often a step is run again whose process died.
_RETRIES = 4


class Engine(Protocol):
    """Runs a step for every argument. Steps leave files, so what an engine returns is small."""

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Positions in ``args`` and results, in the order in which they are done; a step's error is raised."""

    def close(self) -> None:
        """Let go of processes."""


def make_engine(name: str) -> Engine:
    """The engine of a name: "local", "local:4" (processes), "ray", "auto" or "ray://head:10001"."""
    kind, _, rest = name.partition(":")
    if kind == "local" and (not rest or (rest.isdecimal() and int(rest) > 0)):
        return Local() if rest in ("", "1") else Pool(int(rest))
    if name in ("ray", "auto") or name.startswith("ray://"):
        return Ray(None if name == "ray" else name)
    raise ValueError(f'`engine` must be "local", "local:4", "ray", "auto" or "ray://head:10001", but got {name!r}.')


class Local:
    """This process, one step after the other, each with all threads."""

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`."""
        for number, argument in enumerate(args):
            yield number, step(argument)

    def close(self) -> None:
        """Nothing to let go of."""


class Pool:
    """Processes of this machine that share its cores; a step whose process was killed is run again.

    A script that uses it needs ``if __name__ == "__main__":``, as for every new process of Python's.
    """

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self._pool: Any = None

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`."""
        from concurrent.futures import as_completed
        from concurrent.futures.process import BrokenProcessPool

        left = dict(enumerate(args))
        for attempt in range(_RETRIES + 1):
            futures: dict[Any, int] = {}
            try:
                futures = {self._started().submit(step, argument): number for number, argument in left.items()}
                for future in as_completed(futures):
                    result = future.result()
                    del left[futures[future]]
                    yield futures[future], result
                return
            except BrokenProcessPool:
                self._pool = None
                if attempt == _RETRIES:
                    raise ValueError(
                        f"A process was killed {attempt + 1} times, perhaps for want of memory. Use more shards or "
                        "fewer processes; what was finished is kept."
                    ) from None
            except BaseException:
                for future in futures:
                    future.cancel()
                raise

    def _started(self) -> Any:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        if self._pool is None:
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            self._pool = ProcessPoolExecutor(
                self.processes, get_context("spawn"), _begin, (max(1, cores // self.processes),)
            )
        return self._pool

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None


def _begin(threads: int) -> None:
    """Share the cores with the other processes, leave Ctrl-C to the first one, and end where that is killed."""
    import signal
    import threading
    import time

    import torch
    from threadpoolctl import threadpool_limits

    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    threadpool_limits(threads, "blas")


class Ray:
    """Tasks of Ray Core. Only names of files pass through Ray; a task whose worker or node is lost is run again.

    Args:
        address: ``ray://head:10001``, ``"auto"`` for the cluster that this machine belongs to; ``None``: a cluster of
            this machine, unless RAY_ADDRESS names another.
    """

    def __init__(self, address: str | None) -> None:
        try:
            import ray
        except ModuleNotFoundError:
            raise ValueError("Ray is not installed: pip install 'sobgnn[ray]', here and on every machine.") from None
        self._ray, self._own = ray, not ray.is_initialized()
        if self._own:
            try:
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, TimeoutError) as error:
                raise ValueError(
                    f"No Ray cluster at {address or 'this machine'}: {' '.join(str(error).split())}"
                ) from None

    def map(self, step: Callable[[Any], Any], args: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """See :class:`Engine`."""
        ray = self._ray
        task = ray.remote(num_cpus=1, max_retries=_RETRIES, scheduling_strategy="SPREAD")(_call)
        waiting = {task.remote(step, argument): number for number, argument in enumerate(args)}
        try:
            while waiting:
                (done,), _ = ray.wait(list(waiting), num_returns=1)
                yield waiting.pop(done), ray.get(done)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except ray.exceptions.RayError as error:
            raise ValueError(f"Ray gave up: {' '.join(str(error).split())[:300]} What was finished is kept.") from None
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        """Leave the cluster."""
        if self._own:
            self._ray.shutdown()


def _call(step: Callable[[Any], Any], argument: Any) -> Any:
    return step(argument)
