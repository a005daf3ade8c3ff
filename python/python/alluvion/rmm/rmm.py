"""Initialization, and the functions that are told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from alluvion._fork import ForkLock
from alluvion.rmm.pylibrmm.memory_resource import _memory_resource

_F = TypeVar("_F", bound=Callable[..., Any])


class RMMError(Exception):
    """An error with a number. Nothing raises it now; programs catch it beside `MemoryError`."""

    def __init__(self, errcode: int, msg: str) -> None:
        self.errcode = errcode
        super().__init__(msg)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.errcode, str(self))


#: What was registered: function, positional arguments, named arguments.
_reinitialize_hooks: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []
# The collector may run while it is held, and with it a destructor that registers.
_hooks_lock = ForkLock()


def register_reinitialize_hook(func: _F, *args: Any, **kwargs: Any) -> _F:
    """Has `func(*args, **kwargs)` called at the beginning of each `reinitialize`, the newest registration first.

    Returns `func`, so that it can decorate.

    >>> from alluvion import rmm
    >>> @rmm.register_reinitialize_hook
    ... def forget_buffers():
    ...     print("gone")
    >>> rmm.unregister_reinitialize_hook(forget_buffers)
    """
    with _hooks_lock:
        _reinitialize_hooks.append((func, args, kwargs))
    return func


def unregister_reinitialize_hook(func: Callable[..., Any]) -> None:
    """Removes every registration of `func`, if there are any."""
    with _hooks_lock:
        hooks = list(_reinitialize_hooks)
    # The comparison is foreign code, so no lock is held; what was registered meanwhile stays.
    gone = [hook for hook in hooks if hook[0] == func]
    with _hooks_lock:
        for hook in gone:
            for place, known in enumerate(list(_reinitialize_hooks)):
                if known is hook:
                    del _reinitialize_hooks[place]
                    break


def reinitialize(
    pool_allocator: bool = False,
    managed_memory: bool = False,
    initial_pool_size: int | str | None = None,
    maximum_pool_size: int | str | None = None,
    devices: int | Iterable[int] | None = 0,
    logging: bool = False,
    log_file_name: str | None = None,
) -> None:
    """Gives each of `devices` a new memory resource, and every other device its initial one again.

    The resource is a `ManagedMemoryResource` or a `CudaMemoryResource`, under a pool and a log if asked. Sizes are integers or
    text such as `"1.5 GiB"`; a pool without a size takes half of the free memory. Hooks are called first, the newest
    first. An exception of a hook, and a wrong argument, changes nothing. Memory that was allocated before stays valid, and
    goes back to where it came from.
    """
    with _hooks_lock:
        hooks = list(_reinitialize_hooks)
    for func, args, kwargs in reversed(hooks):
        func(*args, **kwargs)
    _memory_resource._initialize(
        pool_allocator=pool_allocator,
        managed_memory=managed_memory,
        initial_pool_size=initial_pool_size,
        maximum_pool_size=maximum_pool_size,
        devices=devices,
        logging=logging,
        log_file_name=log_file_name,
    )


def is_initialized() -> bool:
    """Whether there are memory resources: always."""
    return _memory_resource.is_initialized()


__all__ = [
    "RMMError",
    "is_initialized",
    "register_reinitialize_hook",
    "reinitialize",
    "unregister_reinitialize_hook",
]
