"""RMM's interface, over this library: `import alluvion.rmm as rmm`.

The modules, classes, functions, defaults, exceptions and texts are those of RMM 26.10. `install` makes `import rmm` mean this
package anywhere in the process, and `python -m alluvion.rmm script.py` runs a program so, with its children.

>>> import alluvion
>>> import alluvion.rmm as rmm
>>> with alluvion.simulated():
...     rmm.reinitialize(pool_allocator=True, initial_pool_size="8 MiB")
...     rmm.mr.get_current_device_resource().pool_size()
8388608
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvion import __version__ as __alluvion_version__
from alluvion.rmm import librmm as librmm
from alluvion.rmm import mr
from alluvion.rmm import pylibrmm as pylibrmm
from alluvion.rmm import rmm as rmm
from alluvion.rmm import statistics as statistics
from alluvion.rmm._cuda import gpu as _gpu
from alluvion.rmm._install import install as install
from alluvion.rmm._install import uninstall as uninstall
from alluvion.rmm._version import __git_commit__ as __git_commit__
from alluvion.rmm._version import __version__ as __version__
from alluvion.rmm.mr import disable_logging, enable_logging, get_log_filenames
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.logger import (
    flush_logger,
    get_flush_level,
    get_logging_level,
    level_enum,
    set_flush_level,
    set_logging_level,
    should_log,
)
from alluvion.rmm.rmm import (
    RMMError,
    is_initialized,
    register_reinitialize_hook,
    reinitialize,
    unregister_reinitialize_hook,
)

__all__ = [
    "DeviceBuffer",
    "RMMError",
    "disable_logging",
    "enable_logging",
    "flush_logger",
    "get_flush_level",
    "get_log_filenames",
    "get_logging_level",
    "is_initialized",
    "level_enum",
    "mr",
    "register_reinitialize_hook",
    "reinitialize",
    "set_flush_level",
    "set_logging_level",
    "should_log",
    "unregister_reinitialize_hook",
]

_ALLOCATORS = {
    "RMMNumbaManager": "alluvion.rmm.allocators.numba",
    "_numba_memory_manager": "alluvion.rmm.allocators.numba",
    "rmm_cupy_allocator": "alluvion.rmm.allocators.cupy",
    "rmm_torch_allocator": "alluvion.rmm.allocators.torch",
}

if TYPE_CHECKING:
    from alluvion.rmm import allocators as allocators
else:

    def __getattr__(name: str) -> object:
        """The allocators, which are imported when they are asked for, and the names that older versions of RMM had here."""
        from importlib import import_module
        from warnings import warn

        if name == "allocators":
            return import_module("alluvion.rmm.allocators")

        if name in _ALLOCATORS:
            place = _ALLOCATORS[name].removeprefix("alluvion.")
            warn(f"rmm.{name} is deprecated: use {place}.{name}", FutureWarning, stacklevel=2)
            return getattr(import_module(_ALLOCATORS[name]), name)
        if name == "_lib":
            warn("rmm._lib is deprecated: use rmm.pylibrmm", FutureWarning, stacklevel=2)
            return pylibrmm
        if name == "logging_level":
            warn("rmm.logging_level is deprecated: use rmm.level_enum", FutureWarning, stacklevel=2)
            return level_enum
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
