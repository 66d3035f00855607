"""The state of a training in one safetensors file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from sobgnn.runtime.files import atomic_file


class FileCheckpoint:
    """Keeps a training's state in a file: written to a temporary name, flushed, then renamed.

    Args:
        path: The file.
        every: Number of calls between two saves, to spare the disk; steps since the last save are recomputed.
        writer: Whether this process writes; of several ranks, whose states are equal, only one does.
    """

    def __init__(self, path: str | Path, every: int = 1, *, writer: bool = True) -> None:
        self.path = Path(path)
        self.every = every
        self.writer = writer
        self._calls = 0

    def load(self) -> dict[str, Tensor] | None:
        """The state last saved, or ``None``."""
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self.path.exists():
            return None
        try:
            return load_file(self.path)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{self.path} is not a readable checkpoint: {error}. Delete it to start again.") from None

    def save(self, state: dict[str, Tensor]) -> None:
        """Save the state, once in ``every`` calls."""
        from safetensors.torch import save

        self._calls += 1
        if not self.writer or self._calls % self.every:
            return
        data = save({name: tensor.contiguous().cpu() for name, tensor in state.items()})
        with atomic_file(self.path) as file:
            file.write(data)
