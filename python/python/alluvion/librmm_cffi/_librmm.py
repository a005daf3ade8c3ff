"""`LibRMM`: the functions of the old interface."""

from __future__ import annotations

import atexit
import os
import tempfile
from types import ModuleType
from typing import Any

import alluvion
from alluvion import errors
from alluvion._fork import ForkLock


class RMMError(Exception):
    """A call of the old interface failed. `errcode` is the name of the error."""

    def __init__(self, errcode: str, msg: str) -> None:
        self.errcode = errcode
        super().__init__(msg)


#: The names of the original, by what is raised here.
_NAMES: list[tuple[type[BaseException], str]] = [
    (MemoryError, "RMM_ERROR_OUT_OF_MEMORY"),
    (errors.NoDevice, "RMM_ERROR_CUDA_ERROR"),
    (errors.NoDriver, "RMM_ERROR_CUDA_ERROR"),
    (TypeError, "RMM_ERROR_INVALID_ARGUMENT"),
    (ValueError, "RMM_ERROR_INVALID_ARGUMENT"),
    (OverflowError, "RMM_ERROR_INVALID_ARGUMENT"),
    (OSError, "RMM_ERROR_IO"),
]


def _refused(error: BaseException) -> RMMError:
    name = next((name for kind, name in _NAMES if isinstance(error, kind)), "RMM_ERROR_UNKNOWN")
    return RMMError(name, f"{name}: {error}")


