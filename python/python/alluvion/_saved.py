"""Blocks in a file, for a later process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, Mapping

from alluvion import _alluvion
from alluvion._buffer import empty

if TYPE_CHECKING:
    from os import PathLike


def save(path: str | PathLike[str], blocks: Mapping[str, Any], *, stream: Any = None) -> int:
    """Writes buffers of the current device to a file, each under a name, and returns the bytes of the file.

    A block is a `DeviceBuffer`, or an array of another library that shows its memory by `__cuda_array_interface__` and whose elements
    follow each other. The copies are in the order of `stream`, or of the default stream, and the call returns when the file is
    there: it has its name when it is complete, and not before, and until then a file of that name stays as it was.

    >>> import alluvion, os, tempfile
    >>> with alluvion.simulated(), tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model")
    ...     size = alluvion.save(path, {"weights": alluvion.DeviceBuffer.to_device(b"1234")})
    ...     print(alluvion.saved(path), alluvion.restore(path)["weights"].tobytes())
    {'weights': 4} b'1234'
    """
    placed = [(name, *_place(name, block)) for name, block in blocks.items()]
    return _alluvion.save_blocks(path, placed, *_given(stream))


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


def _place(name: str, block: Any) -> tuple[int, int]:
    """Where the memory of a block is, and its bytes."""
    try:
        shown = block.__cuda_array_interface__
    except AttributeError:
        raise TypeError(f"the block {name!r} is no buffer of device memory: {type(block).__name__}") from None
    nbytes = int(shown["typestr"][2:])
    expected = []
    for length in reversed(shown["shape"]):
        expected.insert(0, nbytes)
        nbytes *= length
    if nbytes and shown.get("strides") not in (None, tuple(expected)):
        raise ValueError(f"the block {name!r} has strides: copy it so that its elements follow each other")
    return (shown["data"][0] or 0, nbytes)


__all__ = ["restore", "save", "saved"]
