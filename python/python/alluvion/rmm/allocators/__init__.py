"""How other libraries allocate from the current resource: a module for each."""

import typing as _typing

if _typing.TYPE_CHECKING:
    from alluvion.rmm.allocators import cupy as cupy
    from alluvion.rmm.allocators import numba as numba
    from alluvion.rmm.allocators import torch as torch
else:

    def __getattr__(name: str) -> object:
        """The modules, which are imported when they are asked for: each needs the library that it is for."""
        if name in ("cupy", "numba", "torch"):
            from importlib import import_module

            return import_module(f"alluvion.rmm.allocators.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
