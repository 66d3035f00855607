"""The state of a training in one safetensors file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from sobgnn.runtime.files import atomic_file


class FileCheckpoint:
    """Keeps a training's state in a file: written to a temporary name, flushed, then renamed.

    Args:
        path: The file.
        writer: Whether this process writes; of several ranks, whose states are equal, only one does.
    """

    def __init__(self, path: str | Path, *, writer: bool = True) -> None:
        self.path = Path(path)
        self.writer = writer

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
        """Save the state."""
        from safetensors.torch import save

        if not self.writer:
            return
        data = save({name: tensor.contiguous().cpu() for name, tensor in state.items()})
        with atomic_file(self.path) as file:
            file.write(data)
