// The same as `device/per_device_resource.hpp`, where RMM 25.12 has it.
#include "device/per_device_resource.hpp"
