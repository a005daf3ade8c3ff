// The same as `device/arena_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/arena_memory_resource.hpp"
