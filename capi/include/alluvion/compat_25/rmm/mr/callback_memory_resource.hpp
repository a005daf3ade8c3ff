// The same as `device/callback_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/callback_memory_resource.hpp"
