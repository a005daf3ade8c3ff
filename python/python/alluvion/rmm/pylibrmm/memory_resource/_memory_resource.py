"""Memory resources, and which one each device allocates from."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import index
from typing import TYPE_CHECKING, TypeVar

from alluvion._alluvion import (
    ArenaMemoryResource,
    BinningMemoryResource,
    CallbackMemoryResource,
    CudaAsyncMemoryResource,
    CudaAsyncViewMemoryResource,
    CudaMemoryResource,
    DeviceMemoryResource,
    FailureCallbackResourceAdaptor,
    FixedSizeMemoryResource,
    LimitingResourceAdaptor,
    LoggingResourceAdaptor,
    ManagedMemoryResource,
    PinnedHostMemoryResource,
    PoolMemoryResource,
    PrefetchResourceAdaptor,
    SamHeadroomMemoryResource,
    StatisticsResourceAdaptor,
    SystemMemoryResource,
    TrackingResourceAdaptor,
    UpstreamResourceAdaptor,
    current_device,
    current_resource,
    device_count,
    known_devices,
    memory_info,
    parse_bytes,
    reset_current_resource,
    set_current_device,
    set_current_resource,
)
from alluvion._using import using as _scope
from alluvion.rmm.pylibrmm.memory_resource._log_file import append_id as _append_id
from alluvion.rmm.pylibrmm.memory_resource._log_file import log_file

_Resource = TypeVar("_Resource", bound=DeviceMemoryResource)


def get_current_device_resource() -> DeviceMemoryResource:
    """The resource of the current device: the very object that was set, and a `CudaMemoryResource` if none was."""
    return current_resource()


def set_current_device_resource(mr: DeviceMemoryResource) -> None:
    """Makes the current device allocate from `mr`, in every thread. What was allocated before goes back to where it came from."""
    set_current_resource(mr)


def get_per_device_resource(device: int) -> DeviceMemoryResource:
    """The resource of a device, as `get_current_device_resource`."""
    return current_resource(_number(device))


def set_per_device_resource(device: int, mr: DeviceMemoryResource) -> None:
    """Makes a device allocate from `mr`, as `set_current_device_resource`. `mr` must have been made for that device."""
    set_current_resource(mr, _number(device))


def _number(device: int) -> int:
    """A device's number; `None` would mean the current device to the native functions."""
    if device is None:
        raise TypeError("Argument 'device' has incorrect type (expected int, got NoneType)")
    return device


def is_initialized() -> bool:
    """Whether each known device has a resource: always."""
    return True


def available_device_memory() -> tuple[int, int]:
    """The free and the total bytes of the current device."""
    return memory_info()


@contextmanager
def using(resource: _Resource, *, thread: bool = False) -> Iterator[_Resource]:
    """Makes the current device allocate from `resource`, and puts the earlier object back at the end, also after an exception.

    Like `set_current_device_resource` it is the resource of every thread meanwhile. With `thread=True` it is only that of the
    calling thread and of the `asyncio` tasks that it makes within, as in `alluvion.using`.
    """
    if not isinstance(resource, DeviceMemoryResource):
        raise TypeError(
            f"Argument 'mr' has incorrect type (expected DeviceMemoryResource, got {type(resource).__name__})"
        )
    with _scope(resource, current_device(), thread=thread):
        yield resource


@contextmanager
def _on_device(device: int) -> Iterator[None]:
    """Makes a device current, and the earlier one again at the end."""
    before = current_device()
    set_current_device(device)
    try:
        yield
    finally:
        set_current_device(before)


def _initialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Gives each listed device a new resource, and every other device its initial one again. See `rmm.reinitialize`."""
    initial, maximum = (
        None if size is None or not pool_allocator else parse_bytes(size)
        for size in (initial_pool_size, maximum_pool_size)
    )
    if devices is None:
        devices = [0]
    elif isinstance(devices, int):
        devices = [devices]
    else:
        devices = [index(device) for device in devices]
    count = device_count()
    if count == 0:
        from warnings import warn

        warn("there is no CUDA device: no memory resource was initialized", stacklevel=3)
        return
    for device in devices:
        if not 0 <= device < count:
            raise RuntimeError(f"there is no device {device}: this machine has {count}")
    if logging:
        log_file_name = log_file(log_file_name)
    # The earlier resources go first: a pool could not have the memory that an earlier pool still holds.
    for device in known_devices():
        reset_current_resource(device)
    for device in devices:
        with _on_device(device):
            resource: DeviceMemoryResource
            resource = ManagedMemoryResource() if managed_memory else CudaMemoryResource()
            if pool_allocator:
                resource = PoolMemoryResource(resource, initial, maximum)
            if logging:
                resource = LoggingResourceAdaptor(resource, log_file_name)
            set_current_resource(resource, device)
        # A name is let go of, so that nothing but the device holds the resource.
        del resource


def enable_logging(log_file_name: str | os.PathLike[str] | None = None) -> None:
    """Logs each allocation and free of each known device, in a file a device: `<stem>.dev<device><extension>`.

    Without a name the file is that of the variable `RMM_LOG_FILE`. A device whose resource logs already is left alone.
    """
    for device in known_devices() or [0]:
        resource = current_resource(device)
        if not isinstance(resource, LoggingResourceAdaptor):
            with _on_device(device):
                logged = LoggingResourceAdaptor(resource, log_file_name)
            set_current_resource(logged, device)


def disable_logging() -> None:
    """Puts back the resource of each device that `enable_logging` has wrapped, after its log is written."""
    for device in known_devices():
        resource = current_resource(device)
        if isinstance(resource, LoggingResourceAdaptor):
            resource.flush()
            set_current_resource(resource.get_upstream(), device)


def get_log_filenames() -> dict[int, str | None]:
    """The log of each known device, and `None` for one that does not log."""
    resources = {device: current_resource(device) for device in known_devices()}
    return {
        device: resource.get_file_name() if isinstance(resource, LoggingResourceAdaptor) else None
        for device, resource in resources.items()
    }


def _flush_logs() -> None:
    """Writes all logs of the current resources to their ends."""
    for device in known_devices():
        resource = current_resource(device)
        if isinstance(resource, LoggingResourceAdaptor):
            resource.flush()


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The names that older versions of RMM had here."""
        from warnings import warn

        if name == "get_current_device_resource_type":
            instead, value = "type(get_current_device_resource())", lambda: type(get_current_device_resource())
        elif name == "get_per_device_resource_type":
            instead, value = "type(get_per_device_resource(device))", lambda device: type(get_per_device_resource(device))
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        warn(f"rmm.mr.{name} is deprecated: use {instead}", FutureWarning, stacklevel=2)
        return value


__all__ = [
    "ArenaMemoryResource",
    "BinningMemoryResource",
    "CallbackMemoryResource",
    "CudaAsyncMemoryResource",
    "CudaAsyncViewMemoryResource",
    "CudaMemoryResource",
    "DeviceMemoryResource",
    "FailureCallbackResourceAdaptor",
    "FixedSizeMemoryResource",
    "LimitingResourceAdaptor",
    "LoggingResourceAdaptor",
    "ManagedMemoryResource",
    "PinnedHostMemoryResource",
    "PoolMemoryResource",
    "PrefetchResourceAdaptor",
    "SamHeadroomMemoryResource",
    "StatisticsResourceAdaptor",
    "SystemMemoryResource",
    "TrackingResourceAdaptor",
    "UpstreamResourceAdaptor",
    "available_device_memory",
    "disable_logging",
    "enable_logging",
    "get_current_device_resource",
    "get_log_filenames",
    "get_per_device_resource",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
    "using",
]
