"""RAPIDS on stacks of this library: cuDF, cuML, pylibcudf, raft and all else that allocates through the genuine `rmm`.

`DeviceResource` is a class of `rmm.mr`, and `install` puts one under every device:

>>> import alluvion.rapids  # doctest: +SKIP
>>> stacks = alluvion.rapids.install("stats | pool | cuda-async")  # doctest: +SKIP
>>> import cudf  # doctest: +SKIP

The class is compiled for the RMM that is installed, at its first use and once for a user of the machine: see `alluvion.rapids.build`.
`docs/rapids.md` has the rest. To have `alluvion.rmm` in the place of `rmm`, for code of your own, see there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from alluvion import _alluvion
from alluvion._fork import ForkLock
from alluvion._per_device import PerDevice, stacks_of
from alluvion._stack import Stack

if TYPE_CHECKING:

    class DeviceResource:
        """A `rmm.mr.DeviceMemoryResource` over a stack, which is made of a recipe or given.

        - `recipe`: a recipe, as `"stats | pool | cuda-async"`, an `alluvion.Stack`, or another resource object of this library.
        - `device`: the number of the device, and the current one if it is left out. A stack has its device.
        """

        def __init__(
            self, recipe: str | _alluvion.DeviceMemoryResource = "auto", device: int | None = None
        ) -> None: ...
        @property
        def stack(self) -> Stack:
            """The stack: for `stats()`, `snapshot()`, `trim()` and the rest."""
        def allocate(self, nbytes: int, stream: Any = ...) -> int:
            """Allocates `nbytes` bytes on `stream`, and returns their address."""
        def deallocate(self, ptr: int, nbytes: int, stream: Any = ...) -> None:
            """Gives the block back that `allocate` returned for `nbytes` bytes."""


def install(
    resource: str | Stack | Mapping[int, Stack] = "auto", devices: Iterable[int] | None = None
) -> PerDevice:
    """Makes RMM allocate from stacks of this library, and returns them by the numbers of their devices.

    - A recipe makes a stack for every device, or for those that `devices` names.
    - A stack is put under its device, and the stacks of `alluvion.per_device` each under its own.

    Call it before anything is allocated through RMM, and after `rmm.reinitialize`, which puts resources of its own under the devices.
    Either all devices have theirs, or an exception says why none has.
    """
    from alluvion.rapids._rmm import genuine

    rmm = genuine()
    stacks = stacks_of(resource, devices)
    made = {device: _class()(stack, device) for device, stack in stacks.items()}
    for device, each in made.items():
        rmm.mr.set_per_device_resource(device, each)
    return PerDevice(stacks)


def _class() -> Any:
    with _lock:
        found = globals().get("DeviceResource")
        if found is None:
            from alluvion.rapids._resource import make

            found = globals()["DeviceResource"] = make()
    return found


# There is one class, whoever asks first.
_lock = ForkLock()


def __getattr__(name: str) -> Any:
    if name != "DeviceResource":
        raise AttributeError(f"module 'alluvion.rapids' has no attribute {name!r}")
    return _class()


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = ["DeviceResource", "install"]
