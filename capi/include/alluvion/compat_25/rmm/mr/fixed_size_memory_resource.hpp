// The same as `device/fixed_size_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/fixed_size_memory_resource.hpp"
