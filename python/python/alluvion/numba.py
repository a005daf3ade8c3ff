"""Memory of this library for Numba: `NUMBA_CUDA_MEMORY_MANAGER=alluvion.numba` in the environment, and no line of code.

Within a program, before Numba makes its first context:

>>> import alluvion.numba, numba.cuda  # doctest: +SKIP
>>> numba.cuda.set_memory_manager(alluvion.numba.NumbaManager)  # doctest: +SKIP

Arrays come from the current resource of their device, on the default stream, and `ALLUVION_RESOURCE` names that of a program which
names none. Numba is needed to import this module.
"""

from alluvion.rmm.allocators.numba import RMMNumbaManager as NumbaManager
from alluvion.rmm.allocators.numba import _numba_memory_manager as _numba_memory_manager

__all__ = ["NumbaManager"]
