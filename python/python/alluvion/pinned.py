"""NumPy arrays in pinned memory: page-locked memory of the host, which the device reads and writes by itself.

A copy from or to such an array runs beside other work, and twice as fast as one of ordinary memory. The memory comes from a pool,
because pinning takes long: 4 GiB took 143 ms on the host of an H200, and the first array of a size pays for it. It goes back to the pool when the last
array over it goes: behind the copies that the package makes, and behind all work on streams that wait for the default stream. Work
of another library on a non-blocking stream the pool does not see: tell it by `used_on`.

>>> import alluvion, numpy
>>> with alluvion.simulated():
...     prices = alluvion.pinned.zeros((2, 3), dtype="f4")
...     prices[0] = 1.5
...     print(prices.sum(), alluvion.pinned.is_pinned(prices[1]))
...     del prices
4.5 True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from alluvion import _alluvion

if TYPE_CHECKING:
    import numpy
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    Shape = int | Sequence[int]


def empty(shape: Shape, dtype: DTypeLike = float, order: str = "C") -> NDArray[Any]:
    """An array of pinned memory whose values are arbitrary: `numpy.empty`, elsewhere.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     alluvion.pinned.empty((4, 2), "i4").nbytes
    32
    """
    import numpy

    dtype = numpy.dtype(dtype)
    if dtype.hasobject:
        raise TypeError(f"pinned memory has no room for Python objects: dtype {dtype}")
    if order not in ("C", "F"):
        raise ValueError(f"order is 'C' or 'F', and not {order!r}")
    lengths = _lengths(shape)
    nbytes = dtype.itemsize
    for length in lengths:
        nbytes *= length
    if nbytes == 0:
        return numpy.empty(lengths, dtype, order=order)  # type: ignore[call-overload, no-any-return]
    block = _alluvion.PinnedBlock(nbytes)
    # NumPy's stubs do not know the buffer protocol of classes before Python 3.12.
    buffer: Any = block
    return numpy.ndarray(lengths, dtype, buffer=buffer, order=order)  # type: ignore[arg-type]


def zeros(shape: Shape, dtype: DTypeLike = float, order: str = "C") -> NDArray[Any]:
    """An array of pinned memory filled with zeros: `numpy.zeros`, elsewhere."""
    made = empty(shape, dtype, order)
    made.fill(0)
    return made


def array(values: ArrayLike, dtype: DTypeLike | None = None, order: str = "C") -> NDArray[Any]:
    """A copy of an array, or of a list, in pinned memory: `numpy.array`, elsewhere.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     alluvion.pinned.array([1, 2, 3])
    array([1, 2, 3])
    """
    import numpy

    there = numpy.asarray(values, dtype)
    made = empty(there.shape, there.dtype, order)
    made[...] = there
    return made


def block_of(array: Any) -> _alluvion.PinnedBlock | None:
    """The block of pinned memory that an array or a view of it lies in; `None` if that is no memory of this module."""
    # NumPy keeps no chains of views: the base of a view is what the memory belongs to.
    for _ in range(16):
        if isinstance(array, _alluvion.PinnedBlock):
            return array
        if isinstance(array, memoryview):
            array = array.obj
        else:
            array = getattr(array, "base", None)
    return None


def is_pinned(array: Any) -> bool:
    """Whether an array lies in pinned memory of this module."""
    return block_of(array) is not None


def used_on(array: Any, stream: Any) -> None:
    """Notes that work submitted to a stream so far uses an array: its memory goes to another array only behind that work.

    >>> import alluvion
    >>> with alluvion.simulated():
    ...     numbers = alluvion.pinned.zeros(10)
    ...     alluvion.pinned.used_on(numbers, alluvion.Stream())
    ...     del numbers
    """
    block = block_of(array)
    if block is None:
        raise ValueError("the array is not in pinned memory of `alluvion.pinned`")
    block.used_on(stream)


def trim(keep: int | str = 0) -> int:
    """Gives pinned memory that no array uses back to the system, down to `keep` bytes. Returns how many bytes went."""
    return _alluvion.trim_pinned(_alluvion.parse_bytes(keep))


def memory_info() -> tuple[int, int]:
    """How many bytes of pinned memory the pool of the current device holds, and how many of them are in arrays."""
    return _alluvion.pinned_bytes()


def _lengths(shape: Any) -> tuple[int, ...]:
    from operator import index

    if isinstance(shape, (str, bytes, bytearray)):
        raise TypeError(f"a shape is an int or a sequence of them, and not {type(shape).__name__}")
    try:
        lengths: tuple[int, ...] = (index(shape),)
    except TypeError:
        lengths = tuple(index(length) for length in shape)
    if any(length < 0 for length in lengths):
        raise ValueError(f"negative dimensions are not allowed: {lengths}")
    return lengths


__all__ = ["array", "block_of", "empty", "is_pinned", "memory_info", "trim", "used_on", "zeros"]
