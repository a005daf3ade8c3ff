"""A stack for every device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from alluvion import _alluvion
from alluvion._snapshot import Snapshot
from alluvion._stack import Stack, Statistics
from alluvion.errors import OutOfMemory


class PerDevice(Mapping[int, Stack]):
    """A stack for each of several devices, by the number of the device. `alluvion.per_device` makes it.

    `alluvion.using` makes all of them current at once.
    """

    def __init__(self, stacks: Mapping[int, Stack]) -> None:
        self._stacks = dict(stacks)

    def __getitem__(self, device: int) -> Stack:
        return self._stacks[device]

    def __iter__(self) -> Iterator[int]:
        return iter(self._stacks)

    def __len__(self) -> int:
        return len(self._stacks)

    def stats(self) -> Statistics:
        """What the `stats` layers of all devices have counted, added up; that of one is `stacks[device].stats()`.

        The peaks of the devices need not have been at one moment: their sum is the most that it can have been.

        >>> import alluvion
        >>> with alluvion.simulated(devices=2):
        ...     stacks = alluvion.per_device("stats | cuda")
        ...     address = stacks[1].allocate(1000)
        ...     print(stacks[1].stats().current_bytes, stacks.stats().current_bytes)
        ...     stacks[1].deallocate(address, 1000)
        ...     del stacks
        1000 1000
        """
        counted = [stack.stats() for stack in self._stacks.values()]
        return Statistics._make(sum(each[at] for each in counted) for at in range(len(Statistics._fields)))

    def pool_status(self) -> dict[str, Any] | None:
        """How the outermost pools of all devices are doing, added up; that of one is `stacks[device].pool_status()`.

        The fragmentation is that of all of them, each counted by its free bytes. `None` if no stack has a pool.
        """
        each = [status for stack in self._stacks.values() if (status := stack.pool_status()) is not None]
        if not each:
            return None
        together = {name: sum(status[name] for status in each) for name in each[0] if name != "fragmentation"}
        free, largest = together["free_bytes"], together["largest_free_bytes"]
        together["fragmentation"] = 1.0 - largest / free if free else 0.0
        return together

    def snapshot(self) -> dict[int, Snapshot]:
        """Every segment and block of the outermost pool of each device, by the number of the device."""
        return {device: stack.snapshot() for device, stack in self._stacks.items()}

    def metrics(self, name: str = "stack") -> str:
        """The figures of all stacks, and of what their devices share with other processes, as a page for Prometheus: the label
        `device` tells them apart.
        """
        return _alluvion.metrics({name: self})

    def __repr__(self) -> str:
        return f"PerDevice({self._stacks})"


def per_device(
    recipe: str,
    devices: Iterable[int] | None = None,
    *,
    on_out_of_memory: Callable[[OutOfMemory], object] | None = None,
) -> PerDevice:
    """Makes the stack of a recipe on every device, or on those that are named.

    An exception has a note that names the device; the stacks that were made before it are given back.

    >>> import alluvion
    >>> with alluvion.simulated(devices=2):
    ...     stacks = alluvion.per_device("stats | pool | cuda-async(peers=reachable)")
    ...     with alluvion.using(stacks):
    ...         print(alluvion.current_resource(1) is stacks[1])
    ...     print(stacks)
    ...     del stacks
    True
    PerDevice({0: Stats(0 B) | Pool(0 B) | CudaAsync(gpu 0), 1: Stats(0 B) | Pool(0 B) | CudaAsync(gpu 1)})
    """
    if not isinstance(recipe, str):
        # An object has one device.
        raise TypeError(f"a recipe is a str, and {type(recipe).__name__} is not")
    stacks: dict[int, Stack] = {}
    # Where there is no device, the first one is asked for, so that the exception says why.
    for device in range(_alluvion.device_count() or 1) if devices is None else devices:
        if device in stacks:
            raise ValueError(f"device {device} is named twice")
        try:
            stacks[device] = Stack(recipe, device, on_out_of_memory=on_out_of_memory)
        except Exception as error:
            error.add_note(f"for the stack of gpu {device}")
            raise
    return PerDevice(stacks)


def stacks_of(resource: str | Stack | Mapping[int, Stack], devices: Iterable[int] | None) -> Mapping[int, Stack]:
    """What the `install` of a door is given, as stacks by the numbers of their devices.

    A recipe makes a stack for every device, or for those that are named.
    """
    if isinstance(resource, str):
        return per_device(resource, devices)
    if devices is not None:
        raise ValueError("stacks have their devices: leave `devices` out")
    if isinstance(resource, Mapping):
        return resource
    if isinstance(resource, Stack):
        return {resource.device: resource}
    raise TypeError(f"a recipe, a stack, or the stacks of several devices, and not {type(resource).__name__}")


__all__ = ["PerDevice", "per_device", "stacks_of"]
