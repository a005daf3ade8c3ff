"""The classes and functions that RMM compiles."""

from alluvion.rmm.pylibrmm import helper, logger, memory_resource, utils
from alluvion.rmm.pylibrmm.cuda_stream_pool import CudaStreamPool
from alluvion.rmm.pylibrmm.device_buffer import DeviceBuffer
from alluvion.rmm.pylibrmm.stream import CudaStreamFlags

__all__ = ["CudaStreamFlags", "CudaStreamPool", "DeviceBuffer", "memory_resource"]
