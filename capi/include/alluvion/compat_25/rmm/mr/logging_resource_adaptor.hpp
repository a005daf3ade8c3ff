// The same as `device/logging_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/logging_resource_adaptor.hpp"
