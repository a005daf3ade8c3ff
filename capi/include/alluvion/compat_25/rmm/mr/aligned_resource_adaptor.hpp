// The same as `device/aligned_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/aligned_resource_adaptor.hpp"
