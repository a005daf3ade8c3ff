"""Memory that several processes use.

A process *shares* a buffer: `DeviceBuffer.share()` makes a `Shared`, whose `message` is sent to other processes by whatever means. They
open it with `open_shared`, without a copy. What an importer does on its stream follows what the exporter had done when it shared the
buffer; what comes later, the processes tell each other themselves.

The memory lives until no process has it: `Shared.end` waits for that, and so does the end of a `with` block. A `Shared` that is dropped
while a process has the memory leaves it be until that process is done, or has died. One that is dropped before it was opened cannot be
opened any more: `alluvion.errors.Stale`.

An importer gets to see all of the allocation, or of the pages, that the memory lies in: `Shared.visible_bytes`. What is nobody else's
business is allocated apart, by a resource `cuda` for example, as a multiple of 2 MiB: of less, CUDA may lend a whole block with others'
memory in it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, NamedTuple, Self

from alluvion import _alluvion
from alluvion._alluvion import DeviceBuffer, Shared

#: The most bytes of a message that `receive_shared` takes: ten times what this version sends, and no more than a page.
_LONGEST_MESSAGE = 4096

#: Before a message on a socket: how many bytes it has, as a big-endian number of so many bytes.
_LENGTH_BYTES = 4


def open_shared(
    message: bytes | Shared,
    fd: Any = None,
    *,
    stream: Any = None,
    device: int | None = None,
    writable: bool = False,
    peer: bool = False,
) -> DeviceBuffer:
    """Opens memory that another process shares, without a copy, as a buffer.

    - `fd`: the descriptor that came with the message, if it needs one: a number, or an object with `fileno()`. It stays the caller's,
      who may close it afterwards.
    - `stream`: the stream that the buffer is used on; the default stream if it is left out.
    - `device`: where it is opened: the current device if it is left out. With `peer`, memory of another device is opened there, too.
    - `writable`: to be written as well, if it was shared so. Otherwise the interfaces of the buffer say that it is read-only.

    The memory is closed when the buffer and all that was lent of it are gone; that waits for its work.

    >>> import alluvion
    >>> with alluvion.simulated() as sim:
    ...     shared = alluvion.Buffer.to_device(b"abc").share()
    ...     with sim.process():
    ...         buffer = alluvion.open_shared(shared.message)
    ...         print(buffer.tobytes(), buffer.__cuda_array_interface__["data"][1])
    ...         del buffer
    ...     shared.end()
    b'abc' True
    """
    if isinstance(message, Shared):
        raise TypeError("a Shared is opened in another process: send its `message` there, or pickle it")
    options: dict[str, Any] = {} if stream is None else {"stream": stream}
    if fd is not None and not isinstance(fd, int):
        fd = fd.fileno()
    return _alluvion.open_shared(bytes(message), fd, device=device, writable=writable, peer=peer, **options)


class Sharing(NamedTuple):
    """What a device has open of other processes, and what of its own waits for others: see `sharing_figures`."""

    #: The buffers that are open of other processes, and their bytes.
    imports: int
    imported_bytes: int
    #: The buffers that were shared and let go while other processes had them, and their bytes.
    parked: int
    parked_bytes: int


def sharing_figures(device: int | None = None) -> Sharing:
    """What a device has open of other processes, and what of its own waits for others.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     alluvion.sharing_figures()
    Sharing(imports=0, imported_bytes=0, parked=0, parked_bytes=0)
    """
    return Sharing(*_alluvion.share_figures(device))


def sweep_shared(device: int | None = None) -> int:
    """Frees what was shared and let go while other processes had it, if they have it no longer. Returns how many buffers that were.
    Every call of `share` looks after a few of them."""
    return _alluvion.sweep_shared(device)


class sharing:
    """Within `with`, buffers that this thread pickles are shared: the pickle has a handle, and whoever loads it in another process opens
    the memory, without a copy.

    Elsewhere a pickle has the bytes. A `Shared` is always pickled as a handle, in any thread: what `multiprocessing.Queue.put` gets is
    pickled by a thread of its own, so it is given a `Shared`.

    `shared` has what was shared. The end of the block waits until no process has it any more, at most `timeout` seconds; so the block
    ends after the others have answered. After an exception it does not wait. Memory that needs a descriptor beside the message is
    loaded by processes of one `multiprocessing` family alone.

    >>> import alluvion, pickle
    >>> with alluvion.simulated() as sim, alluvion.sharing() as given:
    ...     sent = pickle.dumps(alluvion.Buffer.to_device(b"abc"))
    ...     with sim.process():
    ...         buffer = pickle.loads(sent)
    ...         print(buffer.tobytes(), len(given.shared))
    ...         del buffer
    b'abc' 1
    """

    def __init__(self, *, writable: bool = False, timeout: float | None = None, stream: Any = None) -> None:
        self.writable = writable
        self.timeout = timeout
        self.stream = stream
        self.shared: list[Shared] = []
        self._token: Token[sharing | None] | None = None

    def end(self, timeout: float | None = None) -> None:
        """Waits until no process has any of what was shared, at most `timeout` seconds for each."""
        while self.shared:
            self.shared[-1].end(timeout)
            self.shared.pop()

    def __enter__(self) -> Self:
        if self._token is not None:
            raise RuntimeError("the block is entered already: each `with` takes a `sharing()` of its own")
        self._token = _scope.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is not None:
            _scope.reset(token)
        if kind is None:
            self.end(self.timeout)


_scope: ContextVar[sharing | None] = ContextVar("alluvion_sharing", default=None)


def _reduce_buffer(buffer: DeviceBuffer) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """The pickle of a buffer within `sharing`, and `None` elsewhere."""
    scope = _scope.get()
    if scope is None:
        return None
    options: dict[str, Any] = {} if scope.stream is None else {"stream": scope.stream}
    shared = buffer.share(writable=scope.writable, **options)
    reduced = _reduce(shared)
    scope.shared.append(shared)
    return reduced


def _reduce(shared: Shared) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The pickle of a `Shared`."""
    if shared.is_over:
        raise ValueError("it is over: nobody can open the memory any more")
    if not shared.needs_descriptor:
        return _open_pickled, (shared.message, None, shared.is_writable)
    from multiprocessing import context, reduction

    # For a process that is being started the number is noted, and the descriptor goes along later; for another one it is copied at once,
    # and the pickle has an address where the loading process fetches the copy.
    if context.get_spawning_popen() is not None:
        return _open_pickled, (shared.message, reduction.DupFd(shared.fileno()), shared.is_writable)
    descriptor = shared._descriptor()
    try:
        return _open_pickled, (shared.message, reduction.DupFd(descriptor), shared.is_writable)
    finally:
        os.close(descriptor)


