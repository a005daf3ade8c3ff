"""A resource for a while."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from alluvion import _alluvion
from alluvion._fork import ForkLock

if TYPE_CHECKING:
    from alluvion._stack import Stack

# The innermost resource, and the scopes around it. Coroutines and threads have values of their own.
_scopes: ContextVar[tuple[Any, Any] | None] = ContextVar("alluvion.resource", default=None)


_Resource = TypeVar("_Resource")

# What `with` has made current for the whole process, for each device in the order of the entries. Blocks that interleave, as those of
# two `asyncio` tasks, do not end in this order.
_current: dict[int, list[_Entry]] = {}
_lock = ForkLock()


class _Entry:
    """One resource that `with` has made current, and what the device had before."""

    def __init__(self, device: int, before: Any) -> None:
        self.device = device
        self.before = before


class using(Generic[_Resource]):
    """Makes a device allocate from a resource within `with`, and from the one before afterwards, however the block ends.

    The resource is an object, or a recipe, or the stacks of several devices (`alluvion.per_device`). It is that
    of the whole process. With `thread=True` it is only that of the calling thread and of the `asyncio` tasks that it makes within;
    then other threads, and libraries that allocate without Python, go on with the resource of the process.

    Tasks that interleave want `thread=True`: without it each has the resource of the block that was entered last. When all blocks
    have ended, in whatever order, the device has what it had before the first.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     with alluvion.using("stats | pool | cuda-async") as stack:
    ...         print(alluvion.current_resource() is stack)
    ...     print(alluvion.current_resource() is stack)
    ...     del stack
    True
    False
    """

    @overload
    def __init__(self: using[Stack], resource: str, device: int | None = None, *, thread: bool = False) -> None: ...
    @overload
    def __init__(self, resource: _Resource, device: int | None = None, *, thread: bool = False) -> None: ...
    def __init__(self, resource: Any, device: int | None = None, *, thread: bool = False) -> None:
        self._resource = resource
        self._device = device
        self._thread = thread
        self._entered: list[list[_Entry]] = []

    def __enter__(self) -> _Resource:
        from alluvion._per_device import PerDevice

        resource: Any = self._resource
        if isinstance(resource, PerDevice):
            if self._device is not None:
                raise TypeError("stacks of several devices have their devices: leave out 'device'")
            entered: list[_Entry] = []
            try:
                for device, stack in resource.items():
                    entered.append(self._enter(stack, device))
            except BaseException:
                self._leave(entered)
                raise
            self._entered.append(entered)
            return resource  # type: ignore[return-value]
        if isinstance(resource, str):
            from alluvion._stack import Stack

            resource = Stack(resource, self._device)
        self._entered.append([self._enter(resource, self._device)])
        return resource  # type: ignore[no-any-return]

    def _enter(self, resource: Any, device: int | None) -> _Entry:
        if device is None:
            device = resource.device if hasattr(resource, "device") else _alluvion.current_device()
        if self._thread:
            if not isinstance(resource, _alluvion.DeviceMemoryResource):
                raise TypeError(
                    f"Argument 'resource' has incorrect type (expected DeviceMemoryResource, got {type(resource).__name__})"
                )
            _alluvion.follow_resources(_scopes)
            before: Any = _scopes.get()
            _scopes.set((resource, before))
            return _Entry(device, before)
        with _lock:
            entry = _Entry(device, _of_process(device))
            _alluvion.set_current_resource(resource, device)
            _current.setdefault(device, []).append(entry)
        return entry

    def _leave(self, entered: list[_Entry]) -> None:
        for entry in reversed(entered):
            if self._thread:
                # By the context, and not by the object, which several threads may have entered.
                scopes = _scopes.get()
                if scopes is None:
                    from warnings import warn

                    warn(
                        "`using(thread=True)` ends in another thread or task than it began in, which keeps its resource",
                        RuntimeWarning,
                        stacklevel=3,
                    )
                else:
                    _scopes.set(scopes[1])
            else:
                _end(entry)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._entered:
            raise RuntimeError("`using` ends before it has begun: use it with `with`")
        self._leave(self._entered.pop())


def _of_process(device: int) -> Any:
    """What the process allocates from, whatever the calling thread has chosen for itself."""
    token = _scopes.set(None)
    try:
        return _alluvion.current_resource(device)
    finally:
        _scopes.reset(token)


def _end(entry: _Entry) -> None:
    """Takes an entry out. What was before it is current again; or, if it is not the innermost of its device, the one that came after
    it gets that.
    """
    # Until the lock is free: this may be the last that has it, and its end may wait.
    ends = _of_process(entry.device)
    with _lock:
        entries = _current[entry.device]
        place = entries.index(entry)
        del entries[place]
        if place < len(entries):
            entries[place].before = entry.before
        else:
            _alluvion.set_current_resource(entry.before, entry.device)
    del ends


__all__ = ["using"]
