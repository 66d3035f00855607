"""A local page for labeling, while the model keeps learning: `sobgnn label DATA`, or :func:`label` in a notebook.

Needs the extra ``label`` (starlette and uvicorn), which is imported when a page is opened.
"""

from __future__ import annotations

from typing import Any

__all__ = ["label", "open_page"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sobgnn.labeling' has no attribute {name!r}")
    try:
        from sobgnn.labeling import launch
    except ModuleNotFoundError as error:
        needed = (error.name or "").partition(".")[0]
        if needed not in ("starlette", "uvicorn"):
            raise
        raise ValueError(f"Labeling needs {needed}, which is not installed: pip install 'sobgnn[label]'.") from None
    return getattr(launch, name)
