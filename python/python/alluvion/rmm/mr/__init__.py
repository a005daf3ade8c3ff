"""Memory resources, and which one each device allocates from.

>>> import alluvion
>>> from alluvion.rmm import mr
>>> with alluvion.simulated():
...     pool = mr.PoolMemoryResource(mr.CudaMemoryResource(), initial_pool_size="1 MiB", maximum_pool_size="2 MiB")
...     with mr.using(mr.StatisticsResourceAdaptor(pool)) as counted:
...         address = counted.allocate(1000)
...         counted.allocation_counts.current_bytes
...     counted.deallocate(address, 1000)
1000
"""

from typing import TYPE_CHECKING

from alluvion.rmm.mr import experimental
from alluvion.rmm.pylibrmm.memory_resource import (
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
    available_device_memory,
    disable_logging,
    enable_logging,
    get_current_device_resource,
    get_log_filenames,
    get_per_device_resource,
    is_initialized,
    set_current_device_resource,
    set_per_device_resource,
    using,
)
from alluvion.rmm.pylibrmm.memory_resource._memory_resource import _flush_logs, _initialize

if not TYPE_CHECKING:
    from alluvion.rmm.pylibrmm.memory_resource import __getattr__

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
    "experimental",
    "get_current_device_resource",
    "get_log_filenames",
    "get_per_device_resource",
    "is_initialized",
    "set_current_device_resource",
    "set_per_device_resource",
    "using",
]