def _open_pickled(message: bytes, descriptor: Any, writable: bool) -> DeviceBuffer:
    """Opens what a pickle has."""
    if descriptor is None:
        return open_shared(message, writable=writable)
    fd = descriptor.detach()
    try:
        return open_shared(message, fd, writable=writable)
    finally:
        os.close(fd)


def send_shared(connection: socket.socket, shared: Shared) -> None:
    """Sends a message, and the descriptor if it needs one, over a connected Unix socket: for `receive_shared` on the other side.

    >>> import alluvion, socket
    >>> here, there = socket.socketpair()
    >>> with alluvion.simulated() as sim, alluvion.using("mapped(handles=fd)"):
    ...     shared = alluvion.Buffer.to_device(b"abc").share()
    ...     alluvion.send_shared(here, shared)
    ...     with sim.process():
    ...         buffer = alluvion.receive_shared(there)
    ...         print(buffer.tobytes())
    ...         del buffer
    ...     shared.end()
    b'abc'
    >>> here.close(), there.close()
    (None, None)
    """
    message = shared.message
    framed = len(message).to_bytes(_LENGTH_BYTES, "big") + message
    sent = 0
    if shared.needs_descriptor:
        descriptor = shared._descriptor()
        try:
            sent = socket.send_fds(connection, [framed], [descriptor])
        finally:
            os.close(descriptor)
    # The descriptor went with the first byte. A socket may take a part only.
    connection.sendall(framed[sent:])


def receive_shared(
    connection: socket.socket,
    *,
    stream: Any = None,
    device: int | None = None,
    writable: bool = False,
    peer: bool = False,
) -> DeviceBuffer:
    """Opens what the other side of a Unix socket has sent with `send_shared`. The arguments are those of `open_shared`."""
    descriptors: list[int] = []
    try:
        length = int.from_bytes(_receive(connection, _LENGTH_BYTES, descriptors), "big")
        if length > _LONGEST_MESSAGE:
            raise ValueError(f"the other side announces a message of {length} bytes, which is none of `send_shared`")
        message = _receive(connection, length, descriptors)
        fd = descriptors[0] if descriptors else None
        return open_shared(message, fd, stream=stream, device=device, writable=writable, peer=peer)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _receive(connection: socket.socket, length: int, descriptors: list[int]) -> bytes:
    """So many bytes of a socket. What descriptors come with them are added to the list."""
    received = b""
    while len(received) < length:
        part, fds, _, _ = socket.recv_fds(connection, length - len(received), 1, socket.MSG_CMSG_CLOEXEC)
        descriptors.extend(fds)
        if not part:
            raise EOFError("the other side has closed the socket in the middle of a message")
        received += part
    return received


__all__ = [
    "Shared",
    "Sharing",
    "open_shared",
    "receive_shared",
    "send_shared",
    "sharing",
    "sharing_figures",
    "sweep_shared",
]
