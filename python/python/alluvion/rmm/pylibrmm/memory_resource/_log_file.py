"""Where a log of allocations is."""

from __future__ import annotations

import os

from alluvion._alluvion import current_device


def log_file(name: str | os.PathLike[str] | None) -> str:
    """The name, or that of the variable `RMM_LOG_FILE`."""
    if name is None:
        name = os.environ.get("RMM_LOG_FILE", "")
    name = os.fspath(name)
    if isinstance(name, bytes):
        raise TypeError("log_file_name must be a str, and not bytes")
    if not name:
        raise ValueError(
            "a log needs a file: pass log_file_name, or set the environment variable RMM_LOG_FILE, which is not set"
        )
    return name


def append_id(name: str, number: int) -> str:
    """The name with `.dev` and a number before its extension."""
    stem, extension = os.path.splitext(name)
    return f"{stem}.dev{number}{extension}"


def log_file_of_device(name: str | os.PathLike[str] | None) -> str:
    """The file of the current device, as an absolute path."""
    return os.path.abspath(append_id(log_file(name), current_device()))


__all__ = ["append_id", "log_file", "log_file_of_device"]
