// The same as `device/device_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/device_memory_resource.hpp"
