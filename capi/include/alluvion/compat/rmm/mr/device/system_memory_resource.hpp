// The same as `system_memory_resource.hpp`: where RMM 25.10 and before have it.
#include "../../device_buffer.hpp"
#include "../cuda_async_memory_resource.hpp"
#include "../system_memory_resource.hpp"
