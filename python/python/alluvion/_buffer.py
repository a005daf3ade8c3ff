"""Buffers of device memory."""

from __future__ import annotations

from typing import Any

from alluvion._alluvion import DeviceBuffer, parse_bytes

#: A buffer of device memory: the class that `alluvion.rmm` calls `DeviceBuffer`.
Buffer = DeviceBuffer


def empty(size: int | str, *, stream: Any = None, resource: Any = None, align: int = 0) -> DeviceBuffer:
    """A buffer of `size` bytes whose contents are arbitrary.

    It comes from `resource`, a resource object or a recipe, and from the current one if that is left out; on `stream`, and on the
    default stream if that is left out. It is freed on that stream. Its address is a multiple of `align`, a power of two; up to 256 all are
    one, and a resize keeps it.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     buffer = alluvion.empty("1 KiB")
    ...     print(buffer.size, alluvion.empty(100, resource="cuda").nbytes)
    ...     print(alluvion.empty(100, resource="pool | cuda", align=1 << 16).ptr % (1 << 16))
    ...     del buffer
    1024 100
    0
    """
    options: dict[str, Any] = {"align": align}
    if stream is not None:
        options["stream"] = stream
    if isinstance(resource, str):
        from alluvion._stack import Stack

        resource = Stack(resource)
    if resource is not None:
        options["mr"] = resource
    return DeviceBuffer(size=parse_bytes(size), **options)


__all__ = ["Buffer", "empty"]
