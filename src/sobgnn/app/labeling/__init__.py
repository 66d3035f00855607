"""A local page for labeling, while the model keeps learning: `sobgnn label DATA`, or :func:`label` in a notebook.

Needs the extra ``label`` (starlette and uvicorn), which is imported when a page is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["label", "open_page"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sobgnn.app.labeling' has no attribute {name!r}")
    try:
        from sobgnn.app.labeling import launch
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed not in ("starlette", "uvicorn"):
            raise
        return _without(needed)
    return getattr(launch, name)


def _without(needed: str) -> Callable[..., Any]:
    """What stands for a function where a package of the extra is missing.

    It raises when it is called and not before: `from sobgnn import *` and `help(sobgnn)` look at every name.
    """

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"Labeling needs {needed}, which is not installed: pip install 'sobgnn[label]'.")

    return missing
