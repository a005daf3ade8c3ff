// The same as `device/pool_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/pool_memory_resource.hpp"
