"""What allocations are for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import TracebackType
from typing import Any, Callable, TypeVar

from alluvion import _alluvion

_F = TypeVar("_F", bound=Callable[..., Any])

# The innermost tag, and the scopes around it. Coroutines and threads have values of their own.
_scopes: ContextVar[tuple[_alluvion.Tag, Any] | None] = ContextVar("alluvion.tag", default=None)

_IS_COROUTINE = 0x80


class tag:
    """Labels the allocations made within `with`, or by a function that it decorates.

    Scopes nest. Each thread and each `asyncio` task has its own: a task begins with those of the code that made it. Statistics,
    tracking, logs and snapshots tell allocations apart by them. Memory that PyTorch asks for itself has the tag that its thread
    had at the last border of a scope.

    >>> import alluvion
    >>> with alluvion.tag("query"), alluvion.tag("join"):
    ...     alluvion.current_tag()
    'query;join'
    >>> alluvion.current_tag()
    ''
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(f"a tag is a str, and not {type(name).__name__}")
        self.name = name

    def __enter__(self) -> tag:
        _alluvion.follow_tags(_scopes)
        around = _scopes.get()
        inner = _alluvion.Tag(self.name, None if around is None else around[0])
        _scopes.set((inner, around))
        inner.make_current()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        scopes = _scopes.get()
        around = None if scopes is None else scopes[1]
        _scopes.set(around)
        if around is None:
            _alluvion.Tag.make_none_current()
        else:
            around[0].make_current()

    def __call__(self, function: _F) -> _F:
        """Labels the allocations of a function, or of a coroutine function."""
        code = getattr(function, "__code__", None)
        wrapper: Any
        if code is not None and code.co_flags & _IS_COROUTINE:

            @wraps(function)
            async def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

        else:

            @wraps(function)
            def wrapper(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return wrapper  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"tag({self.name!r})"


@contextmanager
def untagged() -> Iterator[None]:
    """What is allocated within `with` carries no tag, whatever scopes are around it."""
    around = _scopes.get()
    _scopes.set(None)
    _alluvion.Tag.make_none_current()
    try:
        yield
    finally:
        _scopes.set(around)
        if around is not None:
            around[0].make_current()


def current_tag() -> str:
    """The path of the tags around the caller, from the outermost on, with semicolons between them.

    >>> import alluvion
    >>> with alluvion.tag("load"):
    ...     alluvion.current_tag()
    'load'
    """
    scopes = _scopes.get()
    return "" if scopes is None else str(scopes[0])


__all__ = ["current_tag", "tag", "untagged"]
