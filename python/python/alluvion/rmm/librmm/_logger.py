"""The levels of the debug log."""

from __future__ import annotations

from enum import IntEnum


class level_enum(IntEnum):
    """The levels of the debug log, from the least important message to none at all.

    >>> from alluvion.rmm import level_enum
    >>> level_enum.warn < level_enum.error
    True
    """

    trace = 0
    debug = 1
    info = 2
    warn = 3
    error = 4
    critical = 5
    off = 6
    n_levels = 7


__all__ = ["level_enum"]
