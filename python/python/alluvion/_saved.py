"""Blocks in a file, for a later process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping

from alluvion import _alluvion
from alluvion._buffer import empty

if TYPE_CHECKING:
    from os import PathLike


def save(path: str | PathLike[str], blocks: Mapping[str, Any], *, stream: Any = None) -> int:
    """Writes buffers of the current device to a file, each under a name, and returns the bytes of the file.

    A block is a `DeviceBuffer`, or an array of another library that shows its memory by `__cuda_array_interface__` and whose elements
    follow each other. The copies are in the order of `stream`, or of the default stream, and behind the stream that such an array says it
    is safe to use on. The call returns when the file is there: it has its name when it is complete, and not before, and until then a file of that name stays as it was.

    >>> import alluvion, os, tempfile
    >>> with alluvion.simulated(), tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     size = alluvion.save(path, {"weights": alluvion.DeviceBuffer.to_device(b"1234")})
    ...     print(alluvion.saved(path), alluvion.restore(path)["weights"].tobytes())
    {'weights': 4} b'1234'
    """
    # A mapping may make its blocks as it is asked: they are kept until they are written.
    kept = list(blocks.items())
    shown = [(name, _shown(name, block)) for name, block in kept]
    placed = [(name, *_place(name, of)) for name, of in shown]
    behind = {of["stream"] for _, of in shown if of.get("stream") is not None}
    saved_bytes = _alluvion.save_blocks(path, placed, sorted(behind), *_given(stream))
    del kept
    return saved_bytes


def saved(path: str | PathLike[str]) -> dict[str, int]:
    """The names of the blocks of a file, and their bytes, in the order in which they were saved. No contents are read."""
    return dict(_alluvion.saved_blocks(path))


def restore(
    path: str | PathLike[str], names: Iterable[str] | None = None, *, stream: Any = None, resource: Any = None
) -> dict[str, _alluvion.DeviceBuffer]:
    """Makes buffers of the blocks of a file: of those that `names` has, and of all if it is left out.

    The memory comes from `resource`, an object or a recipe, on `stream`, as for `empty`. A file that is cut short or damaged is an
    error that says so, and so is a name that the file has not.
    """
    if isinstance(names, str):
        raise TypeError(f"names is a list of names, and not one: pass [{names!r}]")
    sizes = saved(path)
    wanted = list(sizes) if names is None else list(names)
    missing = [name for name in wanted if name not in sizes]
    if missing:
        raise KeyError(f"{missing[0]!r}: {path} has no block of that name, but {', '.join(map(repr, sizes)) or 'none'}")
    if isinstance(resource, str):
        from alluvion._stack import Stack

        resource = Stack(resource)
    buffers = {name: empty(sizes[name], stream=stream, resource=resource) for name in wanted}
    _alluvion.restore_blocks(path, [(name, buffer.ptr, buffer.nbytes) for name, buffer in buffers.items()], *_given(stream))
    return buffers


def _given(stream: Any) -> tuple[Any, ...]:
    return () if stream is None else (stream,)


def _shown(name: str, block: Any) -> Any:
    """What a block says of itself."""
    try:
        return block.__cuda_array_interface__
    except AttributeError:
        raise TypeError(f"the block {name!r} is no buffer of device memory: {type(block).__name__}") from None


def _place(name: str, shown: Any) -> tuple[int, int]:
    """Where the memory of a block is, and its bytes."""
    # Of times, the unit follows the bytes; of text, it is characters of four bytes.
    form = re.match(r"[<>|=]([A-Za-z])([0-9]+)", shown["typestr"])
    if form is None:
        raise ValueError(f"the block {name!r} has elements of no known type: {shown['typestr']!r}")
    if shown.get("mask") is not None:
        raise ValueError(f"the block {name!r} has a mask, which would not be saved")
    nbytes = int(form[2]) * (4 if form[1] == "U" else 1)
    shape, expected = list(shown["shape"]), []
    if any(length < 0 for length in shape):
        raise ValueError(f"the block {name!r} has a negative length: {tuple(shape)}")
    for length in reversed(shape):
        expected.insert(0, nbytes)
        nbytes *= length
    strides = shown.get("strides")
    if nbytes and strides is not None:
        # Along a dimension of one element there is no step.
        steps = [(stride, wanted) for stride, wanted, length in zip(strides, expected, shape) if length > 1]
        if len(strides) != len(shape) or any(stride != wanted for stride, wanted in steps):
            raise ValueError(f"the block {name!r} has strides: copy it so that its elements follow each other")
    address = (shown["data"] or (0,))[0] or 0
    if nbytes and not 0 < address <= 2**64 - nbytes:
        raise ValueError(f"the block {name!r} has {nbytes} bytes at no address: its `data` is {address:#x}")
    return (address, nbytes)


__all__ = ["restore", "save", "saved"]
