// The same as `device/sam_headroom_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/sam_headroom_memory_resource.hpp"
