"""Memory of this library for nvmath-python: workspaces come from a stack.

>>> import alluvion, alluvion.nvmath, nvmath  # doctest: +SKIP
>>> allocator = alluvion.nvmath.Allocator(alluvion.resource("stats | auto"))  # doctest: +SKIP
>>> nvmath.linalg.advanced.matmul(a, b, options={"allocator": allocator})  # doctest: +SKIP

What cuBLAS and cuFFT allocate within their handles does not come here. nvmath is needed to allocate, and not to import this module.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from alluvion._door import Resources, resource_of
from alluvion.rmm.pylibrmm.stream import Stream

if TYPE_CHECKING:
    import nvmath


class Allocator:
    """A memory manager of nvmath's asynchronous protocol, over one resource, a stack for each device (`alluvion.per_device`), or what
    is current. It goes into `options={"allocator": …}` of an operation of nvmath.
    """

    def __init__(self, resources: Resources = None) -> None:
        self._resources = resources

    def memalloc_async(self, size: int, stream: Any) -> nvmath.memory.MemoryPointer:
        """Allocates `size` bytes on a stream of `cuda.core`. They go back behind the work on that stream, with the pointer."""
        from nvmath.memory import MemoryPointer

        resource = resource_of(self._resources, stream.device.device_id)
        # The stream lives as long as a block of it is out.
        ours = Stream(stream)
        address = resource.allocate(size, ours)
        return MemoryPointer(address, size, partial(resource.deallocate, address, size, ours))


__all__ = ["Allocator"]
