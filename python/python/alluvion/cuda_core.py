"""Memory of this library for `cuda.core`, NVIDIA's Python interface to CUDA.

`MemoryResource(resource)` is a `cuda.core.MemoryResource` over a memory resource of this library:

>>> from cuda.core import Device  # doctest: +SKIP
>>> import alluvion.cuda_core  # doctest: +SKIP
>>> Device().memory_resource = alluvion.cuda_core.MemoryResource()  # doctest: +SKIP
>>> buffer = Device().allocate(1 << 20, stream=Device().default_stream)  # doctest: +SKIP

The class is made when it is asked for, so that this module is imported without `cuda.core`.
"""

from __future__ import annotations

from typing import Any

from alluvion import current_device, current_resource
from alluvion.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

#: What the sources of memory that the host can reach are called where a stack is printed, and whether that memory is managed.
_REACHED_BY_HOST = {
    "Managed": True,
    "CudaAsyncManaged": True,
    "Pinned": False,
    "System": False,
}


def _source_of(resource: Any) -> str:
    """The name of the innermost layer of a stack: what comes last where it is printed."""
    return repr(resource).rsplit("|", 1)[-1].strip().split("(", 1)[0].split(" ", 1)[0]


def _make() -> type:
    from cuda.core import Buffer
    from cuda.core import MemoryResource as Base

    class MemoryResource(Base):
        """A memory resource of this library, for `cuda.core`: the given one, or the one that is current now."""

        def __init__(self, resource: Any = None) -> None:
            self._resource = current_resource() if resource is None else resource
            self._device_id = current_device()
            source = _source_of(self._resource)
            self._is_host_accessible = source in _REACHED_BY_HOST
            self._is_managed = _REACHED_BY_HOST.get(source, False)

        def allocate(self, size: int, *, stream: Any = None) -> Any:
            """Allocates `size` bytes on `stream`, the default stream without one."""
            ours = _stream_of(stream)
            address = self._resource.allocate(size, ours)
            try:
                return Buffer.from_handle(address, size, mr=self, stream=stream)
            except BaseException:
                self._resource.deallocate(address, size, ours)
                raise

        def deallocate(self, ptr: Any, size: int, *, stream: Any = None) -> None:
            """Gives the block at `ptr` back, behind the work on `stream`, which its allocation and its uses come before."""
            self._resource.deallocate(int(ptr), size, _stream_of(stream))

        @property
        def resource(self) -> Any:
            """The memory resource of this library."""
            return self._resource

        @property
        def is_device_accessible(self) -> bool:
            """Kernels can use the memory."""
            return True

        @property
        def is_host_accessible(self) -> bool:
            """Whether the host can use the addresses."""
            return self._is_host_accessible

        @property
        def is_managed(self) -> bool:
            """Whether the memory moves between devices and the host."""
            return self._is_managed

        @property
        def device_id(self) -> int:
            """The number of the device."""
            return self._device_id

        def __repr__(self) -> str:
            return f"MemoryResource({self._resource!r})"

    MemoryResource.__module__ = __name__
    MemoryResource.__qualname__ = "MemoryResource"
    return MemoryResource


def _stream_of(stream: Any) -> Stream:
    if stream is None:
        return DEFAULT_STREAM
    # A builder of a graph stands for the stream that it records.
    if not hasattr(stream, "__cuda_stream__") and hasattr(stream, "stream"):
        stream = stream.stream
    return Stream(stream)


def __getattr__(name: str) -> Any:
    if name != "MemoryResource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _make()
    return made


__all__ = ["MemoryResource"]
