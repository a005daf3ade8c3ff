"""Locks, and forks: a child has no thread but the one that forked, so nobody lets go there of what another one held."""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType


class ForkLock:
    """A lock for `with`, which one thread may take again while it has it, and which a child of a fork finds free.

    What it guards is whole at each line of Python, because it may be left at any: the child goes on with it.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.release()

    def _renew(self) -> None:
        # What the thread has that forked, the child has too, and lets go of.
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock = threading.RLock()


_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


def _in_child() -> None:
    for lock in list(_locks):
        lock._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

__all__ = ["ForkLock"]
