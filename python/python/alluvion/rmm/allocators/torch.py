"""PyTorch's memory from the current resource.

Both ways of PyTorch lead here:

- `torch.cuda.memory.change_current_allocator(rmm_torch_allocator)`, before PyTorch has allocated anything, puts the current
  resource in the place of PyTorch's own pool. So it must be a pool itself. Out of memory is a `RuntimeError`.
- `torch.cuda.MemPool(rmm_torch_pool_allocator.allocator())` with `torch.cuda.use_mem_pool(pool)` leaves PyTorch's pool in its
  place, and gives it its segments. Out of memory is `torch.OutOfMemoryError`.

A block goes back to the resource that it came from, whichever is current by then. The names of this module are made when they
are asked for; they are `None` where PyTorch or its CUDA part is missing.
"""

from __future__ import annotations

import ctypes
from typing import Any

from alluvion import _alluvion
from alluvion._alluvion import torch_last_error as last_error

#: The file that has the C functions, for `CUDAPluggableAllocator`.
library_path: str = _alluvion.__file__

_HOOKS = {
    "set_init_fn": "alluvion_torch_init",
    "set_reset_fn": "alluvion_torch_reset",
    "set_memory_fraction_fn": "alluvion_torch_memory_fraction",
    "set_base_alloc_fn": "alluvion_torch_base_allocation",
    "set_record_stream_fn": "alluvion_torch_record_stream",
}

_ALLOCATORS = {
    "rmm_torch_allocator": "alluvion_torch_allocate_or_throw",
    "rmm_torch_pool_allocator": "alluvion_torch_allocate",
}


def set_hooks(allocator: Any) -> list[str]:
    """Gives an allocator of PyTorch the functions for `empty_cache`, `set_per_process_memory_fraction`, `record_stream` and shared
    memory, as far as this PyTorch can be given them. Returns the names of those that it took.
    """
    inner = allocator.allocator() if callable(getattr(allocator, "allocator", None)) else allocator
    library = ctypes.CDLL(library_path)
    taken = []
    for setter, symbol in _HOOKS.items():
        give = getattr(inner, setter, None)
        if give is None:
            continue
        give(ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value)
        taken.append(setter)
    return taken


def _make(name: str) -> Any:
    try:
        from torch.cuda.memory import CUDAPluggableAllocator
    except ImportError:
        return None
    try:
        allocator = CUDAPluggableAllocator(library_path, _ALLOCATORS[name], "alluvion_torch_deallocate")
    except (AttributeError, RuntimeError):
        # A PyTorch that was built without CUDA has the class, and nothing behind it.
        return None
    if name == "rmm_torch_allocator" and callable(getattr(allocator, "allocator", None)):
        set_hooks(allocator)
    return allocator


def __getattr__(name: str) -> Any:
    if name not in _ALLOCATORS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()[name] = _make(name)
    return made


def __dir__() -> list[str]:
    return sorted(globals().keys() | _ALLOCATORS.keys())


__all__ = ["last_error", "library_path", "rmm_torch_allocator", "rmm_torch_pool_allocator", "set_hooks"]
