"""A fixed number of streams, given out in turn."""

from __future__ import annotations

from alluvion._alluvion import CudaStreamPool
from alluvion.rmm.pylibrmm.stream import CudaStreamFlags

__all__ = ["CudaStreamFlags", "CudaStreamPool"]
