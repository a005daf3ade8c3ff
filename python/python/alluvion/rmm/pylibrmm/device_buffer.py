"""Buffers of a device, and copies by address."""

from __future__ import annotations

from alluvion._alluvion import DeviceBuffer, copy_device_to_ptr, copy_host_to_ptr, copy_ptr_to_host
from alluvion.rmm.pylibrmm.stream import DEFAULT_STREAM, Stream


def to_device(b: object, stream: Stream = DEFAULT_STREAM) -> DeviceBuffer:
    """A new buffer with the bytes of `b`, from the current resource. Pickles of buffers name this function.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     len(to_device(b"abc"))
    3
    """
    return DeviceBuffer.to_device(b, stream)


__all__ = [
    "DEFAULT_STREAM",
    "DeviceBuffer",
    "copy_device_to_ptr",
    "copy_host_to_ptr",
    "copy_ptr_to_host",
    "to_device",
]
