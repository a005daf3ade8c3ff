// The same as `device/limiting_resource_adaptor.hpp`, where RMM 25.12 has it.
#include "device/limiting_resource_adaptor.hpp"
