// The same as `device/is_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/is_resource_adaptor.hpp"
