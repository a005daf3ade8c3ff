"""For workers of Dask: `dask worker --preload alluvion.rapids.preload` makes RMM allocate from a stack of this library.

The environment variable `ALLUVION_RESOURCE` has the recipe, and `auto` is it without. Each worker has one, for its first device: those of
`dask cuda worker` see no other first. Leave out that command's own options for RMM.
"""

from __future__ import annotations

import os
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called by Dask when the worker starts, before its first task."""
    from alluvion import current_device
    from alluvion.rapids import install

    install(os.environ.get("ALLUVION_RESOURCE") or "auto", [current_device()])


__all__ = ["dask_setup"]
