"""Memory of this library for CuPy: its arrays come from a stack.

>>> import alluvion, alluvion.cupy  # doctest: +SKIP
>>> alluvion.cupy.install(alluvion.resource("stats | auto"))  # doctest: +SKIP

What cuFFT, cuDSS and other libraries under CuPy allocate for themselves does not come here. CuPy is needed to call `install`, and not to
import this module.
"""

from __future__ import annotations

from typing import Any

from alluvion._alluvion import CupyAllocator as Allocator


def install(resources: Any = None) -> Allocator:
    """Makes CuPy allocate from a resource, from a stack for each device, or from what is current.

    `cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)` ends it: arrays that are out give their memory back to where it came
    from.
    """
    import cupy

    allocator = Allocator(resources)
    cupy.cuda.set_allocator(allocator)
    return allocator


__all__ = ["Allocator", "install"]
