"""What `librmm.initialize()` reads: set the variables, then `librmm.finalize()` and `librmm.initialize()`."""

#: Whether memory comes from a pool.
use_pool_allocator = False

#: Whether memory is managed, which moves between the host and the device.
use_managed_memory = False

#: The bytes that the pool takes at once; 0 for half of the device.
initial_pool_size = 0

#: Whether calls are written down, for `librmm.csv_log()`.
enable_logging = False

__all__ = ["enable_logging", "initial_pool_size", "use_managed_memory", "use_pool_allocator"]
