"""A stack for every device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from alluvion import _alluvion
from alluvion._stack import Stack


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

    def __repr__(self) -> str:
        return f"PerDevice({self._stacks})"


def per_device(
    recipe: str,
    devices: Iterable[int] | None = None,
    *,
    on_out_of_memory: Callable[[Any], object] | None = None,
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
    for device in range(_alluvion.device_count()) if devices is None else devices:
        if device in stacks:
            raise ValueError(f"device {device} is named twice")
        try:
            stacks[device] = Stack(recipe, device, on_out_of_memory=on_out_of_memory)
        except Exception as error:
            error.add_note(f"for the stack of gpu {device}")
            raise
    return PerDevice(stacks)


__all__ = ["PerDevice", "per_device"]
