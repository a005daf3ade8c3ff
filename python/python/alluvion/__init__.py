"""GPU memory for Python: stream-ordered pools and layers, a stand-in for `rmm`, and a simulated GPU to test on.

>>> import alluvion
>>> with alluvion.simulated() as sim:
...     stack = alluvion.resource("stats | limiting(64MiB) | pool | cuda-async")
...     with alluvion.using(stack), alluvion.tag("join"):
...         buffer = alluvion.empty(1 << 20)
...         print(stack.stats().current_bytes)
...         del buffer
...     del stack
1048576

`alluvion.rmm` is a stand-in for the package `rmm`, and `alluvion.rapids` puts stacks under the genuine one; `alluvion.pinned` has NumPy
arrays in pinned memory, `alluvion.testing` tools for tests, `alluvion.errors` the exceptions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvion import errors, pinned
from alluvion._alluvion import (
    DeviceBuffer,
    DeviceView,
    Event,
    Stream,
    current_device,
    current_resource,
    device_count,
    from_dlpack,
    memory_info,
    metrics,
    parse_bytes,
    plain_recipe,
    recipe_help,
    reset_current_resource,
    set_current_device,
    set_current_resource,
    set_stack_depth,
)
from alluvion._buffer import Buffer, empty
from alluvion._include import get_include
from alluvion._per_device import PerDevice, per_device
from alluvion._program import ProgramFailed, doctor, draw, replay, run, tune
from alluvion._saved import restore, save, saved
from alluvion._sharing import Shared, Sharing, open_shared, receive_shared, send_shared, sharing, sharing_figures, sweep_shared
from alluvion._simulated import Access, Hazard, HazardError, Simulated, simulated
from alluvion._snapshot import Snapshot
from alluvion._stack import Block, Call, Crossing, GraphMemory, Limit, Reservation, Sleeper, Stack, Statistics, TagStatistics, Violation, resource
from alluvion._tag import current_tag, tag
from alluvion._using import using

__version__ = "0.1.0"

__all__ = [
    "Access",
    "Block",
    "Buffer",
    "Call",
    "Crossing",
    "DeviceBuffer",
    "DeviceView",
    "Event",
    "GraphMemory",
    "Hazard",
    "HazardError",
    "Limit",
    "PerDevice",
    "ProgramFailed",
    "Reservation",
    "Shared",
    "Sharing",
    "Simulated",
    "Sleeper",
    "Snapshot",
    "Stack",
    "Statistics",
    "Stream",
    "TagStatistics",
    "Violation",
    "__version__",
    "current_device",
    "current_resource",
    "current_tag",
    "device_count",
    "doctor",
    "draw",
    "empty",
    "errors",
    "from_dlpack",
    "get_include",
    "memory_info",
    "metrics",
    "open_shared",
    "parse_bytes",
    "per_device",
    "pinned",
    "plain_recipe",
    "receive_shared",
    "recipe_help",
    "replay",
    "reset_current_resource",
    "resource",
    "restore",
    "run",
    "save",
    "saved",
    "send_shared",
    "set_current_device",
    "set_current_resource",
    "set_stack_depth",
    "sharing",
    "sharing_figures",
    "simulated",
    "sweep_shared",
    "tag",
    "tune",
    "using",
]

# Modules that are imported when they are asked for: a program that needs none of them starts faster.
_LATER = frozenset({"cuda_core", "dask", "rapids", "rmm", "testing"})

if TYPE_CHECKING:
    from alluvion import cuda_core as cuda_core
    from alluvion import dask as dask
    from alluvion import rapids as rapids
    from alluvion import rmm as rmm
    from alluvion import testing as testing
else:

    def __getattr__(name: str) -> object:
        if name in _LATER:
            from importlib import import_module

            return import_module(f"alluvion.{name}")
        raise AttributeError(f"module 'alluvion' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LATER, *(name for name in globals() if name.startswith("__"))})
