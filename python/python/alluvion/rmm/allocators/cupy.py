"""CuPy's memory from the current resource.

`cupy.cuda.set_allocator(rmm_cupy_allocator)` is all: from then on every array of CuPy comes from the current resource of its
device, on the stream that is current in CuPy. CuPy is needed to call the allocator, and not to import this module.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from alluvion import current_device
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.stream import (
    DEFAULT_STREAM,
    LEGACY_DEFAULT_STREAM,
    PER_THREAD_DEFAULT_STREAM,
    Stream,
)

if TYPE_CHECKING:
    import cupy

_DEFAULT_STREAMS = {0: DEFAULT_STREAM, 1: LEGACY_DEFAULT_STREAM, 2: PER_THREAD_DEFAULT_STREAM}


def _stream_of(foreign: Any) -> Stream:
    """Our stream for one of CuPy's. It keeps CuPy's alive while memory of it is out."""
    return _DEFAULT_STREAMS.get(getattr(foreign, "ptr", None)) or Stream(foreign)


def rmm_cupy_allocator(nbytes: int) -> cupy.cuda.MemoryPointer:
    """Allocates `nbytes` bytes from the current resource, on the stream that is current in CuPy.

    The memory goes back behind the work of that stream, when CuPy drops its last pointer to it.

    >>> import cupy  # doctest: +SKIP
    >>> cupy.cuda.set_allocator(rmm_cupy_allocator)  # doctest: +SKIP
    """
    cupy = sys.modules.get("cupy")
    if cupy is None:
        try:
            import cupy
        except ModuleNotFoundError as missing:
            if missing.name != "cupy":
                raise
            raise ModuleNotFoundError("No module named 'cupy'", name="cupy") from None
    cuda = cupy.cuda
    buffer = DeviceBuffer(size=nbytes, stream=_stream_of(cuda.get_current_stream()))
    # With the device CuPy need not ask the driver, and takes an empty block, too.
    memory = cuda.UnownedMemory(ptr=buffer.ptr, size=buffer.size, owner=buffer, device_id=current_device())
    return cuda.MemoryPointer(memory, 0)


__all__ = ["rmm_cupy_allocator"]
