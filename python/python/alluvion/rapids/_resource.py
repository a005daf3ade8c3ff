"""How the class `DeviceResource` is made, of what there is."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from alluvion import _alluvion
from alluvion._stack import Stack
from alluvion.rapids import _rmm, build

# RMM holds the functions of a `CallbackMemoryResource` without a count, in copies that nobody sees. Who has them stays for good.
_kept: list[object] = []


def _stack_of(recipe: object, device: int | None) -> Stack:
    if isinstance(recipe, str):
        return Stack(recipe, device)
    if not isinstance(recipe, _alluvion.DeviceMemoryResource):
        raise TypeError(f"a recipe is a str or an alluvion.Stack, and not {type(recipe).__name__}")
    stack = recipe if isinstance(recipe, Stack) else Stack(recipe)
    if device is not None and device != stack.device:
        raise ValueError(f"the stack is of gpu {stack.device}, and cannot be a resource of gpu {device}")
    return stack


def make() -> type:
    """The class, over the compiled module where there is one or it can be built, and over callbacks where not."""
    rmm = _rmm.genuine()
    try:
        base = build.load().Resource
    except build.CannotBuild as error:
        if _rmm.version_of(rmm) < (25, 12):
            # Its streams do not say which ones they are to a function that is written in Python.
            raise ImportError(f"alluvion.rapids has no compiled module, which rmm {rmm.__version__} needs: {error}") from error
        warnings.warn(
            f"alluvion.rapids goes on without its compiled module, which takes the interpreter for each block: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        made = _of_callbacks(rmm.mr.CallbackMemoryResource)
    else:
        made = _of_compiled(base)
    made.__module__, made.__qualname__ = "alluvion.rapids", "DeviceResource"
    return made


_WORDS = """A `rmm.mr.DeviceMemoryResource` over a stack, which is made of a recipe or given.

- `recipe`: a recipe, as `"stats | pool | cuda-async"`, an `alluvion.Stack`, or another resource object of this library.
- `device`: the number of the device, and the current one if it is left out. A stack has its device.
"""


def _of_compiled(base: Any) -> type:
    class DeviceResource(base):  # type: ignore[misc]
        __doc__ = _WORDS

        def __new__(cls, recipe: Any = "auto", device: int | None = None) -> Any:
            stack = _stack_of(recipe, device)
            made = super().__new__(cls, stack)
            made._stack = stack
            return made

        @property
        def stack(self) -> Stack:
            """The stack: for `stats()`, `snapshot()`, `trim()` and the rest."""
            return self._stack  # type: ignore[no-any-return]

        def __repr__(self) -> str:
            return f"DeviceResource({self._stack})"

    return DeviceResource


def _of_callbacks(base: Any) -> type:
    class DeviceResource(base):  # type: ignore[misc]
        __doc__ = _WORDS

        def __init__(self, recipe: Any = "auto", device: int | None = None) -> None:
            self._stack = stack = _stack_of(recipe, device)
            deallocate = stack.deallocate

            def free(address: int, nbytes: int, stream: Any) -> None:
                # Whoever frees in C++ would end the process with what this raises.
                try:
                    deallocate(address, nbytes, stream)
                except Exception as error:
                    if sys.stderr is not None:
                        sys.stderr.write(f"alluvion: a free was refused: {error}\n")

            super().__init__(stack.allocate, free)
            _kept.append(self)

        @property
        def stack(self) -> Stack:
            """The stack: for `stats()`, `snapshot()`, `trim()` and the rest."""
            return self._stack

        def __repr__(self) -> str:
            return f"DeviceResource({self._stack})"

    return DeviceResource


__all__ = ["make"]
