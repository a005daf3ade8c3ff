"""PyTorch's tensors in stacks of this library, with all else of PyTorch's allocator as it is.

>>> import alluvion.torch  # doctest: +SKIP
>>> stacks = alluvion.torch.install("stats | pool(budget=1.05) | mapped")  # doctest: +SKIP
>>> import torch  # doctest: +SKIP
>>> torch.ones(1000, device="cuda")  # doctest: +SKIP

`torch.cuda.memory_stats`, snapshots, the history of allocations, `record_stream`, graphs, `torch.compile(mode="reduce-overhead")` and
`torch.cuda.MemPool` work as before: private pools stay PyTorch's own code, over segments of the stack.

The door is compiled for the PyTorch that is installed, at its first use and once for a user of the machine: see `alluvion.torch.build`.
`docs/torch.md` has the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from alluvion._fork import ForkLock
from alluvion._per_device import PerDevice, stacks_of
from alluvion._stack import Stack
from alluvion.torch import _torch


def install(
    resource: str | Stack | Mapping[int, Stack] = "auto", devices: Iterable[int] | None = None
) -> PerDevice:
    """Makes the tensors of PyTorch come from stacks of this library, and returns them by the numbers of their devices.

    - A recipe makes a stack for every device, or for those that `devices` names.
    - A stack is for its device, and the stacks of `alluvion.per_device` each for its own. Tensors of another device stay as they were.

    Before or after the first tensor: those that are there stay where they are. Either all devices have their stacks, or an exception says why
    none has.
    """
    global _stacks
    _torch.genuine()
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING"):
        if os.environ.get(name):
            raise RuntimeError(f"PyTorch has no allocator to take the place of while {name} is set")
    from alluvion.torch import build

    with _lock:
        module = build.load()
        if module.is_installed():
            raise RuntimeError("alluvion.torch is installed already: `alluvion.torch.uninstall()` comes first")
        stacks = PerDevice(stacks_of(resource, devices))
        module.install(dict(stacks))
        # A handler of a stack is asked while the object of Python's lives.
        _stacks = stacks
    return stacks


def uninstall() -> None:
    """Makes tensors come from PyTorch's own memory again.

    Memory of the stacks must not be in use any more: a `RuntimeError` says how much is, and it stays installed.
    """
    global _stacks
    with _lock:
        if _stacks is None:
            raise RuntimeError("alluvion.torch is not installed")
        from alluvion.torch import build

        build.load().uninstall()
        _stacks = None


def installed() -> PerDevice | None:
    """The stacks that tensors come from, and `None` if it is not installed."""
    return _stacks


_lock = ForkLock()
_stacks: PerDevice | None = None

__all__ = ["install", "installed", "uninstall"]
