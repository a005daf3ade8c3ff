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

from alluvion.rmm.mr import experimental
from alluvion.rmm.pylibrmm.memory_resource import *  # noqa: F403
from alluvion.rmm.pylibrmm.memory_resource import __all__ as _all
from alluvion.rmm.pylibrmm.memory_resource import __getattr__
from alluvion.rmm.pylibrmm.memory_resource._memory_resource import _flush_logs, _initialize

__all__ = [*_all]