class _Raw:
    """A stream of a bare handle, which the caller keeps alive."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.handle)


def _stream_of(stream: Any) -> Any:
    """A stream of ours for what old code passes: 0, a handle, or a stream of Numba."""
    from alluvion.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream

    if stream is None or (isinstance(stream, int) and stream == 0):
        return DEFAULT_STREAM
    return Stream(_Raw(stream) if isinstance(stream, int) else stream)


class LibRMM:
    """The functions of RMM 0.3 to 0.9, as methods.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     from alluvion.librmm_cffi import librmm
    ...     librmm.initialize()
    ...     address = librmm.rmmAlloc(1000, 0)
    ...     librmm.rmmFree(address, 0)
    ...     librmm.finalize()
    """

    def __init__(self, config: ModuleType) -> None:
        self._config = config
        # The collector may run while it is held, and with it a destructor that frees.
        self._lock = ForkLock()
        self._is_initialized = False
        #: The resource before `initialize`, which `finalize` puts back.
        self._before: Any = None
        self._resource: Any = None
        self._log: str | None = None
        #: The blocks of `rmmAlloc` by their addresses: the old `rmmFree` is told no size.
        self._blocks: dict[int, tuple[Any, int]] = {}

    def _begin(self) -> None:
        """What the original did when it was imported."""
        if alluvion.device_count() > 0:
            self.initialize()
        atexit.register(self._end)

    def _end(self) -> None:
        try:
            self.finalize()
        except Exception:
            # The machine is gone already, or the driver has ended: there is nothing left to give back.
            pass

    def initialize(self) -> None:
        """Sets the current resource by `librmm_config`. Does nothing if that was done and not ended by `finalize`."""
        from alluvion.rmm import mr

        with self._lock:
            if self._is_initialized:
                return
            config, log = self._config, None
            try:
                managed = config.use_managed_memory
                resource: Any = mr.ManagedMemoryResource() if managed else mr.CudaMemoryResource()
                if config.use_pool_allocator:
                    size = config.initial_pool_size
                    if not size:
                        size = (mr.available_device_memory()[1] // 2) & ~0xFF
                    resource = mr.PoolMemoryResource(resource, initial_pool_size=size)
                if config.enable_logging:
                    folder = tempfile.mkdtemp(prefix="alluvion-log-")
                    resource = mr.LoggingResourceAdaptor(resource, os.path.join(folder, "rmm.csv"))
                    log = resource.get_file_name()
                before = mr.get_current_device_resource()
                mr.set_current_device_resource(resource)
            except Exception as error:
                raise _refused(error) from error
            self._before, self._resource, self._log = before, resource, log
            self._is_initialized = True

    def finalize(self) -> None:
        """Gives the blocks of `rmmAlloc` back and puts the resource back that was current before. Arrays that live keep theirs."""
        from alluvion.rmm import mr

        with self._lock:
            if not self._is_initialized:
                return
            self._is_initialized = False
            blocks, self._blocks = self._blocks, {}
            resource, self._resource = self._resource, None
            before, self._before = self._before, None
            log, self._log = self._log, None
        for address, (owner, size) in blocks.items():
            owner.deallocate(address, size)
        if mr.get_current_device_resource() is resource:
            mr.set_current_device_resource(before)
        if log is not None:
            resource.flush()
            os.remove(log)
            os.rmdir(os.path.dirname(log))

    def is_initialized(self) -> bool:
        """Whether `initialize` was called and `finalize` was not."""
        return self._is_initialized

    def rmmAlloc(self, size: int, stream: Any = 0) -> int:  # noqa: N802
        """Allocates `size` bytes on `stream`, and returns their address."""
        from alluvion.rmm import mr

        if not self._is_initialized:
            raise RMMError("RMM_ERROR_NOT_INITIALIZED", "RMM_ERROR_NOT_INITIALIZED: call initialize() first")
        try:
            resource = mr.get_current_device_resource()
            address = int(resource.allocate(size, _stream_of(stream)))
        except Exception as error:
            raise _refused(error) from error
        if address:
            with self._lock:
                self._blocks[address] = (resource, size)
        return address

    def rmmRealloc(self, ptr: int, new_size: int, stream: Any = 0) -> int:  # noqa: N802
        """Another block with the first bytes of the one at `ptr`, which is freed. 0 begins a new one."""
        from alluvion.rmm.pylibrmm.device_buffer import copy_device_to_ptr

        if not ptr:
            return self.rmmAlloc(new_size, stream)
        with self._lock:
            known = self._blocks.get(ptr)
        if known is None:
            raise RMMError("RMM_ERROR_INVALID_ARGUMENT", f"RMM_ERROR_INVALID_ARGUMENT: no block of rmmAlloc is at {ptr:#x}")
        grown = self.rmmAlloc(new_size, stream)
        count = min(known[1], new_size)
        if count:
            copy_device_to_ptr(ptr, grown, count, _stream_of(stream))
        self.rmmFree(ptr, stream)
        return grown

    def rmmFree(self, ptr: int, stream: Any = 0) -> None:  # noqa: N802
        """Frees the block at `ptr`, behind the work on `stream`. 0 is no block."""
        if not ptr:
            return
        with self._lock:
            known = self._blocks.pop(ptr, None)
        if known is None:
            raise RMMError("RMM_ERROR_INVALID_ARGUMENT", f"RMM_ERROR_INVALID_ARGUMENT: no block of rmmAlloc is at {ptr:#x}")
        resource, size = known
        resource.deallocate(ptr, size, _stream_of(stream))

    def csv_log(self) -> str:
        """Every call since `initialize`, as CSV. Needs `librmm_config.enable_logging`."""
        if self._log is None:
            raise RMMError(
                "RMM_ERROR_INVALID_ARGUMENT",
                "RMM_ERROR_INVALID_ARGUMENT: nothing is written down: set librmm_config.enable_logging before initialize()",
            )
        self._resource.flush()
        with open(self._log, encoding="utf-8") as file:
            return file.read()

    def get_info(self, stream: Any = 0) -> Any:
        """The free and the total bytes of the device, with these names."""
        from collections import namedtuple

        return namedtuple("MemoryInfo", "free total")(*alluvion.memory_info())

    def device_array(self, shape: Any, dtype: Any = float, strides: Any = None, order: str = "C", stream: Any = 0) -> Any:
        """An array of Numba without contents."""
        import numpy
        from numba import cuda

        shape = (int(shape),) if isinstance(shape, int) else tuple(shape)
        dtype = numpy.dtype(dtype)
        if strides is None:
            size = dtype.itemsize
            steps = []
            for extent in reversed(shape) if order == "C" else shape:
                steps.append(size)
                size *= extent
            strides = tuple(reversed(steps)) if order == "C" else tuple(steps)
        else:
            strides = (int(strides),) if isinstance(strides, int) else tuple(strides)
            if len(strides) != len(shape):
                raise ValueError(f"{len(shape)} extents need as many strides, and not {len(strides)}")
            last = sum((extent - 1) * abs(stride) for extent, stride in zip(shape, strides, strict=True))
            size = 0 if 0 in shape else last + dtype.itemsize
        from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer

        try:
            buffer = DeviceBuffer(size=size, stream=_stream_of(stream))
        except Exception as error:
            raise _refused(error) from error
        return cuda.as_cuda_array(_Array(buffer, buffer.ptr, shape, strides, dtype))

    def device_array_like(self, ary: Any, stream: Any = 0) -> Any:
        """An array of Numba with the shape, type and order of another. One without dimensions gets one."""
        if ary.ndim == 0:
            return self.device_array((1,), dtype=ary.dtype, stream=stream)
        return self.device_array(ary.shape, dtype=ary.dtype, strides=ary.strides, stream=stream)

    def to_device(self, ary: Any, stream: Any = 0, copy: bool = True, to: Any = None) -> Any:
        """An array of Numba with the contents of one of the host; `copy=False` leaves them out, `to` is an array to fill."""
        import numpy

        ary = numpy.asarray(ary)
        if to is None:
            source = ary if ary.flags.c_contiguous or ary.flags.f_contiguous else numpy.ascontiguousarray(ary)
            to = self.device_array_like(source, stream=stream)
            ary = source
        if copy:
            to.copy_to_device(ary if ary.ndim else ary.reshape(1), stream=stream)
        return to

    def auto_device(self, obj: Any, stream: Any = 0, copy: bool = True) -> tuple[Any, bool]:
        """An array of Numba for `obj`, and whether one was made: memory of a device stays what it is, and memory of the host is
        copied. What has the CUDA array interface is copied, and answered with `False`, as version 0.12 did.
        """
        from numba import cuda
        from numba.cuda.cudadrv import driver

        if driver.is_device_memory(obj):
            return obj, False
        if hasattr(obj, "__cuda_array_interface__"):
            view = cuda.as_cuda_array(obj)
            made = self.device_array_like(view, stream=stream)
            if copy:
                made.copy_to_device(view, stream=stream)
            return made, False
        import numpy

        host = numpy.array(obj, copy=None if isinstance(obj, numpy.ndarray) else True, subok=True)
        return self.to_device(host, stream=stream, copy=copy), True

    def device_array_from_ptr(self, ptr: int, nelem: int, dtype: Any = float, finalizer: Any = None) -> Any:
        """An array of Numba over `nelem` elements at `ptr`, which stay their owner's. `finalizer` is called when it is dropped."""
        import numpy
        from numba import cuda

        dtype = numpy.dtype(dtype)
        if dtype == numpy.dtype("datetime64"):
            dtype = numpy.dtype("datetime64[ms]")
        return cuda.as_cuda_array(_Array(_Borrowed(finalizer), int(ptr), (int(nelem),), (dtype.itemsize,), dtype))

    def get_ipc_handle(self, ary: Any, stream: Any = 0) -> Any:
        """A handle by which another process opens the array, at its offset in the driver's allocation."""
        from numba import cuda
        from numba.cuda.cudadrv import driver

        memory = driver.device_pointer(ary)
        base, _ = driver.device_extents(ary)
        handle = driver.driver.cuIpcGetMemHandle(base)
        identity = cuda.current_context().device.get_device_identity()
        return cuda.IpcHandle(ary, handle, ary.nbytes, identity, offset=int(memory) - int(base))


class _Borrowed:
    """Memory of somebody else, who is told when the last array over it is gone."""

    def __init__(self, finalizer: Any) -> None:
        self._finalizer = finalizer

    def __del__(self) -> None:
        if self._finalizer is not None:
            self._finalizer()


class _Array:
    """Memory as an array, by the CUDA array interface; it holds the owner of the memory."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> None:
        self._owner = owner
        self.__cuda_array_interface__ = {
            "data": (address, False),
            "shape": shape,
            "strides": strides,
            # A type of dates has another name in the interface than its kind.
            "typestr": dtype.str,
            "version": 2,
        }


__all__ = ["LibRMM", "RMMError"]
