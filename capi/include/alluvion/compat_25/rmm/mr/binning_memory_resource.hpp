// The same as `device/binning_memory_resource.hpp`, where RMM 25.12 has it.
#include "device/binning_memory_resource.hpp"
