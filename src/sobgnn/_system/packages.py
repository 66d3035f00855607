"""Optional packages, and whether they are there."""

from __future__ import annotations

import importlib.util


def installed(package: str) -> bool:
    """Whether a package can be imported; it is not imported to find out."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):  # an import hook refuses it, or a stand-in without a spec takes its place
        return False
