"""Numba's device memory from the current resource, by an external memory management plugin.

Before Numba makes its first context, `numba.cuda.set_memory_manager(RMMNumbaManager)`, or the environment variable
`NUMBA_CUDA_MEMORY_MANAGER=rmm.allocators.numba`.

MetaX's port of Numba is a package `numbax`. In a program that has imported it, the manager is one for `numbax`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, MutableMapping
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from alluvion import memory_info
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer

if TYPE_CHECKING:
    from numba.cuda import HostOnlyCUDAMemoryManager, IpcHandle, MemoryInfo, MemoryPointer
    from numba.cuda.cudadrv import driver as _driver
else:
    _cuda = import_module("numbax.cuda" if "numbax" in sys.modules else "numba.cuda")
    HostOnlyCUDAMemoryManager, IpcHandle = _cuda.HostOnlyCUDAMemoryManager, _cuda.IpcHandle
    MemoryInfo, MemoryPointer = _cuda.MemoryInfo, _cuda.MemoryPointer
    _driver = import_module(_cuda.__name__ + ".cudadrv.driver")

try:
    from cuda.bindings.driver import CUdeviceptr as _CUdeviceptr
except ImportError:
    from ctypes import c_uint64 as _CUdeviceptr

#: Numbers below zero, which no address is: the keys of empty blocks, of which several are out at once.
_empty_keys = count(-1, -1)


def _finalizer(key: int, allocations: MutableMapping[int, Any]) -> Callable[[], None]:
    """What Numba calls when the last array over a block is gone."""

    def free() -> None:
        try:
            del allocations[key]
        except KeyError:
            # A reset of the context, and the end of the process, empty the dict first.
            if allocations:
                raise

    return free


class RMMNumbaManager(HostOnlyCUDAMemoryManager):
    """Numba's device memory from the current resource, on the default stream.

    Pinned and mapped memory stays Numba's own.
    """

    def initialize(self) -> None:
        """Nothing: the resource is there already."""

    def memalloc(self, size: int) -> MemoryPointer:
        """Allocates `size` bytes."""
        buffer = DeviceBuffer(size=size)
        address = buffer.ptr
        key = address or next(_empty_keys)
        self.allocations[key] = buffer
        return MemoryPointer(
            self.context, _CUdeviceptr(address), size, finalizer=_finalizer(key, self.allocations)
        )

    def get_ipc_handle(self, memory: MemoryPointer) -> IpcHandle:
        """A handle by which another process maps the driver's allocation that `memory` lies in."""
        base, _ = _driver.device_extents(memory)
        try:
            handle = _driver.driver.cuIpcGetMemHandle(base)
        except _driver.CudaAPIError as error:
            raise RuntimeError(
                f"the driver gives no IPC handle for the allocation at {base:#x}: memory of cudaMallocAsync and mapped "
                f"memory have none, memory of CudaMemoryResource and of a pool over it has one ({error})"
            ) from error
        identity = self.context.device.get_device_identity()
        return IpcHandle(memory, handle, memory.size, identity, offset=int(memory.handle) - int(base))

    def get_memory_info(self) -> MemoryInfo:
        """The free and the total bytes of the context's device."""
        device = getattr(getattr(self.context, "device", None), "id", None)
        free, total = memory_info(device)
        return MemoryInfo(free=free, total=total)

    @property
    def interface_version(self) -> int:
        """The version of Numba's interface for plugins."""
        return 1


#: The name that Numba looks for in the module that `NUMBA_CUDA_MEMORY_MANAGER` names.
_numba_memory_manager = RMMNumbaManager

__all__ = ["RMMNumbaManager"]
