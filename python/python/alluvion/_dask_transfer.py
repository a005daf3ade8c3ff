"""How Dask moves a buffer from one worker to another of the same machine: by a handle, and not through the host.

A worker that takes handles says so when it connects to another: which machine it is, and which devices it reaches. A worker that is
asked for a buffer then shares it, if the memory can be opened by a message alone, and sends the message. The other one opens it, copies
it into memory of its own on the device, and closes it. In all other cases Dask pickles the buffer, through the host, as before.

What was sent stays shared until the other worker has had it, and for `KEPT_SECONDS` if nobody comes for it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any

from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import dask_deserialize, dask_serialize

import alluvion
from alluvion import _alluvion
from alluvion._alluvion import DeviceBuffer, Shared

#: The entry of the hand-shake of two workers.
_KEY = "alluvion"

#: Of the entry: two versions send each other no handles.
_VERSION = 1

#: Buffers of fewer bytes go through the host, which takes as long as the handful of calls of the driver for a handle.
SMALLEST_BYTES = 256 << 10

#: For so long a buffer stays shared that the other worker has not opened: longer than Dask lets a connection hang.
KEPT_SECONDS = 60.0


class Lender:
    """What a process has sent, and other workers may be about to open. No lock is held while the system or the driver is asked."""

    def __init__(self, kept_seconds: float = KEPT_SECONDS) -> None:
        self.kept_seconds = kept_seconds
        #: How many buffers were sent so far.
        self.total = 0
        #: Each with the time when nobody waits for it any more, and whether another worker has been seen to have it.
        self._lent: deque[tuple[Shared, float, bool]] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._lent)

    def add(self, shared: Shared) -> None:
        """Keeps `shared` until the other worker has had it."""
        with self._lock:
            self.total += 1
            self._lent.append((shared, time.monotonic() + self.kept_seconds, False))

    def sweep(self, now: float | None = None) -> int:
        """Lets go of what others have had, and of what nobody came for. Returns how many buffers are kept."""
        now = time.monotonic() if now is None else now
        with self._lock:
            looked, self._lent = self._lent, deque()
        kept: list[tuple[Shared, float, bool]] = []
        for shared, until, was_seen in looked:
            try:
                is_open = shared.importers > 0
            except RuntimeError:
                # Nobody knows: the library keeps the memory.
                continue
            if is_open or (not was_seen and now < until):
                kept.append((shared, until, was_seen or is_open))
        with self._lock:
            self._lent.extendleft(reversed(kept))
            return len(self._lent)


#: What this process has sent.
lender = Lender()


def identity() -> dict[str, Any] | None:
    """What a worker says of itself when it connects to another: `None` if nothing can be opened here."""
    try:
        simulated, devices = _alluvion.sharing_devices()
        boot = _boot()
        place = os.stat("/dev/shm")
    except (OSError, RuntimeError):
        return None
    if not devices:
        return None
    # A simulated machine is one of a process. Leases are files of one user, in a folder that both must see.
    space = f"{os.getpid()}" if simulated else "cuda"
    return {
        "version": _VERSION,
        "node": f"{boot} {place.st_dev}:{place.st_ino} {os.getuid()} {space}",
        "devices": devices,
    }


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def is_here(recipient: dict[str, Any]) -> bool:
    """Whether a worker that has said this of itself is on this machine."""
    if recipient.get("version") != _VERSION:
        return False
    here = identity()
    return here is not None and recipient.get("node") == here["node"]


def can_open(recipient: dict[str, Any], shared: Shared) -> bool:
    """Whether a worker of this machine that has said this of itself can open what is shared, by the message alone."""
    return not shared.needs_descriptor and shared.device_uuid in recipient.get("devices", ())


def announce(worker: Any) -> None:
    """Lets a worker say with every connection that it takes handles."""
    here = identity()
    if here is not None:
        worker.connection_args["handshake_overrides"] = {**(worker.connection_args.get("handshake_overrides") or {}), _KEY: here}
        _announced.add(worker)


def withdraw(worker: Any) -> None:
    """Ends `announce`. Connections that are there are closed: the other sides remember what was said on them."""
    _announced.discard(worker)
    if (worker.connection_args.get("handshake_overrides") or {}).pop(_KEY, None) is None:
        return
    for address in list(worker.rpc.available):
        worker.rpc.remove(address)


#: The workers of this process that take handles.
_announced: set[Any] = set()


@dask_serialize.register(DeviceBuffer)
def dumps(buffer: DeviceBuffer, context: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[Any]]:
    """A handle of a buffer, for a worker that can open it. Otherwise Dask goes on to its next way, which pickles."""
    recipient = ((context or {}).get("recipient") or {}).get(_KEY)
    if not recipient or buffer.nbytes < SMALLEST_BYTES or not is_here(recipient):
        raise NotImplementedError("through the host")
    try:
        shared = buffer.share()
    except (RuntimeError, OSError) as refused:
        raise NotImplementedError("through the host") from refused
    if not can_open(recipient, shared):
        raise NotImplementedError("through the host")
    lender.sweep()
    lender.add(shared)
    return {"message": shared.message}, []


@dask_deserialize.register(DeviceBuffer)
def loads(header: dict[str, Any], frames: list[Any]) -> DeviceBuffer:
    """A buffer of this worker's own with the bytes of the other one's."""
    try:
        return alluvion.open_shared(header["message"], peer=True).copy()
    except MemoryError:
        raise
    except (RuntimeError, ValueError, OSError) as problem:
        # Dask asks again where a connection has broken. From now on it gets the bytes through the host.
        for worker in list(_announced):
            worker.loop.add_callback(withdraw, worker)
        raise CommClosedError(f"a buffer of another worker cannot be opened: {problem}") from problem


__all__ = ["KEPT_SECONDS", "SMALLEST_BYTES", "Lender", "announce", "can_open", "dumps", "identity", "is_here", "lender", "loads", "withdraw"]
