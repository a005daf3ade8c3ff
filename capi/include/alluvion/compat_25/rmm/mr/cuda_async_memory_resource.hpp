// The same as `device/cuda_async_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/cuda_async_memory_resource.hpp"
