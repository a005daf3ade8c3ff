"""Resources that RMM calls experimental."""

from alluvion._alluvion import CudaAsyncManagedMemoryResource

__all__ = ["CudaAsyncManagedMemoryResource"]
