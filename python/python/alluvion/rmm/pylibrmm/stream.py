"""Streams: new ones, and those of other libraries."""

from __future__ import annotations

from enum import IntEnum

from alluvion._alluvion import Stream


class CudaStreamFlags(IntEnum):
    """How a new stream behaves towards the default stream."""

    #: It waits for the legacy default stream, and that for it.
    SYNC_DEFAULT = 0
    #: It does not.
    NON_BLOCKING = 1


class _OwningStream(Stream):
    """A stream that is made here, and ends with its last user.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     _OwningStream().is_default()
    False
    """

    def __new__(cls, flags: CudaStreamFlags = CudaStreamFlags.SYNC_DEFAULT) -> "_OwningStream":
        return super().__new__(cls, None, flags)


class _Number:
    """A handle that every driver knows."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.number)


#: The default stream, which is the legacy one.
DEFAULT_STREAM = Stream(_Number(0))
#: The legacy default stream.
LEGACY_DEFAULT_STREAM = Stream(_Number(1))
#: The default stream of the thread that uses it.
PER_THREAD_DEFAULT_STREAM = Stream(_Number(2))

__all__ = [
    "DEFAULT_STREAM",
    "LEGACY_DEFAULT_STREAM",
    "PER_THREAD_DEFAULT_STREAM",
    "CudaStreamFlags",
    "Stream",
]
