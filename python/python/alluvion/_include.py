"""Where the headers for compiled modules are."""

from __future__ import annotations

from pathlib import Path


def get_include() -> str:
    """The folder to give to a compiler by `-I` for `#include <alluvion/door.h>`: what compiled modules need to allocate from a stack.

    >>> import alluvion, os
    >>> os.path.exists(os.path.join(alluvion.get_include(), "alluvion", "door.h"))
    True
    """
    return str(Path(__file__).parent / "include")


__all__ = ["get_include"]
