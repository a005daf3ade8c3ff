"""Memory of this library for NVIDIA Warp: its arrays come from a stack.

>>> import alluvion, alluvion.warp  # doctest: +SKIP
>>> alluvion.warp.install(alluvion.resource("stats | auto"))  # doctest: +SKIP

What Warp's native code allocates for itself (sorting, hash grids, volumes) does not come here. Warp is needed to call `install`, and
not to import this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alluvion import current_device
from alluvion._door import Resources, resource_of

if TYPE_CHECKING:
    import warp


class Allocator:
    """An allocator of Warp's protocol, over one resource, a stack for each device (`alluvion.per_device`), or what is current.

    An array is allocated on the stream that is current in Warp on its device. Its memory goes back on the same stream, behind the
    work that the stream which is current when the array goes has been given by then.

    While Warp records a graph nothing waits for another stream. The memory of arrays that are made and dropped within it is taken for
    free then, and given to others: make what a graph uses before it is recorded, and keep it as long as the graph.
    """

    #: A free here needs no context of Warp's, which then sets none.
    deallocate_requires_context_guard = False

    def __init__(self, resources: Resources = None) -> None:
        import warp

        self._warp = warp
        self._resources = resources
        self._live: dict[int, tuple[Any, warp.Stream]] = {}
        #: What Warp calls plain memory of a device.
        self.memory_kind = warp.MemoryKind.CUDA_DEVICE

    def allocate(self, size_in_bytes: int) -> int:
        """Allocates so many bytes on the current device, which Warp has made that of the array."""
        device = current_device()
        resource = resource_of(self._resources, device)
        stream = self._warp.get_cuda_device(device).stream
        address: int = resource.allocate(size_in_bytes, stream)
        if address:
            self._live[address] = (resource, stream)
        return address

    def deallocate(self, ptr: int, size_in_bytes: int) -> None:
        """Gives a block back."""
        if not ptr:
            return
        resource, stream = self._live[ptr]
        device = stream.device
        now = device.stream
        # A wait would make the one stream a part of what the other records. A device knows of captures that Warp has begun and of
        # the stream that is current, and of none that somebody else has begun on the block's own.
        if now is not stream and not stream.is_capturing and not device.is_capturing:
            stream.wait_stream(now)
        # After the wait, which may raise and leaves the block here. Before the free: another thread may get the same address.
        del self._live[ptr]
        resource.deallocate(ptr, size_in_bytes, stream)

    def live_blocks(self) -> int:
        """How many blocks Warp has."""
        return len(self._live)


def install(resources: Resources = None, device: Any = None) -> Allocator:
    """Makes Warp allocate from a resource, from a stack for each device, or from what is current: on all devices of CUDA, or on one.

    `warp.set_cuda_allocator(None)` ends it: arrays that are out give their memory back to where it came from.
    """
    import warp

    warp.init()
    allocator = Allocator(resources)
    if device is None:
        warp.set_cuda_allocator(allocator)
    else:
        warp.set_device_allocator(device, allocator)
    return allocator


__all__ = ["Allocator", "install"]
