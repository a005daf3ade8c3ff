"""GPU memory for Python: stream-ordered pools and layers, a stand-in for `rmm`, and a simulated GPU to test on.

>>> import alluvion
>>> with alluvion.simulated() as sim:
...     before = alluvion.memory_info()[0]
>>> before > 0
True
"""

from __future__ import annotations

from alluvion import errors
from alluvion._alluvion import (
    current_device,
    current_resource,
    device_count,
    memory_info,
    metrics,
    parse_bytes,
    reset_current_resource,
    set_current_device,
    set_current_resource,
)
from alluvion._simulated import Simulated, simulated

__version__ = "0.1.0"

__all__ = [
    "Simulated",
    "__version__",
    "current_device",
    "current_resource",
    "device_count",
    "errors",
    "memory_info",
    "metrics",
    "parse_bytes",
    "reset_current_resource",
    "set_current_device",
    "set_current_resource",
    "simulated",
]
