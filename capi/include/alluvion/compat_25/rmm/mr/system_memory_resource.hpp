// The same as `device/system_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/system_memory_resource.hpp"
