// The same as `device/managed_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/managed_memory_resource.hpp"
