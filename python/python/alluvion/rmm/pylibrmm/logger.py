"""The debug log: what goes wrong in memory resources, how they grow, and what is outstanding.

Its lines go to the file that the variable `RMM_DEBUG_LOG_FILE` names, and otherwise to standard error, as since RMM 25.04; before, they went
to `rmm_log.txt`. A request that fails is an `error` in a file alone: elsewhere its exception says so. What a pool, or another suballocator,
takes from its upstream is a message of level `debug`.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TextIO

from alluvion import _alluvion
from alluvion._fork import ForkLock
from alluvion.rmm.librmm._logger import level_enum


class _Log:
    """One log, shared by all threads."""

    def __init__(self) -> None:
        self.level = level_enum.info
        self.flush_level = level_enum.off
        # A stream of the program's own may come back here from its `write`.
        self.lock = ForkLock()
        self.file: TextIO | None = None
        self.process = 0

    def to(self) -> TextIO | None:
        """Where lines go. The file is opened, and emptied, at the first line; a child of a fork appends to it."""
        name = os.environ.get("RMM_DEBUG_LOG_FILE")
        if not name:
            return sys.stderr
        if self.file is None:
            self.file = open(name, "w" if self.process == 0 else "a", encoding="utf-8")
            self.process = os.getpid()
        return self.file

    def write(self, level: level_enum, text: str) -> None:
        if not should_log(level):
            return
        now = time.time_ns()
        clock = time.strftime("%H:%M:%S", time.localtime(now // 1_000_000_000))
        microseconds = now // 1000 % 1_000_000
        line = f"[{os.getpid():6}][{clock}:{microseconds:06}][{level.name:<6}] {text}\n"
        with self.lock:
            try:
                to = self.to()
                if to is None:
                    return
                to.write(line)
                if level >= self.flush_level:
                    to.flush()
            except (OSError, RuntimeError, ValueError):
                # Where nobody can read it, a line is lost: the call that it is about goes on.
                return


_log = _Log()


def _validate_level_type(level: object) -> None:
    """Refuses what is no member of `level_enum`, also integers and text."""
    if not isinstance(level, level_enum):
        raise TypeError(f"level must be a member of level_enum, and not {type(level).__name__}")


def should_log(level: level_enum) -> bool:
    """Whether a message of this level is written.

    >>> from alluvion import rmm
    >>> rmm.should_log(rmm.level_enum.error), rmm.should_log(rmm.level_enum.trace)
    (True, False)
    """
    _validate_level_type(level)
    return _log.level <= level < level_enum.off


def set_logging_level(level: level_enum) -> None:
    """Writes messages of this level and above. Nothing is written at `off` and above, of which a warning tells."""
    _validate_level_type(level)
    _log.level = level
    _alluvion._set_logging_level(level)
    if not should_log(level):
        from warnings import warn

        warn(
            f"RMM will not log level_enum.{level.name}. This may be because it is no level of a message: "
            "the last one is level_enum.critical",
            stacklevel=2,
        )


def get_logging_level() -> level_enum:
    """The level from which messages are written: `info` at first."""
    return _log.level


def set_flush_level(level: level_enum) -> None:
    """Empties the buffer after each message of this level and above."""
    _validate_level_type(level)
    _log.flush_level = level
    if not should_log(level):
        from warnings import warn

        warn(
            f"RMM will not log level_enum.{level.name}. So no message of this level empties the buffer",
            stacklevel=2,
        )


def get_flush_level() -> level_enum:
    """The level from which a message empties the buffer: `off` at first."""
    return _log.flush_level


def flush_logger() -> None:
    """Empties the buffer: all lines are in the file afterwards."""
    with _log.lock:
        to = _log.file if _log.file is not None else sys.stderr
        if to is not None:
            try:
                to.flush()
            except (OSError, RuntimeError, ValueError):
                return


def _write(level: int, text: str) -> None:
    """Writes a message of the native module."""
    _log.write(level_enum(level), text)


__all__ = [
    "flush_logger",
    "get_flush_level",
    "get_logging_level",
    "level_enum",
    "set_flush_level",
    "set_logging_level",
    "should_log",
]
