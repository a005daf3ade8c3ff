"""A resource for a while."""

from __future__ import annotations

from contextvars import ContextVar
from types import TracebackType
from typing import Any

from alluvion import _alluvion

# The innermost resource, and the scopes around it. Coroutines and threads have values of their own.
_scopes: ContextVar[tuple[Any, Any] | None] = ContextVar("alluvion.resource", default=None)


class using:
    """Makes a device allocate from a resource within `with`, and from the one before afterwards, however the block ends.

    The resource is an object, or a recipe, or the stacks of several devices (`alluvion.per_device`). It is that of the whole process. With `thread=True` it is only that of the calling
    thread and of the `asyncio` tasks that it makes within; then other threads, and libraries that allocate without Python, go on
    with the resource of the process.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     with alluvion.using("stats | pool | cuda-async") as stack:
    ...         print(alluvion.current_resource() is stack)
    ...     print(alluvion.current_resource() is stack)
    ...     del stack
    True
    False
    """

    def __init__(self, resource: Any, device: int | None = None, *, thread: bool = False) -> None:
        self._resource = resource
        self._device = device
        self._thread = thread
        # For each entry, the devices and what each had before.
        self._entered: list[list[tuple[int, Any]]] = []

    def __enter__(self) -> Any:
        from alluvion._per_device import PerDevice

        resource = self._resource
        if isinstance(resource, PerDevice):
            if self._device is not None:
                raise TypeError("stacks of several devices have their devices: leave out 'device'")
            entered: list[tuple[int, Any]] = []
            try:
                for device, stack in resource.items():
                    entered.append(self._enter(stack, device))
            except BaseException:
                self._leave(entered)
                raise
            self._entered.append(entered)
            return resource
        if isinstance(resource, str):
            from alluvion._stack import Stack

            resource = Stack(resource, self._device)
        self._entered.append([self._enter(resource, self._device)])
        return resource

    def _enter(self, resource: Any, device: int | None) -> tuple[int, Any]:
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
        else:
            before = _alluvion.current_resource(device)
            _alluvion.set_current_resource(resource, device)
        return (device, before)

    def _leave(self, entered: list[tuple[int, Any]]) -> None:
        for device, before in reversed(entered):
            if self._thread:
                # By the context, and not by the object, which several threads may have entered.
                scopes = _scopes.get()
                _scopes.set(None if scopes is None else scopes[1])
            else:
                _alluvion.set_current_resource(before, device)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._leave(self._entered.pop())


__all__ = ["using"]
