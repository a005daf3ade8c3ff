"""The exceptions of the package: one class for each kind of error, each derived from the built-in exception that RMM raises."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """What the library says went wrong. The attributes that do not apply are `None`."""

    #: How many bytes were asked for.
    requested: int | None = None
    #: How many bytes were free, and the largest piece of them.
    free: int | None = None
    largest: int | None = None
    #: The layer that refused the request, and the tag that it was made under: empty without one.
    layer: str | None = None
    tag: str | None = None
    #: The limit that the request met.
    limit: int | None = None
    #: The number of the driver's error.
    code: int | None = None
    #: Where a recipe is wrong.
    line: int | None = None
    column: int | None = None
    #: What a suballocator that ran out knows: who holds what.
    report: str | None = None


class OutOfMemory(Error, MemoryError):
    """No layer could serve the request, or a limit was met."""


class SizeOverflow(Error, OverflowError):
    """A size that no address can name."""


class OutOfRange(Error, IndexError):
    """An index beyond the end."""


class InvalidArgument(Error, ValueError):
    """An argument that cannot be."""


class Malformed(Error, ValueError):
    """A recipe or a file that cannot be read; `line` and `column` say where."""


class InvalidAlignment(Error, RuntimeError):
    """An alignment that is no power of two."""


class UnsupportedAlignment(Error, RuntimeError):
    """An alignment that the resource cannot give."""


class DeviceMismatch(Error, RuntimeError):
    """Memory or a stream of another device."""


class LengthMismatch(Error, RuntimeError):
    """Two lengths that must be equal and are not."""


class Unsupported(Error, RuntimeError):
    """The device, the driver or the resource cannot do this."""


class NoDevice(Error, RuntimeError):
    """There is no device with this number."""


class NoDriver(Error, RuntimeError):
    """There is no CUDA driver: see `alluvion.simulated` for a machine without one."""


class Capture(Error, RuntimeError):
    """A stream that captures a graph forbids the call."""


class ContextLost(Error, RuntimeError):
    """The device's context has died of an earlier error."""


class ShutDown(Error, RuntimeError):
    """The driver has ended, or this is the child of a fork."""


class InUse(Error, RuntimeError):
    """Blocks are still out."""


class Asleep(Error, RuntimeError):
    """The memory sleeps."""


class Stale(Error, RuntimeError):
    """What another process shared is gone: it has ended, or has taken it back."""


class OwnProcess(Error, RuntimeError):
    """What this process shares was to be opened in it: use the buffer itself."""


class Misuse(Error, ValueError):
    """A block was freed twice, with the wrong size, or where it did not come from. It was left alone."""


class Unreadable(Error, RuntimeError):
    """A file that cannot be read."""


class Unwritable(Error, RuntimeError):
    """A file that cannot be written."""


class Driver(Error, RuntimeError):
    """The driver refused; `code` is its number."""


class AllocationFailed(Error, MemoryError):
    """An allocation that failed for another reason than a lack of memory: RMM calls that a `MemoryError`, too."""


class ConstructionFailed(Error, RuntimeError):
    """A resource that cannot be made with these arguments."""


class CallbackFailed(Error, RuntimeError):
    """A function of the user's, which a resource called, raised an exception: the `__cause__`."""


_PLACES: dict[str, dict[str, type[Error]]] = {
    # In an allocation whatever the driver says is a `MemoryError`.
    "allocation": {"Driver": AllocationFailed, "ContextLost": AllocationFailed},
    # A constructor that refuses its arguments raises `RuntimeError`, as RMM's do.
    "construction": {"InvalidArgument": ConstructionFailed},
    "copy": {},
    "other": {},
}

#: The kinds whose class has another name.
_NAMES = {"Foreign": "CallbackFailed"}


def _build(kind: str, place: str, message: str, facts: dict[str, Any]) -> BaseException:
    """The exception for an error of the native module."""
    chosen = _PLACES[place].get(kind) or globals().get(_NAMES.get(kind, kind))
    if chosen is None:
        chosen = Error
    if place == "allocation" and facts.get("code") is not None and not issubclass(chosen, (MemoryError, ShutDown)):
        # The driver said it, with whatever code. In the child of a fork no driver was asked.
        chosen = AllocationFailed
    if kind == "NoDriver":
        message = message.replace("simulate a machine", "simulate a machine with `alluvion.simulated()`")
    error: BaseException = chosen(f"Memcpy failed: {message}" if place == "copy" else message)
    for name, value in facts.items():
        if value is not None:
            setattr(error, name, value)
    return error


def _caused(cause: BaseException) -> BaseException:
    """The exception of a request that failed because a function of the user's raised `cause`."""
    chosen = OutOfMemory if isinstance(cause, MemoryError) else CallbackFailed
    try:
        text = str(cause)
    except Exception:
        text = "an exception that cannot be printed"
    error: BaseException = chosen(f"{type(cause).__name__}: {text}")
    error.__cause__ = cause
    return error


__all__ = [name for name, value in globals().items() if isinstance(value, type) and issubclass(value, Error)]
