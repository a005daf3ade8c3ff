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

    The resource is an object, or a recipe. It is that of the whole process. With `thread=True` it is only that of the calling
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
        self._entered: list[tuple[int, Any, Any]] = []

    def __enter__(self) -> Any:
        resource = self._resource
        if isinstance(resource, str):
            from alluvion._stack import Stack

            resource = Stack(resource, self._device)
        device = self._device
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
        self._entered.append((device, resource, before))
        return resource

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        device, _, before = self._entered.pop()
        if self._thread:
            # By the context, and not by the object, which several threads may have entered.
            scopes = _scopes.get()
            _scopes.set(None if scopes is None else scopes[1])
        else:
            _alluvion.set_current_resource(before, device)


__all__ = ["using"]
