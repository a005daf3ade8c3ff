"""The PyTorch that is installed, if it is one that this package has a door for."""

from __future__ import annotations

from typing import Any

from alluvion._compiled import imported, version_of

#: The minor numbers of PyTorch 2 that the source compiles with.
MINORS = range(8, 16)


def genuine() -> Any:
    """The module `torch`. An `ImportError` says what is wrong with the one that is there, if it is none of those above."""
    torch = imported("torch", "alluvion.torch")
    minor_of(torch)
    if getattr(getattr(torch, "version", None), "cuda", None) is None:
        raise ImportError(f"alluvion.torch needs a PyTorch with CUDA, and torch {torch.__version__} was built without it")
    return torch


def minor_of(torch: Any) -> int:
    """The minor number of a PyTorch, which is one of those that are supported."""
    text, (major, minor) = version_of(torch)
    if major != 2 or minor not in MINORS:
        raise ImportError(f"alluvion.torch has no door for torch {text}: it has them for 2.{MINORS[0]} to 2.{MINORS[-1]}")
    return minor


__all__ = ["MINORS", "genuine", "minor_of"]
