// The same as `logging_resource_adaptor.hpp`: where RMM 25.10 and before have it.
#include "../../device_buffer.hpp"
#include "../cuda_async_memory_resource.hpp"
#include "../logging_resource_adaptor.hpp"
