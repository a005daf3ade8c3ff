"""CuPy's memory from the current resource.

`cupy.cuda.set_allocator(rmm_cupy_allocator)` is all: from then on every array of CuPy comes from the current resource of its
device, on the stream that is current in CuPy. CuPy is needed to call the allocator, and not to import this module.
"""

from alluvion._alluvion import rmm_cupy_allocator

__all__ = ["rmm_cupy_allocator"]
